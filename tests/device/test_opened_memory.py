"""How ranks of a node open each other's device memory, by stubs of ranks and devices."""

from types import SimpleNamespace

import pytest

from drbench.device.matrix import opened
from drbench.errors import UnsupportedError

OTHERS = [b"0", b"1", UnsupportedError("the driver of 2 shares no memory"), b"3"]


class Device:
    """A device that opens all memory but that of rank 0, and adds to none of rank 3."""

    def __init__(self, narrow_rows):
        self.narrow_rows, self.opened = narrow_rows, []

    def ipc_handle(self, memory):
        return b"1"

    def open_handle(self, handle):
        self.opened.append(handle)
        if handle == b"0":
            raise UnsupportedError("no peer access")
        return 100 + int(handle)

    def adds_into(self, handle):
        return handle != b"3"


@pytest.mark.parametrize("widths, agreed", [([None, 2048, None, 512], 512), ([None] * 4, None)])
def test_ranks_open_the_next_one_first_and_agree_on_reasons_and_on_the_copies_of_rows(
    widths, agreed
):
    answers = [
        lambda mine: [(each != 9, handle) for each, handle in enumerate(OTHERS)],
        lambda mine: [([], widths[0]), mine, (["rank 2 to rank 1: why"], None), ([], widths[3])],
    ]
    comm = SimpleNamespace(rank=1, size=4, allgather=lambda mine: answers.pop(0)(mine))
    device = Device(widths[1])
    found, why = opened(
        SimpleNamespace(comm=comm, node_of=[True] * 4), device, SimpleNamespace(address=7)
    )
    assert found == [(None, False), (7, True), (None, False), (103, False)]
    assert device.opened == [b"3", b"0"]
    assert why == "rank 1 to rank 2: the driver of 2 shares no memory"
    assert device.narrow_rows == agreed
