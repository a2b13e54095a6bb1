"""Programs as GOAL, the language of LogGOPSim and ATLAHS: what each rank computes, sends and
receives, and what waits for what (Hoefler, Siebert and Lumsdaine, LogGOPSim, 2010).

A Get is a receive here and a send of the owner, who waits for nothing but the Fence before it; a
Put or an Accumulate is a send here and a receive there, which the next Fence of that rank waits
for. A Fence is a message to rank 0 and one back.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from drbench.errors import UnsupportedError
from drbench.program.steps import Step
from drbench.program.trace import Trace

from .loads import moved_by


class Op(NamedTuple):
    """One line of a rank: ``calc`` (nanoseconds), ``send`` or ``recv`` (bytes, of or to whom, tag),
    and the labels of those of the same rank that have to be over first."""

    kind: str
    size: int
    peer: int = -1
    tag: int = -1
    after: tuple[int, ...] = ()


def goal_ops(traces: Sequence[Trace], nanoseconds: Callable[[int, Step], int]) -> list[list[Op]]:
    """The operations of every rank, their labels being their places.

    Parameters
    ----------
    traces : sequence of Trace
        Of all ranks.
    nanoseconds : callable
        ``nanoseconds(rank, step)``: what a step that moves nothing takes.

    Raises
    ------
    UnsupportedError
        If a program has collectives or signals.

    Examples
    --------
    >>> from algorithms import get_algorithm
    >>> from drbench.program.problem import Problem
    >>> problem = Problem(8, 8, 8, 2, a="column", b="column", c="column")
    >>> traces = [get_algorithm("universal").trace(problem, rank) for rank in range(2)]
    >>> ops = goal_ops(traces, lambda rank, step: 10 * step.computes)
    >>> [op.kind for op in ops[0]].count("send"), [op.kind for op in ops[0]].count("recv")
    (1, 1)
    """
    if any(step.grouped or step.signals for trace in traces for step in trace.steps):
        raise UnsupportedError(
            "GOAL and Chakra traces are written of one-sided programs only (our implementation), "
            "and this one has collectives or signals. Use --algorithm universal without signals."
        )
    widths = [trace.element_types(trace.problem.itemsizes) for trace in traces]
    made: list[list[Op]] = [[] for _ in traces]
    fenced: list[int | None] = [None] * len(traces)
    ends: list[dict[int, int]] = [{} for _ in traces]  # step -> label
    at, tag = [0] * len(traces), 0

    def add(
        rank: int, kind: str, size: int, peer: int = -1, of: int = -1, after: Iterable[int] = ()
    ) -> int:
        last = fenced[rank]
        waits = sorted({*after, *([] if last is None else [last])})
        made[rank].append(Op(kind, size, peer, of, tuple(waits)))
        return len(made[rank]) - 1

    while True:
        for rank, trace in enumerate(traces):  # up to its next Fence
            while at[rank] < len(trace.steps) and trace.steps[at[rank]].does != "wait":
                step = trace.steps[at[rank]]
                at[rank] += 1
                after = [ends[rank][value.index] for value in step.inputs]
                moved = list(moved_by(step, rank, widths[rank][step.index]))
                if not moved:
                    label = add(rank, "calc", nanoseconds(rank, step), after=after)
                for each in moved:
                    mine, other = (
                        ("recv", each.source) if each.target == rank else ("send", each.target)
                    )
                    label = add(rank, mine, each.nbytes, other, tag, after)
                    theirs = "send" if mine == "recv" else "recv"
                    add(other, theirs, each.nbytes, rank, tag)
                    tag += 1
                ends[rank][step.index] = label
        if all(at[rank] >= len(trace.steps) for rank, trace in enumerate(traces)):
            return made
        tag = _fence(traces, made, fenced, ends, at, add, tag)


def _fence(
    traces: Sequence[Trace],
    made: list[list[Op]],
    fenced: list,
    ends: list[dict[int, int]],
    at: list[int],
    add: Callable[..., int],
    tag: int,
) -> int:
    """Everyone's Fence: it waits for all before it, tells rank 0, and is told."""
    came = []
    for rank in range(1, len(traces)):
        add(rank, "send", 1, 0, tag, range(len(made[rank])))
        came.append(add(0, "recv", 1, rank, tag))
        tag += 1
    over = add(0, "calc", 0, after=range(len(made[0])))
    for rank in range(1, len(traces)):
        add(0, "send", 1, rank, tag, [over])
        fenced[rank] = add(rank, "recv", 1, 0, tag, range(len(made[rank])))
        tag += 1
    fenced[0] = over
    for rank, trace in enumerate(traces):
        ends[rank][trace.steps[at[rank]].index] = fenced[rank]
        at[rank] += 1
    return tag


def write_goal(ops: Sequence[Sequence[Op]]) -> str:
    """The text.

    Examples
    --------
    >>> print(write_goal([[Op("send", 8, 1, 0)], [Op("recv", 8, 0, 0), Op("calc", 5, after=(0,))]]))
    num_ranks 2
    rank 0 {
    l0: send 8b to 1 tag 0
    }
    rank 1 {
    l0: recv 8b from 0 tag 0
    l1: calc 5
    l1 requires l0
    }
    """
    lines = [f"num_ranks {len(ops)}"]
    for rank, its in enumerate(ops):
        lines.append(f"rank {rank} {{")
        for label, op in enumerate(its):
            way = {"send": "to", "recv": "from"}.get(op.kind)
            what = f"{op.size}b {way} {op.peer} tag {op.tag}" if way else str(op.size)
            lines.append(f"l{label}: {op.kind} {what}")
            lines += [f"l{label} requires l{before}" for before in op.after]
        lines.append("}")
    return "\n".join(lines)


_OP = re.compile(r"l(\d+): (?:(calc) (\d+)|(send|recv) (\d+)b (?:to|from) (\d+) tag (\d+))")


def read_goal(text: str) -> list[list[Op]]:
    """What :func:`write_goal` wrote."""
    ranks: list[list[Op]] = []
    for line in text.splitlines()[1:]:
        found, wait = _OP.fullmatch(line), re.fullmatch(r"l(\d+) requires l(\d+)", line)
        if line.startswith("rank "):
            ranks.append([])
        elif found:
            _, calc, took, kind, size, peer, tag = found.groups()
            op = Op(calc, int(took)) if calc else Op(kind, int(size), int(peer), int(tag))
            ranks[-1].append(op)
        elif wait:
            at, before = map(int, wait.groups())
            ranks[-1][at] = ranks[-1][at]._replace(after=(*ranks[-1][at].after, before))
    return ranks
