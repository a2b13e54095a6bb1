"""Where the value of every step of a trace lies: in a tile, or in a buffer of the arena. Laid out
before any clock runs.

The same for host and device: arrays may be :class:`~drbench.device.address.DeviceArray`, which
have addresses and no elements.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from drbench.plan.memory import ArenaPlan, buffer_elements, plan_arena
from drbench.plan.schedule import Windows
from drbench.program.element_types import element_types
from drbench.program.steps import COUNTERS, Gemm, Get, Join, Part, Scratch

from .collectives import Call, laid_out, prepare, product_layouts, received_value
from .pieces import Pieces, joined, part_of, products

__all__ = ["Values"]


class Values:
    """The arrays of one rank's program.

    Parameters
    ----------
    windows : Windows
        Of the trace, with the look-ahead it runs with.
    matrices : dict of str to DistributedMatrix
    get : str
        ``"view"`` reads reachable peers in place; ``"copy"`` copies first.
    throttled : bool
        Whether even what is read in place takes time.
    allocate : callable
        ``allocate(nbytes)`` gives the arena as a flat array of bytes.

    Attributes
    ----------
    arrays : list
        For each step the array (or Pieces) its value is, or will be, in; for a compute its target.
    products : dict
        Gemms whose operands lie in pieces: (a, b, c, beta) of each product of plain arrays.
    calls : dict of int to Call
        Group steps.
    resolved : list of int
        Steps that take no time at all.
    resolved_bytes, moved_bytes : dict
        What the resolved steps count, by counter; what each group step counts.
    plan : ArenaPlan
        In bytes.
    """

    def __init__(
        self,
        windows: Windows,
        matrices: dict,
        get: str = "view",
        throttled: bool = False,
        allocate: Callable[[int], np.ndarray] = lambda nbytes: np.full(nbytes, 0, np.uint8),
    ):  # written, not only promised: its pages exist before the first repeat
        trace = windows.trace
        self._matrices, self._rank, steps = matrices, trace.rank, trace.steps
        self.types = element_types(trace, {name: matrix.dtype for name, matrix in matrices.items()})
        in_place = get == "view"
        self.plan: ArenaPlan = plan_arena(
            windows,
            1,
            lambda block: in_place and matrices[block.matrix].window.peers[block.owner] is not None,
            widths=[dtype.itemsize for dtype in self.types],
        )
        self.arena = allocate(self.plan.size)
        groups = trace.groups
        self._comms = {
            group: matrices[trace.written].topology.group(group.name, group.members)
            for group in groups
            if len(group) > 1
        }
        self.arrays: list = [None] * len(steps)
        self.calls: dict[int, Call] = {}
        self.products: dict[int, list] = {}
        self.buffers: dict[int, np.ndarray] = {}  # steps with memory of their own
        self.resolved: list[int] = []
        self.resolved_bytes = dict.fromkeys(COUNTERS, 0)
        self.moved_bytes = {
            step.index: sum(elements for _, elements in step.moved(trace.rank))
            * self.types[step.index].itemsize
            for step in steps
            if step.counter == "collective_bytes"
        }
        self._views: dict[int, np.ndarray] = {}
        self._lay_out(steps, throttled)

    def _buffer(self, step) -> np.ndarray | None:
        """The memory of a step's own, flat; None if it has none."""
        offset = self.plan.offsets.get(step.index)
        if offset is None:
            return None
        elements = buffer_elements(step, self._rank) or step.shape[0] * step.shape[1]
        dtype = self.types[step.index]
        return self.arena[offset : offset + elements * dtype.itemsize].view(dtype)

    def _lay_out(self, steps, throttled: bool) -> None:
        rank, matrices, arrays = self._rank, self._matrices, self.arrays
        layouts, memory = product_layouts(steps), {}
        for step in steps:
            t, block = step.index, step.block
            flat = self._buffer(step)
            if flat is not None and not (step.computes and step.onto is not None):
                self.buffers[t] = flat
            if type(step) is Gemm:
                self._lay_out_product(step, flat, layouts)
            elif step.computes and block is None:  # an Add onto a token
                arrays[t] = arrays[step.onto.index]
            elif step.computes:
                arrays[t] = matrices[block.matrix].view(block)
            elif isinstance(step, Get):
                if flat is not None:
                    arrays[t] = flat.reshape(step.shape)
                    continue
                arrays[t] = self._read_only(block)
                if block.owner == rank or not throttled:
                    self.resolved.append(t)
                    if block.owner != rank:
                        counter = "direct_bytes" if step.counter == "get_bytes" else step.counter
                        self.resolved_bytes[counter] += block.size * self.types[t].itemsize
            elif type(step) is Scratch:
                arrays[t] = laid_out(
                    flat if flat is not None else self._nothing(t), step.shape, layouts.get(t)
                )
                self.resolved.append(t)
            elif type(step) is Part:
                arrays[t] = part_of(arrays[step.inputs[0].index], step.axis, step.start, step.stop)
            elif type(step) is Join:
                arrays[t] = joined([arrays[value.index] for value in step.inputs], step.axis)
            elif step.group is not None and step.group != "world":
                self._lay_out_group_step(step, flat, memory)
            if flat is not None:
                memory[t] = flat
            elif type(step) is Gemm and step.onto is not None:
                memory[t] = memory.get(step.onto.index)

    def _nothing(self, t: int) -> np.ndarray:
        return self.arena[:0].view(self.types[t])

    def _lay_out_group_step(self, step, flat: np.ndarray | None, memory: dict) -> None:
        t = step.index
        if (
            flat is None
            and buffer_elements(step, self._rank) == 0
            and step.shape is not None
            and 0 in step.shape
        ):
            flat = self._nothing(t)  # nothing to receive
        self.arrays[t] = received_value(step, flat, self._own_view)
        source = step.inputs[0].index if step.inputs else None
        self.calls[t] = prepare(
            step,
            self.arrays[source] if source is not None else None,
            memory.get(source),
            flat,
            self.arrays[t],
            self._own_view,
            self._comms.get,
            self.types[t].itemsize,
        )

    def _lay_out_product(self, step: Gemm, flat: np.ndarray | None, layouts: dict) -> None:
        """Give a Gemm its result, and its products if operands or result lie in pieces."""
        t, arrays = step.index, self.arrays
        if step.block is not None:
            arrays[t] = self._matrices[step.block.matrix].view(step.block)
        elif step.onto is not None:
            arrays[t] = arrays[step.onto.index]
        else:
            arrays[t] = laid_out(
                flat if flat is not None else self._nothing(t), step.shape, layouts.get(t)
            )
        a, b = (arrays[value.index] for value in step.inputs[:2])
        if any(type(value) is Pieces for value in (a, b, arrays[t])):
            self.products[t] = products(a, b, arrays[t], step.beta)

    def _own_view(self, block) -> np.ndarray:
        return self._matrices[block.matrix].view(block)

    def _read_only(self, block) -> np.ndarray:
        """The view of a block; operands and remote views are read-only."""
        view = self._views.get(id(block))
        if view is None:
            view = self._views[id(block)] = self._matrices[block.matrix].view(block)
            view.flags.writeable = False
        return view
