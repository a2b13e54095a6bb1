"""A distributed matrix in a slab of device memory that others share: the device's counterpart of
:mod:`drbench.host.placed`."""

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np

from drbench.host.placed import Place, PlacedMatrix, PlacedWindow
from drbench.host.topology import Topology
from drbench.program.problem import Operand

from .base import Device
from .matrix import Mirror, OnDevice


class PlacedDeviceMatrix(OnDevice, PlacedMatrix):
    """One matrix whose local arrays lie in slabs of device memory (not collective).

    Parameters
    ----------
    operand, topology, dtype, places :
        As of :class:`~drbench.host.placed.PlacedMatrix`.
    in_reach : list of DeviceArray or None
        Of each rank its slab, in bytes.
    reach : list of list of bool
        ``reach[r][s]``: rank r reaches the slab of rank s.
    device : Device
    mirrors : (Mirror, Mirror) or None
        As large as the slabs: what ranks out of reach read, and what they add to.
    """

    def __init__(
        self,
        operand: Operand,
        topology: Topology,
        dtype,
        in_reach: list,
        reach: list[list[bool]],
        places: Sequence[Place],
        device: Device,
        mirrors: tuple[Mirror, Mirror] | None = None,
    ):
        window = SimpleNamespace(win=None, in_reach=in_reach, _derived={})
        super().__init__(operand, topology, dtype, window, reach, places)
        self.device, self.direct = device, False
        if mirrors is not None:
            self.outgoing = PlacedWindow(mirrors[0], self.dtype, self.locate)
            self.outgoing.seen = mirrors[0].seen
            if operand.name == "C":
                self.incoming = PlacedWindow(mirrors[1], self.dtype, self.locate)
                self.incoming.seen, self.incoming.local = mirrors[1].seen, mirrors[1].local

    @property
    def storage(self):
        return self.at_home(self.window.in_reach[self.rank])

    def at_home(self, memory):
        shape = self.partition.local_shape(self.rank)
        offset, *strides = self.places[self.rank]
        if 0 in shape:
            return np.ndarray.__new__(type(memory), shape, self.dtype)
        return type(memory)(shape, self.dtype, memory, offset, tuple(strides))
