"""Group steps on MPI: every shift and collective of a trace, prepared before the timed region.

Each process row and column has a communicator of its own, on which its members issue their steps in
the same order.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from drbench.plan.strips import Strips
from drbench.program.group_steps import (
    AllGather,
    Broadcast,
    Fragment,
    GroupStep,
    Reduce,
    ReduceScatter,
    Shift,
)
from drbench.program.kinds import table_of_steps

from .topology import mpi_type


@dataclass(slots=True)
class Call:
    """One group step, ready to be issued.

    Attributes
    ----------
    link : str
        Ring of the data, for a throttle: the group's name and the direction.
    hops : int
        Neighbours on the route, one after another.
    nbytes : int
        Bytes that cross a link of the ring.
    before, after : list of (ndarray, ndarray)
        Copies (to, from) that pack the sent array and unpack the received one.
    onto : list of (ndarray, ndarray)
        For a sum that is added to its fragment: parts of the array that this member sends, and the
        parts of the own tile that are added to them, times the step's beta.
    issue : callable or None
        ``issue(sent, received)`` starts the call and returns a list of requests. None in a group of
        one.
    sent, received : ndarray or None
        The contiguous arrays that are sent and received. A collective in place sends from
        ``received``, of which ``sent`` is then a part.
    """

    link: str
    hops: int
    nbytes: int
    before: list = field(default_factory=list)
    after: list = field(default_factory=list)
    onto: list = field(default_factory=list)
    issue: Callable[[np.ndarray | None, np.ndarray | None], list] | None = None
    sent: np.ndarray | None = None
    received: np.ndarray | None = None


def contiguous_message(array: np.ndarray) -> list:
    """An array without gaps for MPI: (memory, count, datatype)."""
    return [array, array.size, mpi_type(array.dtype)]


def prepare(
    step,
    arrays: tuple,
    view_of: Callable,
    comm: MPI.Comm | None,
    itemsize: int,
    message: Callable[[np.ndarray], list] = contiguous_message,
) -> Call:
    """The call of one group step.

    Parameters
    ----------
    step : Shift, Broadcast, AllGather, Reduce or ReduceScatter
    arrays : tuple
        Value of its first input, an ndarray or Strips; the buffer that stores it; the step's own
        buffer, flat; and its own value. None where it has none.
    view_of : callable
        ``view_of(block)``: the view of an own block.
    comm : MPI.Comm or None
        The communicator of its group; None for a group of one.
    itemsize : int
        Bytes of an element.
    message : callable
        ``message(array)``: (memory, count, datatype) of an array that is shifted, which has gaps if
        it is an own tile with padded rows.
    """
    ring, kind = step.ring(), type(step)
    source, memory, flat, value = arrays
    call = Call(ring.direction, ring.hops, ring.elements * itemsize)
    if kind is Shift:
        if comm is None or not ring.hops:
            call.before, comm = [(value, source)], None
        else:
            call.sent, call.received = _as_stored(source, step), _as_stored(value, step)
    elif kind is Broadcast:
        call.before = pack(value, step.fragment, view_of) if step.packs()[0] else []
        moved = _as_stored(value, step)
        call.sent, call.received = (moved, None) if step.own is not None else (None, moved)
    elif kind is AllGather and flat is None:
        comm = None  # alone, and read in place
    elif kind is AllGather:
        own = step.own
        at = sum(step.sizes[: step.group.position])
        part = flat[at : at + own.size].reshape(own.shape[:: -1 if step.transposed else 1])
        call.sent, call.received = part, flat
        call.before = pack(_as_stored(part, step), own, view_of)
    elif comm is None:
        call.after = unpack(step.own, source, view_of)
        call.onto = pack(source, step.own, view_of)
    else:
        in_strips = kind is ReduceScatter and type(source) is Strips
        call.sent = memory if in_strips else _contiguous(source, step)
        if step.own is not None:
            call.received = _landing(step.own, flat, view_of, call.sent)
            call.after = unpack(step.own, call.received, view_of) if flat is not None else []
            at = 0 if kind is Reduce else sum(step.sizes[: step.group.position])
            part = call.sent.reshape(-1)[at : at + step.own.size]
            call.onto = pack(part.reshape(step.own.shape), step.own, view_of)
    if step.beta == 0.0:
        call.onto = []
    call.issue = _ISSUERS[type(step)](step, comm, message) if comm is not None else None
    return call


def _shift(step, comm: MPI.Comm, message: Callable[[np.ndarray], list]) -> Callable:
    me, size = step.group.position, len(step.group)
    of, to, tag = (me - step.by) % size, (me + step.by) % size, step.by % size
    return lambda sent, received: [
        comm.Irecv(message(received), of, tag),
        comm.Isend(message(sent), to, tag),
    ]


def _broadcast(step, comm: MPI.Comm, message) -> Callable:
    root = step.root
    return lambda sent, received: [
        comm.Ibcast(contiguous_message(received if sent is None else sent), root)
    ]


def _allgather(step, comm: MPI.Comm, message) -> Callable:
    sizes = step.sizes
    places = [*accumulate(sizes[:-1], initial=0)]
    return lambda sent, received: [
        comm.Iallgatherv(MPI.IN_PLACE, [received, sizes, places, mpi_type(received.dtype)])
    ]


def _reduce(step, comm: MPI.Comm, message) -> Callable:
    root = step.root
    return lambda sent, received: [
        comm.Ireduce(
            contiguous_message(sent),
            None if received is None else contiguous_message(received),
            MPI.SUM,
            root,
        )
    ]


def _reduce_scatter(step, comm: MPI.Comm, message) -> Callable:
    sizes = step.sizes
    return lambda sent, received: [
        comm.Ireduce_scatter(contiguous_message(sent), contiguous_message(received), sizes, MPI.SUM)
    ]


#: Makes the function that starts a step on a communicator (:attr:`Call.issue`).
_ISSUERS = table_of_steps(
    "group steps on MPI",
    {
        Shift: _shift,
        Broadcast: _broadcast,
        AllGather: _allgather,
        Reduce: _reduce,
        ReduceScatter: _reduce_scatter,
    },
    GroupStep,
)


def _as_stored(array: np.ndarray, step) -> np.ndarray:
    """A value in the order of its elements in memory; and the inverse."""
    return array.T if step.transposed else array


def _contiguous(array: np.ndarray, step) -> np.ndarray:
    """A value in the order of its elements in memory, which must be contiguous."""
    array = _as_stored(array, step)
    if array.size and not array.flags.c_contiguous:
        raise ValueError(f"{step!r} needs a value without gaps; broadcast or gather a fragment")
    return array


def pack(target: np.ndarray, fragment: Fragment, view_of) -> list:
    """Copies of a fragment of the own tile into an array of its shape."""
    if not fragment.size:
        return []
    tile, block, copies, row = view_of(fragment.block), fragment.block, [], 0
    for r in _runs(fragment.rows):
        col = 0
        for c in _runs(fragment.cols):
            shape = r.count, r.width, c.count, c.width
            copies.append(
                (
                    _every(target[row:, col:], shape, r.width, c.width),
                    _every(
                        tile[r.start - block.row0 :, c.start - block.col0 :],
                        shape,
                        r.stride,
                        c.stride,
                    ),
                )
            )
            col += c.count * c.width
        row += r.count * r.width
    return copies


def unpack(fragment: Fragment, source: np.ndarray, view_of) -> list:
    """Copies of a contiguous array of a fragment's shape into the own tile."""
    return [(tile, part) for part, tile in pack(source, fragment, view_of)]


