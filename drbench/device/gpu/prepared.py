"""Calls prepared once for the arrays of a step, and reused in every repeat."""

from collections.abc import Callable

from drbench.device.address import DeviceArray

_MOST = 1 << 14


class CallCache:
    """A cache of calls by their arrays.

    An executor passes the same arrays in every repeat. Computing extents, leading dimensions, grids
    and arguments again would take the host longer than launching a kernel. Arrays are stored
    with their calls, so that each ``id`` is unique; they are addresses on a device, and keep no
    memory alive. Calls with arrays on the host are not cached.

    Examples
    --------
    >>> from drbench.device.address import at_address
    >>> tile, prepared = at_address(4096, 16, "f4").reshape(4, 4), CallCache()
    >>> def shape(x):
    ...     print("worked out")
    ...     return x.shape
    >>> prepared(shape, tile), prepared(shape, tile)
    worked out
    ((4, 4), (4, 4))
    """

    def __init__(self):
        self._calls: dict[tuple, tuple] = {}

    def __call__(self, make: Callable, *arrays):
        """``make(*arrays)``, cached if all arrays are on a device."""
        key = (make, *map(id, arrays))
        entry = self._calls.get(key)
        if entry is None:
            entry = make(*arrays), arrays
            if all(type(array) is DeviceArray for array in arrays):
                if len(self._calls) >= _MOST:  # arrays that are new each time
                    self._calls.clear()
                self._calls[key] = entry
        return entry[0]

    def clear(self) -> None:
        self._calls.clear()
