"""Places in a heap never overlap, and all bytes are freed in the end."""

import gc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpi4py import MPI

import drbench
from drbench.errors import OutOfMemory, UsageError
from drbench.host.huge_pages import HUGE_BYTES, LEAST_BYTES
from drbench.host.matrix import Location
from drbench.host.topology import Topology
from drbench.library.heap import ALIGNMENT, Heap, Space, parse_bytes
from drbench.library.plan import overlap
from drbench.transport import TransportChoice


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 3000), st.integers(0, 40)), max_size=120),
    st.integers(0, 5),
)
def test_places_never_overlap_and_all_bytes_are_freed(calls, phase):
    space, owner, held = Space(32 * ALIGNMENT, phase * ALIGNMENT), [None] * 32, {}
    for number, (takes, nbytes, which) in enumerate(calls):
        if takes:
            start, units = space.take(nbytes), max(1, -(-nbytes // ALIGNMENT))
            free = "".join("x" if each is not None else "." for each in owner)
            assert (start is None) == ("." * units not in free)  # refused only if no gap is enough
            if start is not None:
                at = start // ALIGNMENT
                assert start % ALIGNMENT == 0 and owner[at : at + units] == [None] * units
                owner[at : at + units] = [number] * units
                held[number] = start, nbytes
        elif held:
            number = list(held)[which % len(held)]
            space.give(*held.pop(number))
            owner = [None if each == number else each for each in owner]
        assert space.taken == ALIGNMENT * sum(each is not None for each in owner)
    for place in held.values():
        space.give(*place)
    assert (space.taken, space.largest) == (0, space.nbytes)


@pytest.mark.parametrize("phase", [0, 4096])
def test_large_places_begin_at_a_huge_page_and_small_ones_fill_the_gap_before(phase):
    space = Space(16 * HUGE_BYTES, phase)
    small, large = space.take(1), space.take(LEAST_BYTES)
    assert (large + phase) % HUGE_BYTES == 0
    assert small == 0 and space.take(1) < large
    last = space.take(space.largest)  # larger than what is left behind a huge page's beginning
    assert last is not None


@pytest.mark.parametrize("text", ["", "1X", "-1", "0", "1.3", None, 0, 1.5, "G"])
def test_an_invalid_size_is_refused_with_examples(text):
    with pytest.raises(UsageError, match="heap must be a size such as 64M or 1G"):
        parse_bytes(text)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 90), *[st.integers(0, 9)] * 5), min_size=2, max_size=2))
def test_arrays_of_any_strides_overlap_where_they_share_a_byte(drawn):
    places, shapes, taken = [], [], []
    for start, rows, cols, apart, spread, transpose in drawn:
        by_col = 4 + 4 * (spread // 7)
        by_row = max(1, cols) * by_col + apart
        if transpose > 6:
            rows, cols, by_row, by_col = cols, rows, by_col, by_row
        places.append(Location(start, by_row, by_col))
        shapes.append((rows, cols))
        firsts = [start + i * by_row + j * by_col for i in range(rows) for j in range(cols)]
        taken.append({first + byte for first in firsts for byte in range(4)})
    assert overlap(*places, *shapes, 4) == bool(taken[0] & taken[1])


def test_arrays_that_cannot_be_proved_disjoint_count_as_overlapping():
    long, short = Location(0, 2 * 100_001, 2), Location(1_000_000, 154, 6)
    assert overlap(long, short, (99_991, 65_537), (7, 13), 2)


def test_a_gap_too_small_after_a_huge_page_boundary_is_used_from_its_beginning():
    space = Space(LEAST_BYTES, ALIGNMENT)
    assert space.take(LEAST_BYTES) == 0 and space.take(1) is None


def test_matrices_that_hold_each_other_are_gone_when_their_context_closes():
    """Only the garbage collector frees them; otherwise the heap would stay until the process
    ends."""
    gc.disable()
    try:
        context = drbench.init(MPI.COMM_SELF, heap="1M")
        circle = [context.zeros((4, 4), "row")]
        circle.append(circle)
        del circle
        assert context.heap.taken
        context.close()
        assert context._freed
    finally:
        gc.enable()


def test_places_are_reused_cyclically_and_joined_when_another_size_needs_them():
    kind = np.dtype("u1")
    with Topology(MPI.COMM_SELF) as topology:
        heap = Heap(topology, 8 * ALIGNMENT, TransportChoice("auto"))
        rounds = []
        for _ in range(3):  # as a loop that makes three arrays a step
            held = [heap.allocate((1, ALIGNMENT), kind) for _ in range(3)]
            rounds.append([start for _, start in held])
            while held:  # let go of in the order in which they were made
                held.pop(0)
        assert rounds[0] == rounds[1] == rounds[2] and len(set(rounds[0])) == 3
        whole, start = heap.allocate((8, ALIGNMENT), kind)  # only if the three are one gap again
        assert start == 0 and heap.taken == 8 * ALIGNMENT
        with pytest.raises(OutOfMemory, match="needs 256 bytes, 0 of 2048 are free"):
            heap.allocate((1, ALIGNMENT), kind)
        del whole
        gc.collect()
        assert heap.taken == 0
        heap.close()
