"""Matching of signals: the Await of each Push, the place of the values in memory, and whether the
ranks wait for each other in a circle. Pure.

Values sent with a signal are in a rank's *inbox*, memory that other ranks can access: a slot for
each Await, which its Push fills, and the values that this rank offers and others fetch. A slot is
written once a run and belongs to one value alone, so it needs no place in the schedule.

Each rank makes a list of :class:`End`; from the lists of all ranks :func:`match` and
:func:`check_progress` compute the same results on every rank.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from drbench.errors import CaseFailed
from drbench.program.signal_steps import Await, Offer, Signal
from drbench.program.steps import Step
from drbench.program.trace import Trace

#: Slots begin at multiples of this many bytes, unless the slot before ends elsewhere: neighbours
#: without a gap can be multiplied by one GEMM.
_ALIGNMENT = 64


class End(NamedTuple):
    """What other ranks need to know of a step: one end of a signal, or a step at which a rank
    waits.

    Attributes
    ----------
    step : int
        Its number.
    kind : str
        ``push``, ``offer``; ``meet`` (a Fence or a step of a group); ``use`` (a step that uses an
        awaited value).
    sends : bool
        Of a signal: the rank makes the value.
    peer : int
        Of a signal: the rank at the other end.
    key : hashable
        Of a signal; of ``meet`` the members; of ``use`` the ends that must have arrived, as
        (source, key).
    offset, nbytes : int
        The value in the inbox: the slot of an Await, or the value of an Offer.
    row_stride_bytes, span : int
        Of an Offer: bytes from one run of neighbouring elements to the next, and from the first
        byte of the value to the last.
    words : int or None
        Of a flagged Await: its words in the inbox.
    """

    step: int
    kind: str
    sends: bool = False
    peer: int = -1
    key: Any = None
    offset: int = 0
    nbytes: int = 0
    row_stride_bytes: int = 0
    span: int = 0
    words: int | None = None

    @property
    def what(self) -> str:
        """The step in words."""
        if self.kind in ("meet", "use"):
            return f"step {self.step}"
        names = {"push": ("Await", "Push"), "offer": ("Take", "Offer")}[self.kind]
        preposition = "to" if self.sends else "from"
        return f"step {self.step}, {names[self.sends]}({preposition} {self.peer}, {self.key!r}),"


@dataclass(frozen=True, slots=True)
class InboxPlan:
    """The layout of a rank's inbox.

    Attributes
    ----------
    offsets : dict of int to int
        First byte of the slot of each Await, and of each offered value, by the step that makes it.
    nbytes : int
        Of the whole inbox.
    words : dict of int to int
        First byte of the words of each flagged value, behind all slots.
    """

    offsets: dict
    nbytes: int
    words: dict = field(default_factory=dict)


def offered(steps: Iterable[Step]) -> set[int]:
    """The steps whose values are offered, and therefore stored in the inbox."""
    roots = (step.inputs[0].location()[0] for step in steps if isinstance(step, Offer))
    return {
        root.index for root in roots if not root.nonblocking
    }  # received values are in slots already


def plan_inbox(trace: Trace, widths: Sequence[int]) -> InboxPlan:
    """Lay out the inbox of a rank.

    Parameters
    ----------
    trace : Trace
    widths : sequence of int
        Bytes of an element of each step's value.

    Examples
    --------
    >>> from drbench.program.signal_steps import Await
    >>> from drbench.program.trace import trace
    >>> def program():
    ...     yield Await(1, "left", (2, 5))
    ...     yield Await(1, "right", (2, 3))
    >>> plan_inbox(trace(program(), None, 0, fresh=False), [4, 4])
    InboxPlan(offsets={0: 0, 1: 40}, nbytes=64, words={})
    """
    stored, offsets, at = offered(trace.steps), {}, 0
    for step in trace.steps:
        t = step.index
        if step.nonblocking or t in stored:
            rows, cols = step.shape
            at = -(-at // widths[t]) * widths[t]
            offsets[t] = at
            at += rows * cols * widths[t]
    words: dict[int, int] = {}
    for step in trace.steps:
        if step.nonblocking and step.flagged:
            at = words[step.index] = -(-at // 8) * 8
            at += 2 * step.shape[0] * step.shape[1] * widths[step.index]
    return InboxPlan(offsets, -(-at // _ALIGNMENT) * _ALIGNMENT, words)


def flags_bytes(count: int) -> int:
    """Bytes of flags and due times, before the slots, of ``count`` signals that a rank receives.

    Examples
    --------
    >>> flags_bytes(0), flags_bytes(1), flags_bytes(5)
    (0, 64, 128)
    """
    return -(-16 * count // _ALIGNMENT) * _ALIGNMENT


def inbox_bytes(trace: Trace, widths: Sequence[int]) -> int:
    """Shared memory of a rank's inbox, flags and slots; 0 for a trace without signals.

    Examples
    --------
    >>> from drbench.program.signal_steps import Await
    >>> from drbench.program.trace import trace
    >>> program = (step for step in [Await(1, "left", (2, 5))])
    >>> inbox_bytes(trace(program, None, 0, fresh=False), [4])
    128
    """
    received = sum(isinstance(step, Signal) and not step.sends for step in trace.steps)
    return flags_bytes(received) + plan_inbox(trace, widths).nbytes if trace.signals else 0


def ends_of(trace: Trace, widths: Sequence[int], inbox: InboxPlan | None = None) -> list[End]:
    """The ends of a rank's trace, in program order.

    Raises
    ------
    CaseFailed
        If a step sends to, or waits for, its own rank; if the same key is used twice; or if an
        offered value is not a part of a GEMM's result.
    """
    inbox = inbox or plan_inbox(trace, widths)
    ends, seen = [], set()
    for step in trace.steps:
        t = step.index
        if step.group is not None:
            members = tuple(step.group.members) if step.grouped else ()
            ends.append(End(t, "meet", key=(str(getattr(step.group, "name", "world")), members)))
            continue
        awaited = tuple(
            [(value.peer, value.key) for value in step.inputs if isinstance(value, Await)]
        )
        if awaited:
            ends.append(End(t, "use", key=awaited))
        if not isinstance(step, Signal):
            continue
        offset = row_stride_bytes = span = 0
        value = step.inputs[0] if step.sends else step
        if step.kind == "offer" and step.sends:
            root, row, col = value.location()
            if not root.may_be_offered:
                raise CaseFailed(
                    f"rank {trace.rank}, step {t}, {step!r}: only the result of a GEMM in its own "
                    "memory, or an awaited value, can be offered. Correct the program."
                )
            width = widths[root.index]
            row_stride_bytes = root.shape[not root.transposed] * width
            run, within = (col, row) if root.transposed else (row, col)
            offset = inbox.offsets[root.index] + run * row_stride_bytes + within * width
            runs, length = value.shape[:: -1 if root.transposed else 1]
            span = ((runs - 1) * row_stride_bytes + length * width) if runs * length else 0
        elif step.kind == "push" and not step.sends:
            offset = inbox.offsets[t]
        rows, cols = value.shape
        nbytes = rows * cols * widths[value.index]
        where = offset, nbytes, row_stride_bytes, span, inbox.words.get(t)
        end = End(t, step.kind, step.sends, step.peer, step.key, *where)
        name = end[1:5]
        if step.peer == trace.rank or name in seen:
            wrong = "is to itself" if step.peer == trace.rank else "is there twice"
            raise CaseFailed(
                f"rank {trace.rank}, {end.what} {wrong}; a key is used once between two ranks. "
                "Correct the program."
            )
        seen.add(name)
        ends.append(end)
    return ends


def pairs_of(traces: Sequence[Trace]) -> dict[tuple[int, int], tuple[int, int]]:
    """(rank, step) that sends -> (rank, step) that receives, of the traces of all ranks.

    Raises
    ------
    CaseFailed
        If a signal has only one end, or the ranks wait for each other in a circle.

    Examples
    --------
    >>> from drbench.program.signal_steps import Await, Push
    >>> from drbench.program.steps import Gemm, Scratch
    >>> from drbench.program.trace import trace
    >>> def program(rank):
    ...     if rank:
    ...         yield Await(0, "x", (4, 4))
    ...     else:
    ...         yield Push((yield Scratch((4, 4))), 1, "x")
    >>> pairs_of([trace(program(rank), None, rank, fresh=False) for rank in range(2)])
    {(0, 1): (1, 0)}
    """
    if not any(step.signals for trace in traces for step in trace.steps):
        return {}
    ends = []
    for trace in traces:
        widths = [1] * len(trace.steps)
        if trace.problem is not None:
            widths = trace.element_types(trace.problem.itemsizes)
        ends.append(ends_of(trace, widths))
    pairs = match(ends)
    check_progress(ends)
    return {
        (source, end.step): (target, other.step)
        for (source, target), both in pairs.items()
        for end, other in both
    }


def match(ends: Sequence[list[End]]) -> dict[tuple[int, int], list[tuple[End, End]]]:
    """(source, target) -> pairs of ends of its signals, the sender first; ``ends`` of every rank,
    in order.

    Raises
    ------
    CaseFailed
        If a signal has only one end, or the two differ in size.
    """
    receives = {
        (end.kind, end.peer, rank, end.key): end
        for rank, mine in enumerate(ends)
        for end in mine
        if end.kind in ("push", "offer") and not end.sends
    }
    pairs: dict[tuple[int, int], list[tuple[End, End]]] = {}
    for rank, mine in enumerate(ends):
        for end in mine:
            if not end.sends:
                continue
            other = receives.pop((end.kind, rank, end.peer, end.key), None)
            if other is None:
                raise CaseFailed(
                    f"rank {rank}, {end.what} is never received on rank {end.peer}. Correct the "
                    "program."
                )
            if other.nbytes != end.nbytes:
                raise CaseFailed(
                    f"rank {rank}, {end.what} has {end.nbytes} bytes; rank {end.peer} expects "
                    f"{other.nbytes}. Correct the program."
                )
            pairs.setdefault((rank, end.peer), []).append((end, other))
    for (_, source, rank, _), end in receives.items():
        raise CaseFailed(
            f"rank {rank}, {end.what} is never sent by rank {source}. Correct the program."
        )
    return pairs


def check_progress(ends: Sequence[list[End]]) -> None:
    """Refuse programs whose ranks wait for each other in a circle.

    Every wait of the scheduler is for an earlier step of the same rank, or for the sender of a
    signal. So no look-ahead can deadlock if all ranks finish when each runs its steps one by one,
    and the first step that uses the value of an Await blocks until it is sent.

    Raises
    ------
    CaseFailed
        With the circle.
    """
    at = [0] * len(ends)
    sent: set[tuple] = set()
    met: dict[tuple, int] = {}  # steps of a group and members that have arrived
    count: list[dict] = [{} for _ in ends]  # steps of each group that a rank has passed
    moving = True
    while moving:
        moving = False
        for rank, mine in enumerate(ends):
            while at[rank] < len(mine):
                end = mine[at[rank]]
                if end.kind == "meet":
                    use = count[rank].setdefault(end.key, [0, False])
                    name = (end.key, use[0])
                    if not use[1]:
                        met[name], use[1] = met.get(name, 0) + 1, True
                        moving = True
                    if met[name] < len(end.key[1] or _meeting(ends)):
                        break
                    use[0], use[1] = use[0] + 1, False
                elif end.sends:
                    sent.add((end.kind, rank, end.peer, end.key))
                elif _waits(end, rank, sent) is not None:
                    break
                at[rank] += 1
                moving = True
    stuck = {rank for rank, mine in enumerate(ends) if at[rank] < len(mine)}
    if not stuck:
        return
    path: list[int] = [min(stuck)]
    text: list[str] = []
    while True:
        rank = path[-1]
        end = ends[rank][at[rank]]
        source = _waits(end, rank, sent)
        if source is not None:
            text.append(f"rank {rank} at {end.what} waits for rank {source[0]} ({source[1]!r})")
            after = source[0]
        else:
            others = [r for r in end.key[1] or _meeting(ends) if r != rank]
            use = count[rank][end.key][0]
            after = next(r for r in others if count[r].get(end.key, [0, False]) <= [use, False])
            text.append(f"rank {rank} at {end.what} meets rank {after}")
        if after in path:
            circle = "; ".join(text[path.index(after) :])
            raise CaseFailed(f"the ranks wait for each other: {circle}. Correct the program.")
        if after not in stuck:  # it has ended, and never arrives
            raise CaseFailed(f"{text[-1]}, which never arrives. Correct the program.")
        path.append(after)


def _meeting(ends: Sequence[list[End]]) -> range:
    """The members of a Fence: all ranks."""
    return range(len(ends))


def _waits(end: End, rank: int, sent: set[tuple]) -> tuple[int, Hashable] | None:
    """The (rank, key) of a signal that must still be sent before a step can run; None if none."""
    if end.kind == "use":
        waited = [("push", source, rank, key) for source, key in end.key]
    elif end.kind == "offer" and not end.sends:
        waited = [("offer", end.peer, rank, end.key)]
    else:  # an Await blocks only the users of its value
        return None
    return next(((signal[1], signal[3]) for signal in waited if signal not in sent), None)
