"""Group steps on MPI: every shift and collective of a trace, prepared before the clock runs.

Each process row and column has a communicator of its own, on which its members issue their steps in
the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from drbench.program.group_steps import AllGather, Broadcast, Piece, Reduce, ReduceScatter, Shift

from .pieces import Pieces
from .topology import mpi_type

__all__ = ["Call", "laid_out", "prepare", "received_value"]


@dataclass(slots=True)
class Call:
    """One group step, ready to be issued.

    Attributes
    ----------
    link : str
        Ring the data travels on, for a throttle: the group's name and the direction.
    hops : int
        Neighbours it passes, one after another.
    nbytes : int
        Bytes that cross a link of the ring.
    before, after : list of (ndarray, ndarray)
        Copies (to, from) that pack what is sent and unpack what has arrived.
    issue : callable or None
        ``issue(sent, received)`` starts it; a list of requests. None if there is nobody to talk to.
    sent, received : ndarray or None
        What leaves, and where what comes arrives, without gaps. A collective in place sends from
        ``received``, in which ``sent`` then lies.
    """

    link: str
    hops: int
    nbytes: int
    before: list = field(default_factory=list)
    after: list = field(default_factory=list)
    issue: Callable[[np.ndarray | None, np.ndarray | None], list] | None = None
    sent: np.ndarray | None = None
    received: np.ndarray | None = None


def laid_out(flat: np.ndarray, shape: tuple[int, int], widths: list[int] | None):
    """A buffer as the value it holds: one array, or arrays side by side."""
    if widths is None:
        return flat.reshape(shape)
    arrays, at = [], 0
    for width in widths:
        arrays.append(flat[at : at + shape[0] * width].reshape(shape[0], width))
        at += shape[0] * width
    return Pieces(1, arrays)


def received_value(step, flat: np.ndarray | None, view_of):
    """What a group step's token stands for: the buffer it fills, or the own tile where nothing has
    to move.

    ``flat`` is the step's buffer, if it has one; ``view_of(block)`` gives the view of an own block.
    """
    kind = type(step)
    if kind is Shift:
        return flat.reshape(step.shape)
    if kind is Broadcast:
        return view_of(step.piece.blocks()[0]) if flat is None else flat.reshape(step.shape)
    if kind is AllGather:
        if flat is not None:
            return laid_out(
                flat,
                step.shape,
                [piece.shape[1] for piece in step.pieces] if step.axis == 1 else None,
            )
        views = [view_of(block) for block in step.pieces[0].blocks()]
        return views[0] if len(views) == 1 else Pieces(step.axis, views)
    return None


def prepare(
    step, source, memory, flat: np.ndarray | None, value, view_of, comm_of, itemsize: int
) -> Call:
    """Make the call of one group step.

    Parameters
    ----------
    step : Shift, Broadcast, AllGather, Reduce or ReduceScatter
    source : ndarray or Pieces or None
        Value of its first input.
    memory : ndarray or None
        The buffer that value lies in, if any.
    flat, value :
        Its buffer, and the value it brings, if any.
    view_of, comm_of : callable
        View of an own block; communicator of a group.
    """
    maker = {
        Shift: _shift,
        Broadcast: _broadcast,
        AllGather: _all_gather,
        Reduce: _reduce,
        ReduceScatter: _reduce_scatter,
    }[type(step)]
    comm = comm_of(step.group) if len(step.group) > 1 else None
    call = maker(step, source, memory, flat, value, view_of, comm)
    call.nbytes *= itemsize
    return call


def _message(array: np.ndarray) -> list:
    return [array, array.size, mpi_type(array.dtype)]


def _contiguous(array: np.ndarray, step) -> np.ndarray:
    if array.size and not array.flags.c_contiguous:
        raise ValueError(
            f"{step!r} needs a value without gaps; broadcast or gather a piece, or shift whole "
            "tiles"
        )
    return array


def _pack(target: np.ndarray, piece: Piece, view_of) -> list:
    """Copies of a piece of the own tile into a contiguous array of its shape."""
    if not piece.size:
        return []
    tile, block, copies, row = view_of(piece.block), piece.block, [], 0
    for r in _runs(piece.rows):
        col = 0
        for c in _runs(piece.cols):
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


def _unpack(piece: Piece, source: np.ndarray, view_of) -> list:
    """Copies of a contiguous array of a piece's shape into the own tile."""
    return [(tile, part) for part, tile in _pack(source, piece, view_of)]


class _Run(NamedTuple):
    """Ranges of one width at one distance from each other."""

    start: int
    width: int
    stride: int
    count: int


