"""Whether additions into another device are atomic, by NVML, through a small library in C with its
functions: also into a device that CUDA_VISIBLE_DEVICES hides."""

import ctypes
import shutil
import subprocess

import pytest

from drbench.device.gpu import ipc
from drbench.errors import UnsupportedError

SOURCE = """
#include <string.h>
typedef struct device { int number; } *Device;
static struct device devices[8];
int users, init, atomics, query;
int nvmlInit_v2(void) { users += !init; return init; }
int nvmlShutdown(void) { --users; return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, Device *found) {
    *found = devices + (id[6] - '0');
    if (strlen(id) != 12 || strncmp(id, "0000:0", 6) || strcmp(id + 7, ":00.0")) return 6;
    return users > 0 ? 0 : 1;
}
int nvmlDeviceGetP2PStatus(Device one, Device other, unsigned index, unsigned *status) {
    if (one != devices || other <= devices || users < 1) return 2;
    *status = index == 3 ? atomics : !atomics;
    return query;
}
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """The library; its numbers are the answers of its functions."""
    if not shutil.which("g++"):
        pytest.skip("no g++ to compile a stand-in for NVML")
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "nvml.c").write_text(SOURCE)
    command = ["g++", "-x", "c", "-shared", "-fPIC", "-o", folder / "nvml.so", folder / "nvml.c"]
    subprocess.run(command, check=True, timeout=300)
    return ctypes.CDLL(str(folder / "nvml.so"))


@pytest.fixture
def nvml(compiled, monkeypatch):
    """``nvml(atomics=..., ...)``: NVML of this process, with these answers of its functions."""

    def load(name):
        assert name == "libnvidia-ml.so.1"
        return compiled

    def answers(**numbers):
        monkeypatch.setattr(ipc.ctypes, "CDLL", load)
        for name in ("users", "init", "atomics", "query"):
            ctypes.c_int.in_dll(compiled, name).value = numbers.get(name, 0)

    ipc.native_atomics.cache_clear()
    yield answers
    ipc.native_atomics.cache_clear()
    assert ctypes.c_int.in_dll(compiled, "users").value == 0  # each init has its shutdown


OK, NOT_SUPPORTED, NOT_LOADED, UNKNOWN = 0, 5, 9, 999


@pytest.mark.parametrize(
    "answers, atomic",
    [
        ({"atomics": OK}, True),
        ({"atomics": NOT_SUPPORTED}, False),
        ({"init": NOT_LOADED}, False),
        ({"query": UNKNOWN}, False),
        (None, False),  # no NVML
    ],
)
def test_additions_into_visible_and_hidden_devices_are_atomic_if_nvml_reports_it(
    cupy, new_device, nvml, answers, atomic
):
    """CUDA reports peer access to the visible one: that alone is no proof."""
    device = new_device(0)
    memory = device.allocate(64)
    handle = device.ipc_handle(memory)
    visible, hidden = (handle[:64] + name for name in (b"0000:01:00.0", b"0000:07:00.0"))
    with pytest.raises(cupy.runtime.CUDARuntimeError):
        cupy.runtime.deviceGetByPCIBusId("0000:07:00.0")
    if answers is not None:
        nvml(**answers)
    assert device.adds_into(handle)
    assert (device.adds_into(visible), device.adds_into(hidden)) == (atomic, atomic)
    memory.free()


def test_a_device_that_nvml_does_not_know_gets_no_atomic_additions(nvml):
    nvml(atomics=OK)
    for pair in (("0000:00:00.0", "0000:11:00.0"), ("0000:10:00.0", "0000:01:00.0")):
        assert not ipc.native_atomics(*pair)
    assert ipc.native_atomics("0000:00:00.0", "0000:01:00.0")


def test_a_hidden_device_that_does_not_open_is_reported_with_the_remedy(cupy, new_device):
    """Device cgroups hide it from CUDA altogether."""
    device = new_device(0)
    with pytest.raises(UnsupportedError, match="cannot open memory of 0000:07:00.0"):
        device.open_handle(bytes(64) + b"0000:07:00.0")


@pytest.mark.wheels
def test_the_numbers_are_those_of_nvml():
    pynvml = pytest.importorskip("pynvml")
    assert ipc._ATOMICS == pynvml.NVML_P2P_CAPS_INDEX_ATOMICS == 3
    assert ipc._STATUS_OK == pynvml.NVML_P2P_STATUS_OK == OK
    assert NOT_SUPPORTED == pynvml.NVML_P2P_STATUS_NOT_SUPPORTED
    assert NOT_LOADED == pynvml.NVML_ERROR_DRIVER_NOT_LOADED
