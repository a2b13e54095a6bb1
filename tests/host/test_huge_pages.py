"""A second mapping of shared memory shows the same pages; memory that cannot be mapped
again does not change."""

import ctypes
import mmap
import sys

import numpy as np
import pytest

from drbench.host.huge_pages import HUGE_BYTES, empty_in_huge_pages, map_again

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"),
    reason="second mappings of shared memory are made on Linux only",
)


def shared(nbytes):
    return np.frombuffer(mmap.mmap(-1, nbytes, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS), "f4")


def address(array):
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("start", [0, 1, 5000, 700_000])
def test_both_mappings_are_the_same_memory(start):
    memory = shared(4 * HUGE_BYTES)[start:]
    mapping = map_again(memory)
    again = mapping.seen(memory)
    end = (ctypes.c_char * 8).from_address(address(memory) + memory.nbytes - 4)  # never read
    inside = memory in mapping, np.frombuffer(end, "u1") in mapping
    assert inside == (True, False)
    assert address(again) != address(memory) and again.shape == memory.shape
    memory[:10], again[-10:] = 3, 5
    assert (again[:10] == 3).all() and (memory[-10:] == 5).all()
    mapping.collapse(again)
    assert not memory.any()
    again[:] = np.arange(again.size)
    assert (memory == np.arange(memory.size, dtype="f4")).all()
    assert (address(again) - address(memory[:1])) % mmap.PAGESIZE == 0
    del again
    mapping.close()
    mapping.close()
    memory[:] = 1  # MPI's mapping is still there


def test_the_second_mapping_agrees_with_the_file_in_huge_pages():
    memory = shared(4 * HUGE_BYTES)
    mapping = map_again(memory)
    assert address(mapping.seen(memory)) % HUGE_BYTES == 0
    mapping.close()


def test_private_memory_is_not_mapped_again():
    assert map_again(np.zeros(4 * HUGE_BYTES, "u1")) is None


@pytest.mark.parametrize("size", [0, 1, HUGE_BYTES // 4 - 1, HUGE_BYTES // 4, 3_000_001])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_private_memory_for_the_roof_begins_at_a_huge_page(size, dtype):
    dtype = np.dtype(dtype)
    found = empty_in_huge_pages(size, dtype)
    assert (found.shape, found.dtype) == ((size,), dtype) and found.flags.writeable
    assert address(found) % HUGE_BYTES == 0 or found.nbytes < HUGE_BYTES
    found[:] = np.arange(size)
    other = empty_in_huge_pages(size, dtype)
    other[:] = -1
    assert (found == np.arange(size, dtype=dtype)).all()


def test_memory_of_the_roof_is_freed():
    def mapped():
        return int(open("/proc/self/statm").read().split()[0]) * mmap.PAGESIZE

    before = mapped()
    for _ in range(20):
        empty_in_huge_pages(16 * HUGE_BYTES // 4, np.dtype("f4"))[:] = 1
    assert mapped() < before + 4 * 16 * HUGE_BYTES