def _runs(ranges) -> list[_Run]:
    """Ranges gathered into runs, so that a regular selection is one copy.

    Examples
    --------
    >>> _runs([(0, 2), (8, 10), (16, 18), (24, 25)])
    [_Run(start=0, width=2, stride=8, count=3), _Run(start=24, width=1, stride=1, count=1)]
    """
    runs: list[_Run] = []
    for start, stop in ranges:
        if runs and runs[-1].width == stop - start:
            last = runs[-1]
            stride = start - last.start if last.count == 1 else last.stride
            if start == last.start + last.count * stride:
                runs[-1] = last._replace(stride=stride, count=last.count + 1)
                continue
        runs.append(_Run(start, stop - start, stop - start, 1))
    return runs


def _every(array: np.ndarray, shape, row_stride: int, col_stride: int) -> np.ndarray:
    """The view of ``shape`` (runs of rows, rows, runs of columns, columns) into a matrix, runs
    starting at these distances."""
    s0, s1 = array.strides
    return np.lib.stride_tricks.as_strided(
        array, shape, (row_stride * s0, s0, col_stride * s1, s1), subok=True
    )


def _shift(step, source, memory, flat, value, view_of, comm) -> Call:
    ring = step.ring()
    if comm is None or not ring.hops:
        return Call(*ring, before=[(value, source)])
    sent, size, me = _contiguous(source, step), len(step.group), step.group.position
    source_at, target_at = (me - step.by) % size, (me + step.by) % size
    tag = step.by % size
    return Call(
        *ring,
        sent=sent,
        received=value,
        issue=lambda sent, received: [
            comm.Irecv(_message(received), source_at, tag),
            comm.Isend(_message(sent), target_at, tag),
        ],
    )


def _broadcast(step, source, memory, flat, value, view_of, comm) -> Call:
    root, own = step.root, step.root == step.group.position
    packs, _ = step.packs()
    call = Call(*step.ring(), before=_pack(value, step.piece, view_of) if packs else [])
    if comm is not None:
        call.sent, call.received = (value, None) if own else (None, value)
        call.issue = lambda sent, received: [comm.Ibcast(_message(sent if own else received), root)]
    return call


def _all_gather(step, source, memory, flat, value, view_of, comm) -> Call:
    sizes = [piece.size for piece in step.pieces]
    displacements = [sum(sizes[:x]) for x in range(len(sizes))]
    me = step.group.position
    call = Call(*step.ring())
    if flat is not None:
        slot = flat[displacements[me] : displacements[me] + sizes[me]].reshape(
            step.pieces[me].shape
        )
        call.before = _pack(slot, step.pieces[me], view_of)
        kind = mpi_type(flat.dtype)
        if comm is not None:
            call.sent, call.received = slot, flat
            call.issue = lambda sent, received: [
                comm.Iallgatherv(MPI.IN_PLACE, [received, sizes, displacements, kind])
            ]
    return call


def _reduce(step, source, memory, flat, value, view_of, comm) -> Call:
    root, own = step.root, step.root == step.group.position
    call = Call(*step.ring())
    if comm is None:
        call.after = _unpack(step.piece, source, view_of)
        return call
    sent, into = _contiguous(source, step), None
    if own:
        into = _landing(step.piece, flat, view_of, sent)
        call.after = _unpack(step.piece, into, view_of) if flat is not None else []
    call.sent, call.received = sent, into
    call.issue = lambda sent, received: [
        comm.Ireduce(_message(sent), _message(received) if own else None, MPI.SUM, root)
    ]
    return call


def _reduce_scatter(step, source, memory, flat, value, view_of, comm) -> Call:
    piece, sizes = step.pieces[step.group.position], [piece.size for piece in step.pieces]
    call = Call(*step.ring())
    if comm is None:
        call.after = _unpack(piece, source, view_of)
        return call
    sent = _whole(source, memory, step)
    into = _landing(piece, flat, view_of, sent)
    call.after = _unpack(piece, into, view_of) if flat is not None else []
    call.sent, call.received = sent, into
    call.issue = lambda sent, received: [
        comm.Ireduce_scatter(_message(sent), _message(received), sizes, MPI.SUM)
    ]
    return call


def _landing(piece: Piece, flat: np.ndarray | None, view_of, sent: np.ndarray) -> np.ndarray:
    """Where a sum arrives: the step's buffer, or the own tile."""
    if not piece.size:
        return np.empty(1, sent.dtype)[:0].view(
            type(sent)
        )  # nothing arrives; MPI wants memory that is not that of what is sent
    return view_of(piece.blocks()[0]) if flat is None else flat.reshape(piece.shape)


def _whole(source, memory: np.ndarray | None, step) -> np.ndarray:
    """The contiguous memory of a value that is sent as a whole."""
    return memory if type(source) is Pieces else _contiguous(source, step)
