"""Chains as commands ask for them: from a preset or widths, on a machine, told as rows and text."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from algorithms.chains.choose import Choice, Solution, choose
from algorithms.chains.costs import Costs, chain_partition
from algorithms.chains.description import Chain, Matmul
from drbench.common import parse_transport
from drbench.errors import UsageError
from drbench.measure.record import Record
from drbench.model.machine import Machine
from launch.cases.chains import Asked, ChainOrder, keys_of, order_of
from launch.host.mpi import run_ranks
from partitions import LayoutError, parse_placements, to_placements

from .intervals import Interval, combined, doubted, otherwise, residuals_of


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


def interval(found: Solution, machine: Machine, transport: str = "auto") -> Interval | None:
    """The interval of a chain's predicted time, made as those of single products are
    (:mod:`launch.models.intervals`).

    Parameters
    ----------
    found : Solution
    machine : Machine
        As its file says, before :func:`seen`.
    transport : str
    """
    ends, others = doubted(machine), otherwise(machine)
    times = found.times_on([seen(each, found.costs.dtype, transport) for each in (*ends, *others)])
    changed = times[: len(ends)], times[len(ends) :]
    return combined(residuals_of(machine, transport), found.time_s, changed)


@dataclass
class Answer:
    """What is said of a chain: the choice, and the interval of each contender by its name, of the
    choice as ``chosen``; None where nothing is known of how sure it is."""

    asked: Asked
    choice: Choice
    intervals: dict[str, Interval | None]

    @property
    def rows(self) -> list[tuple[str, Solution, Interval | None]]:
        """(name, chain in layouts, interval) of the choice, then of what people use."""
        known = [("chosen", self.choice.best)]
        known += [(each.name, each) for each in self.choice.contenders]
        return [(name, each, self.intervals[name]) for name, each in known]

    @property
    def decided(self) -> bool:
        """Whether no other chain is faster by more than the interval of the choice, by the
        bounds."""
        found = self.intervals["chosen"]
        return self.choice.gap <= (0.0 if found is None else 1 - found.low)

    @property
    def within(self) -> list[str]:
        """Contenders that may be as fast as the choice, for all that is known: their times lie in
        its interval."""
        found = self.intervals["chosen"]
        if found is None:
            return []
        most_s = self.choice.best.time_s * found.high
        return [name for name, each, _ in self.rows[1:] if each.time_s <= most_s]


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
    found = choose(asked.chain(), costs, **how)
    known = {each.name: each for each in found.contenders} | {"chosen": found.best}
    return Answer(
        asked, found, {name: interval(each, machine, transport) for name, each in known.items()}
    )


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


def choice_rows(found: Answer, measured: Record | None = None) -> list:
    """:class:`plots.figures.choice.ChoiceRow` of the figure ``choice``: the time of each
    contender with its interval, and the layouts of the chosen one, an operation each."""
    from plots.figures.choice import ChoiceRow

    best = found.choice.best
    ranks = best.costs.nprocs
    title = f"{best.chain.name} on {ranks} ranks of {found.choice.costs.machine.name}"
    run_s = measured.median_s if measured is not None and measured.status == "ok" else None
    rows = []
    for name, each, known in found.rows:
        low, high = known or (None, None)
        rows.append(
            ChoiceRow(
                title,
                ranks,
                "time",
                name,
                each.time_s,
                low and each.time_s * low,
                high and each.time_s * high,
                run_s if name == "chosen" else None,
                "; ".join(f"{var} {layout}" for var, layout in each.layouts.items()),
                moved_bytes=sum(each.counters().values()),
            )
        )
    for each, (told, _, how) in zip(best.chain.operations, operation_rows(best)):
        layouts = "; ".join(f"{name} {best.layout(name)}" for name in (*each.takes, each.c))
        rows.append(
            ChoiceRow(
                title,
                ranks,
                "step",
                told,
                layouts=layouts,
                how=how,
                moved_bytes=sum(best.counters(each.c).values()),
            )
        )
    return rows


def placements(solution: Solution) -> dict[str, tuple[tuple[int, ...], str]]:
    """The mesh and DTensor placements of every matrix that is given or stays, by name: the same
    elements on the same ranks.

    Raises
    ------
    UsageError
        If no placements say what a layout says.
    """
    found = {}
    ranks = solution.costs.nprocs
    for name, matrix in solution.chain.matrices.items():
        whole = chain_partition(solution.layout(name), matrix.shape, ranks)
        try:
            text = to_placements(whole)
        except LayoutError as error:
            raise UsageError(f"{name} as {whole.text}: {error}") from None
        spec = parse_placements(text)
        mesh = spec.mesh
        if not mesh:
            mesh = (ranks,)
        found[name] = mesh, text.partition("@")[0]
    return found


_TORCH = {"R": "Replicate()", "P": "Partial()"}


def placements_text(solution: Solution, device: str = "cuda") -> str:
    """Python to paste: meshes, and the placements of every matrix."""
    known = placements(solution)
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


def records_of(found: Answer) -> list[Record]:
    """A simulated record of the choice, and of each contender, with their intervals."""
    made = []
    for name, each, interval in found.rows:
        order = order_of(each, found.asked, found.choice.costs.machine.name, "uniform")
        low, high = interval or (None, None)
        made.append(
            Record(
                **(keys_of(order, "simulated") | {"case": name}),
                arbitration=found.choice.costs.machine.arbitration,
                status="ok",
                best_s=each.time_s,
                median_s=each.time_s,
                median_low_s=low and each.time_s * low,
                median_high_s=high and each.time_s * high,
                samples_s=[each.time_s],
                gflops=each.chain.flops / each.time_s / 1e9,
                pool_bytes=each.memory_bytes,
                **each.counters(),
                **{f"phase_{phase}_s": seconds for phase, seconds in each.phases.items()},
            )
        )
    return made


def summary(found: Answer, measured: Record | None = None) -> dict:
    """What was found, for JSON."""
    told = lambda each, interval: {
        "name": each.name,
        "time_s": each.time_s,
        "low_s": interval and each.time_s * interval.low,
        "high_s": interval and each.time_s * interval.high,
        "memory_bytes": each.memory_bytes,
        "layouts": each.layouts,
        "how": {one.c: each.describe(one) for one in each.chain.products},
        "bytes": {name: count for name, count in each.counters().items() if count},
    }
    choice, chosen = found.choice, found.choice.best
    best, *others = (told(each, interval) for _, each, interval in found.rows)
    return {
        "chain": chosen.chain.name,
        "ranks": chosen.costs.nprocs,
        "dtype": chosen.costs.dtype,
        "flops": chosen.chain.flops,
        "best": best,
        "contenders": others,
        "within_interval": found.within,
        "refused": choice.refused,
        "bound_s": choice.least_s,
        "gap": choice.gap,
        "decided": found.decided,
        "bounded": len(choice.costs.programs),
        "simulated": choice.simulated,
        "finished": choice.finished,
        "measured": None if measured is None else measured.to_json_dict(),
    }
