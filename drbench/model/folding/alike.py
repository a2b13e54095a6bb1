"""Ranks of a one-sided program that do the same at the same time: one of each kind is simulated.

Programs are *alike* if they have the same steps on values of the same shapes, and differ in whom
they deal with alone (:class:`Alike`). Ranks stay in step if, besides, they find the network alike.
So they are dealt into kinds, and links too, until nothing tells two of a kind apart (the coarsest
equitable partition, by colour refinement):

- the n-th links on the ways of all ranks of a kind are of one kind, step by step;
- every link of a kind is taken by as many ranks of each kind in each of their steps;
- what ranks of a kind add to in one of their steps is the memory of ranks of one kind, to each of
  which as many add.

Then, by induction over the events: as long as ranks of a kind have done the same, all links of a
kind carry as many transfers of each kind. Max-min fair rates are unique, so transfers of a kind are
equally fast, and end together. One rank of each kind and one link of each kind are left to
simulate; a transfer takes of its link what all of its kind on that link do.

First come, first served has no such rates: of transfers that are asked for at the same time one is
first, which ranks of a kind are not together. There, and where cores move data themselves, only
programs in which nobody moves anything over shared links are folded.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from drbench.program.steps import Accumulate, Get, Step
from drbench.program.trace import Trace

from ..costs import Cost, step_cost
from ..machine import Machine

#: Kinds of ranks, at most, as a part of the ranks: more would save nothing worth the search.
_WORTH = 1 / 2


class Alike(NamedTuple):
    """Whose programs are alike.

    Attributes
    ----------
    kinds : list
        Of each rank; ranks of one kind have programs that are alike.
    others : callable
        ``others(step, rank)`` -> for a step of that rank which moves something, the rank that each
        rank of its kind deals with in the same step, in an array by rank. It says nothing of other
        kinds.
    """

    kinds: Sequence[Hashable]
    others: Callable[[Step, int], Sequence[int]]


@dataclass(frozen=True)
class Folding:
    """The ranks that stand for all.

    Attributes
    ----------
    ranks : tuple of int
        They.
    counts : tuple of int
        How many each stands for, itself included.
    stand_in : dict of int to int
        Of each rank the one that stands for it.
    loads : dict of (int, int) to (tuple, tuple)
        Of each such rank's step that takes links: the kinds of links, by name, and the part of one
        that all its kind's transfers take of it together.
    """

    ranks: tuple[int, ...]
    counts: tuple[int, ...]
    stand_in: dict[int, int] = field(repr=False)
    loads: dict[tuple[int, int], tuple[tuple, tuple]] = field(repr=False)

    def cost(self, cost: Cost, rank: int, step: Step) -> Cost:
        """What a step costs, with the kinds of links in place of links."""
        found = self.loads.get((rank, step.index))
        return cost if found is None else cost._replace(links=found[0], shares=found[1])


class _Way(NamedTuple):
    """A step of a kind of program: which it is, what each of its ranks takes on the way, and which
    part of it, and whose memory each adds to."""

    step: int
    links: dict[int, tuple[tuple[Hashable, float], ...]]
    onto: list[int] | None


def fold(
    alike: Alike, traced: Callable[[int], Trace], machine: Machine
) -> tuple[Folding, list[Trace]] | None:
    """One rank of each kind, and their traces, which ``traced`` makes; None if that would not save
    much, or is not exact.

    Examples
    --------
    Four ranks read from each other in a ring, then two of one:

    >>> from drbench.model.gemm import Compute
    >>> from drbench.model.machine import Link
    >>> from drbench.program.steps import Block
    >>> from drbench.program.trace import trace
    >>> toy = Machine("toy", Compute(1.0), (Link("wire", 64.0),))
    >>> owners = [1, 2, 3, 0]
    >>> def program(rank):
    ...     yield Get(Block("A", owners[rank], 0, (0, 0), 0, 4, 0, 4, 0, 4))
    >>> traced = lambda rank: trace(program(rank), None, rank, fresh=False)
    >>> folding, traces = fold(Alike([0] * 4, lambda step, rank: owners), traced, toy)
    >>> folding.counts, folding.loads
    ((4,), {(0, 0): ((('kind', 0),), (1.0,))})
    >>> owners = [1, 2, 3, 1]
    >>> folding, traces = fold(Alike([0] * 4, lambda step, rank: owners), traced, toy)
    >>> folding.ranks, folding.counts, folding.loads[0, 0]
    ((0, 1), (2, 2), ((('kind', 0), ('kind', 1)), (2.0, 1.0)))
    """
    ranks = range(len(alike.kinds))
    most = len(ranks) * _WORTH
    kinds = _numbered(alike.kinds)
    if max(kinds) + 1 > most:
        return None
    ways: dict[int, list[_Way]] = {}  # by kind of program
    traces: dict[int, Trace] = {}
    for kind, members in _members(kinds).items():
        first = members[0]
        traces[first] = traced(first)
        found = _ways(traces[first], alike, members, machine)
        if found is None:
            return None
        ways[kind], telling = found
        kinds = [(kind, telling[rank]) if kinds[rank] == kind else kinds[rank] for rank in ranks]
    programs = [each if type(each) is int else each[0] for each in kinds]
    numbers = _numbered(kinds)
    links: dict = {}
    while True:
        if max(numbers) + 1 > most:
            return None
        carried, added = _taken(numbers, programs, ways)
        links = dict(zip(carried, _numbered(frozenset(uses.items()) for uses in carried.values())))
        telling = [
            (
                numbers[rank],
                frozenset(added[rank].items()) if rank in added else None,
                *(
                    (
                        tuple((links[name], share) for name, share in way.links[rank]),
                        way.onto and numbers[way.onto[rank]],
                    )
                    for way in ways[programs[rank]]
                ),
            )
            for rank in ranks
        ]
        again = _numbered(telling)
        if max(again) == max(numbers):
            break
        numbers = again
    members = _members(numbers)
    loads, left = {}, []
    for kind, some in members.items():
        rank = some[0]
        left.append(traces.get(rank) or traced(rank))
        for way in ways[programs[rank]]:
            taken: dict = {}
            for name, _ in way.links[rank]:
                taken["kind", links[name]] = sum(
                    count * share
                    for (who, step, share), count in carried[name].items()
                    if (who, step) == (kind, way.step)
                )
            if taken:
                loads[rank, way.step] = tuple(taken), tuple(taken.values())
    counts = tuple(map(len, members.values()))
    standing = tuple(some[0] for some in members.values())
    return Folding(standing, counts, {x: members[numbers[x]][0] for x in ranks}, loads), left


def _ways(
    trace: Trace, alike: Alike, members: list[int], machine: Machine
) -> tuple[list[_Way], dict[int, tuple]] | None:
    """The ways of all members' transfers, and what else tells members apart: links of other classes
    and lanes; None if steps are of another sort, or wait for each other at links that are not
    shared."""
    found, rank, streams = [], trace.rank, machine.copy_streams
    telling: dict[int, list] = {member: [] for member in members}
    itemsize = trace.problem.itemsize if trace.problem else 4
    for step in trace.steps:
        if step.signals or step.grouped:
            return None
        if not step.moved(rank):
            continue
        reads, owners = isinstance(step, Get), list(map(int, alike.others(step, rank)))
        on_links: dict[int, tuple] = {}
        of_class: dict[tuple, tuple] = {}
        for member in members:
            other = owners[member]
            ends = (other, member) if reads else (member, other)
            link, links = way = machine.route(*ends)
            lane = (other - member - 1) % streams if streams else None
            telling[member].append((link.name, (reads, link.lane, lane)))
            if link.shared == "initiator":
                on_links[member] = ()
                continue
            key = link.name, len(links)
            if key not in of_class:
                cost = step_cost(machine, step, rank, itemsize, lambda *_, way=way: way)
                of_class[key] = cost.shares or (1.0,) * len(cost.links)
            on_links[member] = tuple(zip(links + machine.memory_of(*ends), of_class[key]))
        if on_links[rank] and not _order_is_nothing(machine):
            return None
        onto = owners if type(step) is Accumulate else None
        found.append(_Way(step.index, on_links, onto))
    return found, {member: _in_lanes(each) for member, each in telling.items()}


def _order_is_nothing(machine: Machine) -> bool:
    """Whether the order of what happens at one time, which rounding decides, changes no time: links
    are shared, and no core waits for what was started before its product, or copies and adds."""
    cores = (min(link.core_bytes_per_s, link.core_add_bytes_per_s) for link in machine.links)
    fair = machine.arbitration == "fair"
    return fair and not machine.step_s and not machine.adds_on_core and min(cores) == inf


def _in_lanes(steps: list) -> tuple:
    """Classes of links, and lanes by the first step in each: their numbers do not matter."""
    known: dict = {}
    return tuple((name, known.setdefault(lane, len(known))) for name, lane in steps)


def _taken(
    numbers: list[int], programs: list[int], ways: dict[int, list[_Way]]
) -> tuple[dict[Hashable, Counter], dict[int, Counter]]:
    """Of each link (kind of rank, step, share) -> how many take it so, and of each rank whose
    memory is added to (kind of rank, step) -> how many do it."""
    carried: dict[Hashable, Counter] = {}
    added: dict[int, Counter] = {}
    for rank, (kind, program) in enumerate(zip(numbers, programs)):
        for way in ways[program]:
            for name, share in way.links[rank]:
                carried.setdefault(name, Counter())[kind, way.step, share] += 1
            if way.onto is not None:
                added.setdefault(way.onto[rank], Counter())[kind, way.step] += 1
    return carried, added


def _numbered(values: Iterable[Hashable]) -> list[int]:
    """Numbers that tell the values apart, in order of coming."""
    known: dict = {}
    return [known.setdefault(value, len(known)) for value in values]


def _members(numbers: Sequence[int]) -> dict[int, list[int]]:
    """Who has each number."""
    found: dict[int, list[int]] = {}
    for rank, number in enumerate(numbers):
        found.setdefault(number, []).append(rank)
    return found
