"""What is worked out once for the arrays of a step, and used again in every repeat."""

from collections.abc import Callable

from drbench.device.address import DeviceArray

_MOST = 1 << 14


class Prepared:
    """Calls by the arrays that they were made for.

    An executor gives the same arrays in every repeat. To work out extents, leading dimensions,
    grids and arguments anew takes the host longer than to launch a kernel. Arrays are kept with
    what was made for them, so that an ``id`` stays theirs; they are addresses on a device, and hold
    no memory. What lies on the host is made anew each time.

    Examples
    --------
    >>> from drbench.device.address import at_address
    >>> tile, prepared = at_address(4096, 16, "f4").reshape(4, 4), Prepared()
    >>> def shape(x):
    ...     print("worked out")
    ...     return x.shape
    >>> prepared(shape, tile), prepared(shape, tile)
    worked out
    ((4, 4), (4, 4))
    """

    def __init__(self):
        self._made: dict[tuple, tuple] = {}

    def __call__(self, make: Callable, *arrays):
        """``make(*arrays)``, from before if all arrays lie on a device."""
        key = (make, *map(id, arrays))
        found = self._made.get(key)
        if found is None:
            found = make(*arrays), arrays
            if all(type(array) is DeviceArray for array in arrays):
                if len(self._made) >= _MOST:  # arrays that are made anew each time
                    self._made.clear()
                self._made[key] = found
        return found[0]

    def clear(self) -> None:
        self._made.clear()
