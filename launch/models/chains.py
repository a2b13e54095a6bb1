"""Chains as commands ask for them: from a preset or widths, on a machine, told as rows and text."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from algorithms.chains.choose import Choice, Solution, choose
from algorithms.chains.costs import Costs, chain_partition
from algorithms.chains.description import Chain, Matmul
from drbench.common import parse_transport
from drbench.errors import UsageError
from drbench.measure.record import Record
from drbench.model.machine import Machine
from launch.cases.chains import Asked, ChainOrder, keys_of, order_of
from launch.host.mpi import run_ranks
from partitions import LayoutError, to_placements

from .intervals import alternatives, combined, residuals_of


def seen(machine: Machine, dtype: str, transport: str) -> Machine:
    """A machine as a chain sees it, with its element type and through its transport.

    Raises
    ------
    UsageError
        If the machine has no model of the transport.
    UnsupportedError
        If it has no peak for the element type.
    """
    return machine.for_dtype(dtype).for_transport(parse_transport(transport))


class Row(NamedTuple):
    """A chain in layouts by its name, the choice as ``chosen``, and the ends of the interval of its
    time; None where nothing is known of how sure it is."""

    name: str
    found: Solution
    low_s: float | None
    high_s: float | None


@dataclass
class Answer:
    """What is said of a chain: the choice, and a row of it, then of each that people use."""

    asked: Asked
    choice: Choice
    rows: list[Row]

    @property
    def decided(self) -> bool:
        """Whether no other chain is faster by more than the interval of the choice, by the
        bounds."""
        first = self.rows[0]
        low_s = first.found.time_s if first.low_s is None else first.low_s
        return self.choice.gap <= 1 - low_s / first.found.time_s

    @property
    def within(self) -> list[str]:
        """Contenders that may be as fast as the choice, for all that is known: their times lie in
        its interval."""
        first, *others = self.rows
        most_s = first.high_s or 0.0
        return [each.name for each in others if each.found.time_s <= most_s]


def answer(
    asked: Asked,
    machine: Machine,
    ranks: int,
    dtype: str = "float32",
    transport: str = "auto",
    layouts: Sequence[str] | None = None,
    layers: int = 1,
    **how,
) -> Answer:
    """The layouts of a chain, with what people use and the intervals of all.

    Parameters
    ----------
    machine : Machine
        As its file says.
    layouts, layers
        As of :class:`algorithms.chains.costs.Costs`.
    **how
        What else :func:`algorithms.chains.choose.choose` takes.
    """
    costs = Costs(seen(machine, dtype, transport), ranks, dtype, layouts, layers)
    choice, rows = choose(asked.chain(), costs, **how), []
    residuals = residuals_of(machine, transport)
    others = [[seen(each, dtype, transport) for each in group] for group in alternatives(machine)]
    known = {"chosen": choice.best} | {each.name: each for each in choice.contenders}
    for name, found in known.items():
        # made as those of single products are
        ends = combined(residuals, found.time_s, map(found.times_on, others)) or (None, None)
        rows.append(Row(name, found, *(end and found.time_s * end for end in ends)))
    return Answer(asked, choice, rows)


def fixed_of(chain: Chain, given: Sequence[str]) -> dict[str, str]:
    """``NAME=LAYOUT`` of matrices as layouts of variables.

    Raises
    ------
    UsageError
        If there is no such matrix, or two that are laid out alike are to be laid out differently.
    """
    found: dict[str, str] = {}
    first: dict[str, str] = {}  # variable -> the matrix that says how it is laid out
    for text in given:
        name, _, layout = text.partition("=")
        if name not in chain.matrices or not layout:
            raise UsageError(
                f"--fix {text} names no matrix of the chain; there are "
                f"{', '.join(chain.matrices)}. Use NAME=LAYOUT."
            )
        variable = chain.variable(name)
        other = first.setdefault(variable, name)
        if found.setdefault(variable, layout) != layout:
            raise UsageError(
                f"--fix {text}: {name} is laid out as {other}, which is {found[variable]}. Leave "
                "one out."
            )
    return found


def operation_rows(found: Solution) -> list[tuple[str, str, str]]:
    """(operation, layouts of what it takes and makes, how) of a chain in layouts."""
    rows = []
    for each in found.chain.operations:
        taken = ", ".join(f"{name} {found.layout(name)}" for name in each.takes)
        how = found.describe(each) if isinstance(each, Matmul) else "own tiles"
        rows.append((str(each), f"{taken} → {found.layout(each.c)}", how))
    return rows


_TORCH = {"R": "Replicate()", "P": "Partial()"}


def placements_text(solution: Solution) -> str:
    """Python to paste: meshes, and the DTensor placements of every matrix that is given or stays:
    the same elements on the same ranks.

    Raises
    ------
    UsageError
        If no placements say what a layout says.
    """
    ranks, meshes, lines = solution.costs.nprocs, {}, []
    for name, matrix in solution.chain.matrices.items():
        whole = chain_partition(solution.layout(name), matrix.shape, ranks)
        try:
            words, _, mesh = to_placements(whole).partition("@")
        except LayoutError as error:
            raise UsageError(f"{name} as {whole.text}: {error}") from None
        mesh = mesh or str(ranks)
        meshes[f"mesh_{mesh}"] = f"({mesh.replace('x', ', ')}{',' * ('x' not in mesh)})"
        each = re.split(r",(?![^(]*\))", words)  # not at the comma of _S(0,2)
        described = ", ".join(_TORCH.get(word, word.replace("S(", "Shard(")) for word in each)
        lines.append(f'    "{name}": (mesh_{mesh}, [{described}]),')
    return "\n".join(
        [
            "from torch.distributed.device_mesh import init_device_mesh",
            "from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor",
            "",
            *(f'{name} = init_device_mesh("cuda", {shape})' for name, shape in meshes.items()),
            "placements = {",
            *lines,
            "}",
        ]
    )


def run_order(order: ChainOrder) -> Record:
    """The record of a run on MPI ranks of this machine, started for it."""
    with TemporaryDirectory(prefix="drbench-chain-") as folder:
        path, answer = Path(folder, "order.json"), Path(folder, "record.json")
        path.write_text(order.text())
        environ = dict(os.environ) | dict.fromkeys(_ONE_THREAD, "1")
        run_ranks(order.ranks, ["serve-chain", str(path), str(answer)], environ=environ)
        return Record.from_row(json.loads(answer.read_text()))


#: A core each.
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def records_of(answer: Answer) -> list[Record]:
    """A simulated record of the choice, and of each contender, with their intervals."""
    machine = answer.choice.costs.machine
    return [
        Record(
            **keys_of(order_of(found, answer.asked, machine.name, "uniform"), "simulated")
            | {"case": name},
            arbitration=machine.arbitration,
            status="ok",
            best_s=found.time_s,
            median_s=found.time_s,
            median_low_s=low_s,
            median_high_s=high_s,
            samples_s=[found.time_s],
            gflops=found.chain.flops / found.time_s / 1e9,
            pool_bytes=found.memory_bytes,
            **found.counters,
            **{f"phase_{phase}_s": seconds for phase, seconds in found.phases.items()},
        )
        for name, found, low_s, high_s in answer.rows
    ]


def summary(answer: Answer, measured: Record | None = None) -> dict:
    """What was found, for JSON."""
    choice, chosen = answer.choice, answer.choice.best
    best, *others = (
        {
            "name": found.name,
            "time_s": found.time_s,
            "low_s": low_s,
            "high_s": high_s,
            "memory_bytes": found.memory_bytes,
            "layouts": found.layouts,
            "how": {one.c: found.describe(one) for one in found.chain.multiplications},
            "bytes": {name: count for name, count in found.counters.items() if count},
        }
        for _, found, low_s, high_s in answer.rows
    )
    return {
        "chain": chosen.chain.name,
        "ranks": chosen.costs.nprocs,
        "dtype": chosen.costs.dtype,
        "flops": chosen.chain.flops,
        "best": best,
        "contenders": others,
        "within_interval": answer.within,
        "refused": choice.refused,
        "bound_s": choice.least_s,
        "gap": choice.gap,
        "decided": answer.decided,
        "bounded": len(choice.costs.programs),
        "simulated": choice.simulated,
        "finished": choice.finished,
        "measured": None if measured is None else measured.to_json_dict(),
    }
