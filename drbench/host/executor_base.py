"""The base class of executors on cores and on devices: the array of each step's value, counters,
and the begin and end of a run.

Their loops differ. Arrays may be :class:`~drbench.device.address.DeviceArray`, which have addresses
and no elements. All arrays are laid out before the timed region.
"""

from collections.abc import Callable
from copy import copy
from functools import partial
from itertools import chain

import numpy as np

from drbench.errors import UsageError
from drbench.plan.schedule import Lookahead, Scheduler, buffer_elements, plan_arena
from drbench.plan.strips import (
    copies,
    in_strips,
    strip_gemms,
    strip_widths,
    value_of,
)
from drbench.program.kinds import GROUP_STEPS, READS, SIGNAL_STEPS, VIEWS, WRITES, table_of_steps
from drbench.program.signal_steps import Await, Take
from drbench.program.steps import (
    COUNTERS,
    Accumulate,
    Add,
    Copy,
    Fence,
    Gemm,
    Get,
    OperationEnd,
    Put,
    Scratch,
    Zero,
)
from drbench.program.trace import Trace

from .collectives import Call, contiguous_message, prepare
from .huge_pages import empty_in_huge_pages
from .inbox import Inbox, shaped
from .topology import ClosedTogether


class ExecutorBase(ClosedTogether):
    """One rank's trace laid out on one set of matrices (collective to make).

    A subclass has a table ``_STARTERS``: kind of step -> the method that starts it.

    Parameters
    ----------
    trace : Trace
    matrices : dict of str to DistributedMatrix
        The matrices the steps name.
    prefetch : int or str
        Look-ahead of :mod:`drbench.plan.schedule`, in exposed computes, or ``"all"``.
    get : str
        ``"view"`` reads ranks whose memory is mapped in place; ``"copy"`` copies first.
    throttled : bool
        Whether reading in place takes time, too.
    arena : callable, optional
        ``arena(nbytes)`` returns existing receive and scratch memory, shared by executors that
        never run at the same time.

    Attributes
    ----------
    bytes : dict of str to int
        :data:`COUNTERS` of the last run, this rank only.
    arena_bytes : int
        Receive and scratch memory, the inbox included, fixed at construction.
    inbox : Inbox or None
        Of a program whose ranks signal each other.
    timeline : list or None
        If a list, runs append (step, start, stop) to it, in seconds on the clock; None by default.
    values : list
        For each step the array (or Strips) of its value; for a compute its target.
    alpha, beta : float
        C = alpha·op(A)·op(B) + beta·C; 1 and 0 until they are set. May differ from run to run.
    restore : callable or None
        Restores the values of C before a run, if they count.
    gemms : dict of int to list
        For each Gemm its GEMMs on plain arrays, several if an operand is in strips: (a, b, c,
        beta); beta None is that of the run.
    copies : dict of int to list
        For each Copy (to, from) of each plain array.
    calls : dict of int to Call
        Group steps.
    groups : list of Group
        Process rows and columns of several ranks.
    buffers : dict of int to ndarray
        Steps with memory of their own.
    gemm_calls : list
        On cores all GEMMs, if there is no other work: no transfer, and no rank waits for a poll of
        this one; else empty. They run one after another without a scheduler, except for a
        timeline, which must be set before :meth:`prepare`.
    resolved : list of int
        Steps that take no time at all.
    remote_reads : dict or None
        Of devices; None on cores.
    """

    remote_reads: dict | None = None

    def __init__(
        self,
        trace: Trace,
        matrices: dict,
        prefetch: int | str,
        get: str,
        throttled: bool = False,
        arena: Callable[[int], np.ndarray] | None = None,
    ):
        self.trace, self.rank, self._throttled = trace, trace.rank, throttled
        self.alpha, self.beta, self.restore = 1.0, 0.0, None
        self.lookahead, self.steps = Lookahead(trace, prefetch), trace.steps
        self._topology = matrices[trace.written].topology
        self.comm = self._topology.comm
        self.types = trace.element_types({name: matrix.dtype for name, matrix in matrices.items()})
        self.inbox = self._open_inbox(matrices) if trace.signals else None
        in_place = get == "view"

        def views(source) -> bool:
            if not in_place:
                return False
            if isinstance(source, Take):
                return self.inbox.is_local(source.index)
            return matrices[source.matrix].window.in_reach[source.owner] is not None

        widths = [dtype.itemsize for dtype in self.types]
        self.arena_plan = plan_arena(self.lookahead, 1, views, widths)
        self.arena = (arena or self._allocate)(self.arena_plan.size)
        self.arena_bytes = self.arena_plan.size + (self.inbox.plan.nbytes if self.inbox else 0)
        self.groups = [group for group in trace.groups if len(group) > 1]
        for group in self.groups:  # in the same order on all ranks: making one is collective
            self._topology.group(group)
        self._moved = {
            step.index: sum(elements for _, elements in step.moved(trace.rank))
            * self.types[step.index].itemsize
            for step in self.steps
            if step.grouped
        }
        self._bind(matrices)

    def _open_inbox(self, matrices: dict) -> Inbox:
        """The inbox of a program whose ranks signal each other (collective)."""
        window = matrices[self.trace.written].window
        reach = [memory is not None for memory in window.in_reach]
        return Inbox(self.trace, self._topology, self.types, reach)

    def _bind(self, matrices: dict) -> None:
        """Assign an array to every value."""
        self.matrices = matrices
        self.values: list = [None] * len(self.steps)
        self.calls: dict[int, Call] = {}
        self.gemms: dict[int, list] = {}
        self.copies: dict[int, list] = {}
        self.buffers: dict[int, np.ndarray] = {}
        self.resolved: list[int] = []
        self.gemm_calls: list = []
        self._resolved_bytes = dict.fromkeys(COUNTERS, 0)
        self._views: dict[int, np.ndarray] = {}
        self._itemsizes = {name: matrix.dtype.itemsize for name, matrix in matrices.items()}
        self._lay_out()
        self._slots = [
            self.buffers[step.index]
            for step in self.steps
            if isinstance(step, Await) and step.index in self.buffers
        ]
        self.bytes = dict(self._resolved_bytes)
        self.timeline: list[tuple[int, float, float]] | None = None
        self._prepared = False

    def bound(self, matrices: dict):
        """This executor on other matrices of the same layout, mapped by the same ranks. It reuses
        the plan and the arena of this one, so the two must not run at the same time."""
        again = copy(self)
        again._bind(matrices)
        return again

    # -- a run

    def prepare(self) -> None:
        """Prepare one run. Call outside the timed region; :meth:`run` calls it if that was not
        done."""
        if not self.gemm_calls or self.timeline is not None:
            self._schedule = Scheduler(self.lookahead, self.resolved)
        self.bytes.update(self._resolved_bytes)
        if self.inbox is not None:
            self.inbox.prepare()
        self._prepared = True

    def poison(self) -> None:
        """Fill this rank's part of the result with NaN, so that only values computed by the next
        run (and the old values of C, ``restore``) pass as results; also the memory of received
        values, so that no value of an earlier run passes for one that came too late. Prepare that
        run. Never inside the timed region."""
        self.matrices[self.trace.written].poison()
        self._poison([self.arena, *self._slots])
        if self.restore is not None:
            self.restore()
        self.prepare()

    def run(self, alpha: complex | None = None, beta: complex | None = None) -> None:
        """Execute the trace once (collective over the ranks of the program); returns when all of
        this rank's work is done. ``alpha`` and ``beta`` are set if they are given.

        Raises
        ------
        UsageError
            If beta is not 0 and the program was traced for a problem without ``updates``.
        """
        self.alpha = self.alpha if alpha is None else alpha
        self.beta = self.beta if beta is None else beta
        if self.beta and self.trace.problem is not None and not self.trace.problem.updates:
            raise UsageError(
                f"this program overwrites C, got beta = {self.beta:g}. Trace a Problem with "
                "updates=True."
            )
        if not self._prepared:
            self.prepare()
        self._prepared = False
        if self.inbox is not None:
            self.inbox.begin()
        self._run()

    def close(self) -> None:
        """Release all views of the matrices, which may then be freed, and the arena; in a program
        with signals also the inbox (collective)."""
        self._let_go()
        if self.inbox is not None:
            self.inbox.close()
            self.inbox = None

    def _let_go(self) -> None:
        self.values, self.calls, self.gemms, self.buffers, self._views = [], {}, {}, {}, {}
        self.copies = {}
        self.arena = self._schedule = None

    def _start_view(self, t: int) -> None:
        """Finish a view of other values, which are computed, or launched."""
        self._schedule.finish(t)

    def _nbytes(self, block) -> int:
        """Bytes of a block that move between ranks."""
        return block.size * self._itemsizes[block.matrix] if block.owner != self.rank else 0

    def _beta(self, beta: float | None) -> complex:
        """The factor of the old value in a step: None is the run's beta."""
        return self.beta if beta is None else beta

    # -- the layout

    def _allocate(self, nbytes: int) -> np.ndarray:
        """The arena, in huge pages; it is written, so that its pages exist before the first
        repeat."""
        arena = empty_in_huge_pages(nbytes, np.dtype(np.uint8))
        arena.fill(0)
        return arena

    def _poison(self, memories: list) -> None:
        """Fill memories with NaN of every type: with bits that are all 1."""
        for memory in memories:
            memory.view(np.uint8).fill(0xFF)

    def _memory_of(self, step) -> np.ndarray | None:
        """The step's own memory, flat; None if it has none."""
        dtype, shape = self.types[step.index], step.shape
        memory = None if self.inbox is None else self.inbox.memory(step.index)
        if memory is not None:
            rows, cols = shape
            return memory[: rows * cols * dtype.itemsize].view(dtype)
        offset, elements = self.arena_plan.offsets.get(step.index), 0
        if offset is not None:
            elements = buffer_elements(step, self.rank) or shape[0] * shape[1]
        elif step.block is not None or shape is None or 0 not in shape:
            return None
        offset = offset or 0
        return self.arena[offset : offset + elements * dtype.itemsize].view(dtype)

    def _lay_out(self) -> None:
        """Assign to every step its value, calls and copies."""
        steps, values = self.steps, self.values
        memory: dict[int, np.ndarray | None] = {}  # step -> memory of its value
        column_major, widths = self._column_major(steps), strip_widths(steps) if self.groups else {}
        for step in steps:
            t, own = step.index, self._memory_of(step)
            if own is None and self._read_in_place(step):
                continue
            if own is not None and own.size and step.onto is None:
                self.buffers[t] = own
            values[t] = step.target_of(values, self._own_view)
            if values[t] is None:
                in_memory = partial(_own, own, column_major.get(t))
                values[t] = value_of(step, values, widths, in_memory, self._own_view)
            memory[t] = own if step.onto is None else memory.get(step.onto.index)
            lay_out = self._LAYOUTS[type(step)]
            if lay_out is not None:
                lay_out(self, step, own, memory)

    def _lay_out_scratch(self, step, own, memory) -> None:
        self.resolved.append(step.index)

    def _lay_out_gemm(self, step, own, memory) -> None:
        a, b = (self.values[value.index] for value in step.inputs[:2])
        self.gemms[step.index] = strip_gemms(a, b, self.values[step.index], step.beta)

    def _lay_out_copy(self, step, own, memory) -> None:
        self.copies[step.index] = copies(self.values[step.index], self._operand(step))

    def _lay_out_add(self, step, own, memory) -> None:
        pairs = (copies(self.values[step.index], self.values[term.index]) for term in step.terms)
        self.copies[step.index] = [*chain.from_iterable(pairs)]

    def _lay_out_group(self, step, own: np.ndarray | None, memory: dict) -> None:
        """Prepare the shift or collective of a group step."""
        source = step.inputs[0].index if step.inputs else None
        of_source = None if source is None else self.values[source]
        arrays = of_source, memory.get(source), own, self.values[step.index]
        comm = self._topology.group(step.group) if len(step.group) > 1 else None
        itemsize = self.types[step.index].itemsize
        self.calls[step.index] = prepare(
            step, arrays, self._own_view, comm, itemsize, self._message
        )

    #: What is laid out for a step besides its value.
    _LAYOUTS = table_of_steps(
        "the layout of executors",
        {
            Scratch: _lay_out_scratch,
            Gemm: _lay_out_gemm,
            Add: _lay_out_add,
            Copy: _lay_out_copy,
            GROUP_STEPS: _lay_out_group,
            (*READS, *WRITES, Zero, Fence, *SIGNAL_STEPS, *VIEWS, OperationEnd): None,
        },
    )

    def _message(self, array) -> list:
        """(memory, count, datatype) of an array for MPI."""
        return contiguous_message(array)

    def _column_major(self, steps) -> dict[int, bool]:
        """Storage order (True: column-major) of buffers that exchange data with exactly one block
        of a matrix. It follows the owner's array, so it may differ between ranks."""
        orders = {}
        for step in steps:
            if isinstance(step, Get) and step.onto is None:
                orders[step.index] = self.matrices[step.block.matrix].column_major(step.block)
            elif type(step) in (Accumulate, Put):
                value = step.inputs[0]
                while value.onto is not None:
                    value = value.onto
                if type(value) is Gemm:
                    orders[value.index] = self.matrices[step.block.matrix].column_major(step.block)
        return orders

    def _read_in_place(self, step) -> bool:
        """Set the value of a step without its own memory to a view of what it reads; False if it
        is no such step. A Get that takes no time, because it waits neither for a Fence nor for a
        throttled link, is counted at once."""
        t = step.index
        if isinstance(step, Take):
            self.values[t] = self.inbox.offered_view(t, step.shape, step.transposed, self.types[t])
            self.values[t].flags.writeable = False
            return True
        if not isinstance(step, Get) or step.onto is not None:
            return False
        self.values[t] = self._read_only(step.block)
        free = step.block.owner == self.rank or not self._throttled
        if free and not self.lookahead.waits_for_fence(t):
            self.resolved.append(t)
            self._resolved_bytes[step.counted(True)] += self._nbytes(step.block)
        return True

    def _operand(self, step) -> np.ndarray:
        """The value of the first input of a step."""
        return self.values[step.inputs[0].index]

    def _own_view(self, block) -> np.ndarray:
        return self.matrices[block.matrix].view(block)

    def _read_only(self, block) -> np.ndarray:
        """The view of a block; operands and remote views are read-only."""
        view = self._views.get(id(block))
        if view is None:
            view = self._views[id(block)] = self._own_view(block)
            view.flags.writeable = False
        return view


def _own(flat, column_major: bool | None, shape, transposed: bool, widths):
    """A step's own memory as its value (:func:`drbench.plan.strips.in_strips`), in the storage
    order of the matrix if ``column_major`` is given, else of the step."""
    transposed = transposed if column_major is None else column_major
    return in_strips(partial(_within, flat), shape, transposed, widths)


def _within(flat: np.ndarray, start: int, rows: int, cols: int, transposed: bool) -> np.ndarray:
    """An array in flat memory, columns contiguous if it is transposed."""
    return shaped(flat[start : start + rows * cols], (rows, cols), transposed)
