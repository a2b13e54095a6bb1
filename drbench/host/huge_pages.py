"""Shared memory in huge pages, if Linux provides them: GEMMs read tiles from 2 MiB pages several
percent faster than from 4 KiB pages.

MPI maps the memory of a window at any address, and a huge page needs an address that is aligned
with the offset in the file. So the memory is mapped a second time at such an address, and Linux
gathers its pages (``MADV_COLLAPSE``, Linux 6.1 and later, which works whatever the system's
default for shared memory is). Loads and stores use the second mapping, RMA that of MPI; the pages
are the same.
"""

import errno
import mmap
import sys
from contextlib import suppress
from ctypes import CDLL, c_char, c_int, c_long, c_size_t, c_void_p, get_errno
from typing import NamedTuple

import numpy as np

from drbench.arrays import address_of

from .launcher import shared_memory_free

HUGE_BYTES = 2 << 20
#: Smaller windows are not mapped again: that would cost more than it gains.
LEAST_BYTES = 2 * HUGE_BYTES
_MREMAP_MAYMOVE, _MREMAP_FIXED, _MAP_NORESERVE = 1, 2, 0x4000
_MADV_REMOVE, _MADV_POPULATE_WRITE, _MADV_COLLAPSE = 9, 23, 25
_FAILED = c_void_p(-1).value


class _Area(NamedTuple):
    """One mapping of this process: addresses [start, stop), and its offset in the file."""

    start: int
    stop: int
    offset: int


class HugeMapping:
    """A second mapping of shared memory, until :meth:`close`."""

    def __init__(self, area: _Area, reserved: int, length: int, address: int):
        self._area, self._reserved, self._length, self._address = area, reserved, length, address

    def __contains__(self, memory: np.ndarray) -> bool:
        start = address_of(memory)
        return self._area.start <= start and start + memory.nbytes <= self._area.stop

    def seen(self, memory: np.ndarray) -> np.ndarray:
        """The same memory through this mapping; the array must not be used after :meth:`close`."""
        start = self._address + address_of(memory) - self._area.start
        return np.frombuffer((c_char * memory.nbytes).from_address(start), memory.dtype)

    def collapse(self, memory: np.ndarray) -> None:
        """Gather this rank's part, as of :meth:`seen`, into the huge pages that fit inside it; the
        rest stays in small pages.

        The memory is set to zero before: unused pages cannot be gathered.
        """
        memory.fill(0)
        start = address_of(memory)
        first = -(-start // HUGE_BYTES) * HUGE_BYTES
        length = (start + memory.nbytes - first) // HUGE_BYTES * HUGE_BYTES
        if length > 0:
            _libc().madvise(c_void_p(first), c_size_t(length), _MADV_COLLAPSE)

    def close(self) -> None:
        """Unmap the memory."""
        if self._length:
            _libc().munmap(c_void_p(self._reserved), c_size_t(self._length))
            self._length = 0


def populate(memory: np.ndarray, spare: int) -> bool:
    """Give all pages of an unused array in ``/dev/shm`` memory now; False if that would leave less
    than ``spare`` bytes there: writing to pages without memory ends a process by SIGBUS."""
    start, free = address_of(memory), shared_memory_free()
    if free is not None and free < memory.nbytes + spare:
        return False
    stop, page, advise = start + memory.nbytes, mmap.PAGESIZE, _libc().madvise
    first = start - start % page
    if not advise(c_void_p(first), c_size_t(stop - first), _MADV_POPULATE_WRITE):
        return True
    if get_errno() == errno.EINVAL:  # Linux before 5.14
        return True
    first += page * (first < start)  # another rank was faster: give back what was had
    advise(c_void_p(first), c_size_t(max(0, stop - first)), _MADV_REMOVE)
    return False


def empty_in_huge_pages(size: int, dtype: np.dtype) -> np.ndarray:
    """Private memory in huge pages, if Linux provides them, from its first element on; arrays
    smaller than a huge page are in any memory.

    NumPy requests huge pages, too, but at the address of malloc: up to 2 MiB at either end are
    small pages, and GEMMs of operands in such memory took 2 to 5 % longer.
    """
    nbytes = size * dtype.itemsize
    if nbytes < HUGE_BYTES or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.empty(size, dtype)
    whole = -(-nbytes // HUGE_BYTES) * HUGE_BYTES
    memory = mmap.mmap(-1, whole + HUGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    array = np.frombuffer(memory, np.uint8)  # keeps the mapping
    start = -address_of(array) % HUGE_BYTES
    return array[start : start + nbytes].view(dtype)


def in_huge_pages(memories: list, own: int | None) -> list[HugeMapping]:
    """Map large shared memory again so that its pages can be huge, and gather the pages of rank
    ``own`` (None: of none); return the mappings.

    ``memories`` has an array or None for each rank; large ones are replaced by arrays in the new
    mappings.
    """
    mappings: list[HugeMapping] = []
    for rank, memory in enumerate(memories):
        if memory is None or memory.nbytes < LEAST_BYTES:
            continue
        mapping = next((mapping for mapping in mappings if memory in mapping), None)
        if mapping is None:
            mapping = map_again(memory)
            if mapping is None:
                continue  # loads and stores work with small pages, too
            mappings.append(mapping)
        memories[rank] = mapping.seen(memory)
        if rank == own:
            mapping.collapse(memories[rank])
    return mappings


def map_again(memory: np.ndarray) -> HugeMapping | None:
    """Map the shared memory of ``memory`` a second time, at an address for huge pages; None if that
    is not possible."""
    if not sys.platform.startswith("linux"):
        return None
    area = _area_of(address_of(memory))
    if area is None or (area.start - area.offset) % mmap.PAGESIZE:
        return None
    libc, length = _libc(), area.stop - area.start + HUGE_BYTES
    reserved = libc.mmap(
        None, length, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE, -1, 0
    )
    if reserved == _FAILED:
        return None
    wanted = area.offset % HUGE_BYTES
    address = reserved + (wanted - reserved) % HUGE_BYTES
    # an old size of 0 makes a second mapping of the same shared pages (mremap(2))
    if (
        libc.mremap(area.start, 0, area.stop - area.start, _MREMAP_MAYMOVE | _MREMAP_FIXED, address)
        != address
    ):
        libc.munmap(c_void_p(reserved), c_size_t(length))
        return None
    return HugeMapping(area, reserved, length, address)


def _area_of(address: int) -> _Area | None:
    """The shared mapping of this process that contains an address."""
    with open("/proc/self/maps", encoding="ascii", errors="replace") as file:
        for line in file:
            where, rights, offset, *_ = line.split()
            start, stop = (int(word, 16) for word in where.split("-"))
            if start <= address < stop:
                return _Area(start, stop, int(offset, 16)) if rights[3] == "s" else None
    return None


def _libc():
    libc = CDLL(None, use_errno=True)
    libc.mmap.restype = libc.mremap.restype = c_void_p
    libc.mmap.argtypes = [
        c_void_p,
        c_size_t,
        c_int,
        c_int,
        c_int,
        c_long,
    ]
    libc.mremap.argtypes = [
        c_void_p,
        c_size_t,
        c_size_t,
        c_int,
        c_void_p,
    ]
    return libc
