"""Chains as commands ask for them: from a preset or widths, on a machine, told as rows and text."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from chains.choose import Choice, Contender
from chains.description import Chain, Product
from chains.program import Bound
from drbench.common import PHASES
from drbench.errors import UsageError
from drbench.measure.record import Record
from launch.cases.chains import Asked, ChainOrder, keys_of
from launch.host.mpi import run_ranks
from partitions import LayoutError, parse_placements, to_placements


def fixed_of(chain: Chain, given: Sequence[str]) -> dict[str, str]:
    """``NAME=LAYOUT`` of matrices as layouts of variables.

    Raises
    ------
    UsageError
        If there is no such matrix, or two that are laid out alike are to be laid out differently.
    """
    found: dict[str, str] = {}
    for text in given:
        name, _, layout = text.partition("=")
        if name not in chain.matrices or not layout:
            raise UsageError(
                f"--fix {text} names no matrix of the chain; there are "
                f"{', '.join(chain.matrices)}. Use NAME=LAYOUT."
            )
        variable = chain.variable(name)
        if found.setdefault(variable, layout) != layout:
            raise UsageError(
                f"--fix {text}: {name} is laid out as {variable}, which is {found[variable]}."
            )
    return found


def operation_rows(found: Contender) -> list[tuple[str, str, str]]:
    """(operation, layouts of what it takes and makes, how) of a chain in layouts."""
    bound, rows = found.bound, []
    layout = lambda name: bound.layouts[bound.chain.variable(name)]
    for each in bound.chain.operations:
        taken = ", ".join(f"{name} {layout(name)}" for name in each.takes)
        how = str(bound.ways[each.c]) if isinstance(each, Product) else "own tiles"
        rows.append((str(each), f"{taken} → {layout(each.c)}", how))
    return rows


def placements(bound: Bound) -> dict[str, tuple[tuple[int, ...], str]]:
    """The mesh and DTensor placements of every matrix that is given or stays, by name: the same
    elements on the same ranks.

    Raises
    ------
    UsageError
        If no placements say what a layout says.
    """
    found = {}
    for name in bound.chain.matrices:
        whole = bound.operands[name].stored
        try:
            text = to_placements(whole)
        except LayoutError as error:
            raise UsageError(f"{name} as {whole.text}: {error}") from None
        spec = parse_placements(text)
        mesh = spec.mesh
        if not mesh:
            mesh = (bound.nprocs,)
        found[name] = mesh, text.partition("@")[0]
    return found


_TORCH = {"R": "Replicate()", "P": "Partial()"}


def placements_text(bound: Bound, device: str = "cuda") -> str:
    """Python to paste: meshes, and the placements of every matrix."""
    known = placements(bound)
    meshes = {mesh: f"mesh_{'x'.join(map(str, mesh))}" for mesh, _ in known.values()}
    lines = [
        "from torch.distributed.device_mesh import init_device_mesh",
        "from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor",
        "",
    ]
    for mesh, name in meshes.items():
        extents = f"({', '.join(map(str, mesh))}{',' * (len(mesh) == 1)})"
        lines.append(f'{name} = init_device_mesh("{device}", {extents})')
    lines.append("placements = {")
    for name, (mesh, text) in known.items():
        words, depth, word = [], 0, ""
        for letter in text:
            depth += (letter == "(") - (letter == ")")
            if letter == "," and not depth:
                words.append(word)
                word = ""
            else:
                word += letter
        told = [_TORCH.get(each, each.replace("S(", "Shard(")) for each in (*words, word)]
        lines.append(f'    "{name}": ({meshes[mesh]}, [{", ".join(told)}]),')
    return "\n".join([*lines, "}"])


def order_of(
    found: Contender,
    asked: Asked,
    machine: str | None,
    fill: str,
    seed: int = 0,
    iters: int = 10,
    budget_s: float = 10.0,
    transport: str = "auto",
) -> ChainOrder:
    """What ranks are told to run of a chain in layouts."""
    bound = found.bound
    ways = {
        name: [
            [list(move) for move in way.a],
            [list(move) for move in way.b],
            way.algorithm,
            [list(each) for each in way.options],
            way.made,
            [list(move) for move in way.c],
        ]
        for name, way in bound.ways.items()
    }
    return ChainOrder(
        asked,
        bound.nprocs,
        bound.dtype,
        bound.layouts,
        ways,
        found.prefetch,
        fill,
        seed,
        iters,
        budget_s,
        transport,
        machine,
    )


def run_order(order: ChainOrder, timeout: float | None = None) -> Record:
    """The record of a run on MPI ranks of this machine, started for it."""
    with TemporaryDirectory(prefix="drbench-chain-") as folder:
        path, answer = Path(folder, "order.json"), Path(folder, "record.json")
        path.write_text(order.text())
        environ = dict(os.environ) | dict.fromkeys(_ONE_THREAD, "1")
        run_ranks(order.ranks, ["serve-chain", str(path), str(answer)], timeout, environ)
        return Record.from_row(json.loads(answer.read_text()))


#: A core each.
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def records_of(choice: Choice, asked: Asked) -> list[Record]:
    """A simulated record of the choice, and of each contender."""
    found = []
    machine = choice.machine
    for name, each in [("chosen", choice.best), *((x.name, x) for x in choice.contenders)]:
        order = order_of(each, asked, machine, "uniform")
        found.append(
            Record(
                **(keys_of(order, "simulated") | {"case": name}),
                status="ok",
                best_s=each.time_s,
                median_s=each.time_s,
                samples_s=[each.time_s],
                gflops=each.bound.chain.flops / each.time_s / 1e9,
                pool_bytes=each.memory_bytes,
                **each.found.counters,
                **{f"phase_{phase}_s": each.found.phases[phase] for phase in PHASES},
            )
        )
    return found


def summary(choice: Choice, measured: Record | None = None) -> dict:
    """What was found, for JSON."""
    told = lambda each: {
        "name": each.name,
        "time_s": each.time_s,
        "apart_s": each.apart_s,
        "prefetch": each.prefetch,
        "memory_bytes": each.memory_bytes,
        "layouts": each.bound.layouts,
        "how": {name: str(way) for name, way in each.bound.ways.items()},
        "bytes": {name: count for name, count in each.found.counters.items() if count},
    }
    return {
        "chain": choice.best.bound.chain.name,
        "ranks": choice.best.bound.nprocs,
        "dtype": choice.best.bound.dtype,
        "flops": choice.best.bound.chain.flops,
        "best": told(choice.best),
        "contenders": [told(each) for each in choice.contenders],
        "refused": choice.refused,
        "simulated": choice.simulated,
        "measured": None if measured is None else measured.to_json_dict(),
    }