class _EvenRanges(NamedTuple):
    """Ranges of one width at one distance from each other."""

    start: int
    width: int
    stride: int
    count: int


def _runs(ranges) -> list[_EvenRanges]:
    """Ranges joined to runs, so that a regular selection is one copy.

    Examples
    --------
    >>> for ranges in _runs([(0, 2), (8, 10), (16, 18), (24, 25)]):
    ...     print(ranges)
    _EvenRanges(start=0, width=2, stride=8, count=3)
    _EvenRanges(start=24, width=1, stride=1, count=1)
    """
    runs: list[_EvenRanges] = []
    for start, stop in ranges:
        if runs and runs[-1].width == stop - start:
            last = runs[-1]
            stride = start - last.start if last.count == 1 else last.stride
            if start == last.start + last.count * stride:
                runs[-1] = last._replace(stride=stride, count=last.count + 1)
                continue
        runs.append(_EvenRanges(start, stop - start, stop - start, 1))
    return runs


def _every(array: np.ndarray, shape, row_stride: int, col_stride: int) -> np.ndarray:
    """The view of ``shape`` (runs of rows, rows, runs of columns, columns) into a matrix, with
    runs at these distances."""
    s0, s1 = array.strides
    return np.lib.stride_tricks.as_strided(
        array, shape, (row_stride * s0, s0, col_stride * s1, s1), subok=True
    )


def _landing(fragment: Fragment, flat: np.ndarray | None, view_of, sent: np.ndarray) -> np.ndarray:
    """The array that receives a sum: the step's buffer, or the own tile."""
    if not fragment.size:
        # no data is received; MPI needs memory that differs from the sent array
        return np.empty(1, sent.dtype)[:0].view(type(sent))
    return view_of(fragment.blocks()[0]) if flat is None else flat.reshape(fragment.shape)
