"""Chains for the commands: on a machine, as rows and text."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from drbench.algorithms.chains.choose import EFFORT_S, Choice, Solution, choose
from drbench.algorithms.chains.costs import ONE_LAYER, Costs, Training
from drbench.algorithms.chains.description import Chain, Matmul
from drbench.algorithms.chains.mesh import Mesh, meshes
from drbench.algorithms.chains.programs import EVERYTHING
from drbench.errors import UsageError
from drbench.launch.cases.chains import Asked, ChainOrder, keys_of, order_of
from drbench.launch.host.kernels import ONE_THREAD
from drbench.launch.host.mpi import run_ranks
from drbench.measure.record import Record
from drbench.model.machine import Machine
from drbench.transport import parse_transport

from .intervals import alternatives, combined, residuals_of


def seen(machine: Machine, dtype: str, transport: str) -> Machine:
    """The machine as a chain uses it, with its element type and its transport.

    Raises
    ------
    UsageError
        If the machine has no model of the transport.
    UnsupportedError
        If it has no peak for the element type.
    """
    return machine.for_dtype(dtype).for_transport(parse_transport(transport))


class Row(NamedTuple):
    """A chain with layouts: its name (``chosen`` for the choice) and the interval of its time; None
    if the interval is unknown."""

    name: str
    found: Solution
    low_s: float | None
    high_s: float | None


@dataclass
class Answer:
    """The answer for a chain: the choice, and rows for it and for each common scheme."""

    asked: Asked
    choice: Choice
    rows: list[Row]

    @property
    def decided(self) -> bool:
        """Whether no other chain is faster by more than the interval of the choice, by the
        bounds."""
        first = self.rows[0]
        low_s = first.low_s or first.found.time_s
        return self.choice.gap <= 1 - low_s / first.found.time_s

    def row(self, name: str) -> Row:
        """The row of a name, ``x`` for ``×``.

        Raises
        ------
        UsageError
            If there is none.
        """
        plain = lambda text: text.lower().replace("×", "x").replace(" ", "")
        for row in self.rows:
            if plain(row.name) == plain(name):
                return row
        raise UsageError(
            f"--placements {name!r}: there are {', '.join(row.name for row in self.rows)}."
        )

    @property
    def within(self) -> list[str]:
        """Contenders that may be as fast as the choice: their times are in its interval."""
        first, *others = self.rows
        most_s = first.high_s or 0.0
        return [each.name for each in others if each.found.time_s <= most_s]


def answer(
    asked: Asked,
    machine: Machine,
    ranks: int | Mesh,
    dtype: str = "float32",
    transport: str = "auto",
    training: Training = ONE_LAYER,
    fix: Sequence[str] = (),
    programs: Collection[str] = EVERYTHING,
    limit: float | None = None,
    effort_s: float = EFFORT_S,
    tell: Callable[[str], None] = lambda line: None,
) -> Answer:
    """Choose the layouts of a chain, and compare them with common schemes, with intervals.

    Parameters
    ----------
    machine : Machine
        As in its file.
    ranks : int or Mesh
        A number of ranks, whose meshes are all tried; or a mesh.
    fix : sequence of str
        ``NAME=LAYOUT`` of matrices.
    training, programs
        As of :class:`drbench.algorithms.chains.costs.Costs`.
    limit, effort_s, tell
        As of :func:`drbench.algorithms.chains.choose.choose`.
    """
    chain, of = asked.chain(), seen(machine, dtype, transport)
    tried = [ranks] if isinstance(ranks, Mesh) else meshes(ranks, of.node_ranks or ranks, of.torus)
    costs = [Costs(of, mesh, dtype, training, programs) for mesh in tried]
    fixed = fixed_of(chain, fix)
    choice = choose(chain, costs, fixed=fixed, limit=limit, effort_s=effort_s, tell=tell)
    residuals, rows = residuals_of(machine, transport), []
    others = [[seen(each, dtype, transport) for each in group] for group in alternatives(machine)]
    known = {"chosen": choice.best} | {each.name: each for each in choice.contenders}
    for name, found in known.items():
        # computed like those of single multiplications
        ends = combined(residuals, found.time_s, map(found.times_on, others)) or (None, None)
        rows.append(Row(name, found, *(end and found.time_s * end for end in ends)))
    return Answer(asked, choice, rows)


def fixed_of(chain: Chain, given: Sequence[str]) -> dict[str, str]:
    """The layouts of variables from ``NAME=LAYOUT`` of matrices.

    Raises
    ------
    UsageError
        If a matrix is unknown, or two that share a layout get different ones.
    """
    found: dict[str, str] = {}
    first: dict[str, str] = {}  # variable -> the matrix that gives its layout
    for text in given:
        name, _, layout = text.partition("=")
        if name not in chain.matrices or not layout:
            raise UsageError(
                f"--fix {text} names no matrix of the chain, which has "
                f"{', '.join(chain.matrices)}. Use NAME=LAYOUT."
            )
        variable = chain.variable(name)
        other = first.setdefault(variable, name)
        if found.setdefault(variable, layout) != layout:
            raise UsageError(
                f"--fix {text}: {name} shares the layout of {other}, {found[variable]}. Leave "
                "one out."
            )
    return found


def operation_rows(found: Solution) -> list[tuple[str, str, str]]:
    """(operation, layouts of its operands and result, algorithm) of a chain with layouts."""
    rows = []
    for each in found.chain.operations:
        taken = ", ".join(f"{name} {layout_text(found, name)}" for name in each.takes)
        how = found.describe(each) if isinstance(each, Matmul) else "own tiles"
        rows.append((str(each), f"{taken} → {layout_text(found, each.c)}", how))
    return rows


def layout_text(found: Solution, name: str) -> str:
    """The layout of a matrix in short: a word if all dimensions have one placement."""
    layout = found.layout(name)
    words = {("S(0)",): "row", ("S(1)",): "column", ("R",): "R"}
    return words.get(tuple(dict.fromkeys(layout))) or ",".join(layout)


def run_order(order: ChainOrder) -> Record:
    """Start MPI ranks on this machine for an order, and return its record."""
    with TemporaryDirectory(prefix="drbench-chain-") as folder:
        path, answer = Path(folder, "order.json"), Path(folder, "record.json")
        path.write_text(order.text(), "utf-8")
        environ = os.environ | ONE_THREAD
        run_ranks(order.ranks, ["serve-chain", str(path), str(answer)], environ=environ)
        return Record.from_row(json.loads(answer.read_text("utf-8")))


def records_of(answer: Answer) -> list[Record]:
    """The simulated records of the choice and of each contender, with intervals."""
    machine = answer.choice.best.costs.machine
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
        )
        for name, found, low_s, high_s in answer.rows
    ]


def summary(answer: Answer, measured: Record | None = None) -> dict:
    """The results as a dict for JSON."""
    choice, chosen = answer.choice, answer.choice.best
    best, *others = (
        {
            "name": found.name,
            "time_s": found.time_s,
            "low_s": low_s,
            "high_s": high_s,
            "mesh": str(found.mesh),
            "memory_bytes": found.memory_bytes,
            "memory": found.memory,
            "layouts": {x: found.mesh.text(layout) for x, layout in found.layouts.items()},
            "how": {one.c: found.describe(one) for one in found.chain.multiplications},
            "bytes": {name: count for name, count in found.counters.items() if count},
        }
        for _, found, low_s, high_s in answer.rows
    )
    return {
        "chain": chosen.chain.name,
        "ranks": chosen.mesh.ranks,
        "dtype": chosen.costs.dtype,
        "flops": chosen.chain.flops,
        "training": chosen.costs.training._asdict(),
        "best": best,
        "contenders": others,
        "within_interval": answer.within,
        "refused": choice.refused,
        "bound_s": choice.least_s,
        "gap": choice.gap,
        "decided": answer.decided,
        "bounded": choice.counts[0],
        "simulated": choice.counts[1],
        "finished": choice.finished,
        "measured": measured and measured.to_json_dict(),
    }
