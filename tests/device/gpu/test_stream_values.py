"""Flags that streams write and wait for: calls of the driver, and the message where it has none."""

from types import SimpleNamespace

import numpy as np
import pytest

from drbench.device.address import at_address
from drbench.device.gpu import cuda
from drbench.device.gpu.stream_values import StreamValues, load_driver
from drbench.errors import CaseFailed, MissingError


@pytest.fixture
def flag(device):
    memory = device.allocate(512)
    found = at_address(memory.address, 4, np.uint32)
    device.zero(found.reshape(1, -1), device.stream("flags"))
    yield found[1:2]
    memory.free()


def test_a_flag_is_written_and_waited_for_in_its_stream_and_a_later_run_is_awaited(
    device, cupy, flag
):
    cupy.driver._patience_s, stream = 0.0, device.stream("push0")
    cupy.driver.calls.clear()
    device.write_flag(flag, 7, stream)
    device.wait_flag(flag, 7, stream)
    device.wait_flag(flag, 5, stream)
    where = stream.cupy.ptr
    assert cupy.driver.calls == [("write", where, 7), ("wait", where, 7), ("wait", where, 5)]
    device.write_flag(flag, 2**32 - 1, stream)
    with pytest.raises(CaseFailed, match="cuStreamWaitValue32_v2 failed with error 702"):
        device.wait_flag(flag, 0, stream)  # the run after
    device.write_flag(flag, 0, stream)
    device.wait_flag(flag, 2**32 - 1, stream)


def test_ranks_that_share_a_gpu_and_drivers_without_the_calls_have_hosts_that_signal(
    cupy, new_device
):
    assert new_device().why_no_waits() is None and new_device().loads_late
    assert "2 ranks share a GPU" in new_device(sharers=2).why_no_waits()
    cupy.without_flags()
    assert new_device().why_no_waits() == (
        "the driver has no cuStreamWriteValue32_v2 and cuStreamWaitValue32_v2, which a driver of "
        "CUDA 11.7 and later has"
    )


def test_a_driver_without_flush_is_called_without_it(cupy):
    waits = []
    driver = SimpleNamespace(
        cuDeviceGetAttribute=lambda found, attribute, index: 1,
        cuStreamWriteValue32_v2=lambda *words: 0,
        cuStreamWaitValue32_v2=lambda *words: waits.append(words[-1].value) or 0,
    )
    StreamValues(driver, 0).wait(4096, 1, 0x5001)
    assert waits == [0]


def test_a_machine_without_a_driver_is_no_error(monkeypatch):
    monkeypatch.setattr("drbench.device.gpu.stream_values._CUDA", "libnone-such.so")
    assert load_driver() is None


def test_a_device_whose_streams_do_not_wait_as_they_should_has_hosts_that_signal(
    cupy, new_device, monkeypatch
):
    """Possible on a part of a GPU, or with a layer above the driver."""
    for name, result, why in (
        ("cuStreamWaitValue32_v2", 801, "failed with error 801"),
        ("cuStreamWaitValue32_v2", 0, "streams do not wait for flags"),
        ("cuStreamWriteValue32_v2", 0, "streams do not wait for flags"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(cupy.driver, name, lambda *words, result=result: result)
            assert why in new_device().why_no_waits()
    assert new_device().why_no_waits() is None
    monkeypatch.setattr(cuda, "_FLAGS_WITHIN_S", 0.0)
    cupy.runtime.event_status = 600  # never done
    with pytest.raises(MissingError, match="was blocked for 0 s after the flag was written"):
        new_device()


@pytest.mark.parametrize("blocks", [16, 5])
def test_an_addition_during_gemms_leaves_them_most_of_the_device(cupy, new_device, blocks):
    device = new_device(accumulate_blocks=blocks)
    memories = [device.allocate(4 * 600 * 700) for _ in range(2)]
    target, value = (at_address(m.address, 600 * 700, "f4").reshape(600, 700) for m in memories)
    grids = []
    for concurrent in (False, True):
        device.add(target, value, device.stream("side"), concurrent=concurrent)
        grids.append(np.prod(cupy.module.launches[-1].grid))
    assert grids[0] > 132 and 0 < grids[1] <= blocks
    for memory in memories:
        memory.free()
