"""Numbers in memory that streams write and wait for: NVIDIA's stream memory operations, and what
takes their place on AMD.

CuPy (13 and 14) shows neither ``cuStreamWriteValue32`` nor ``cuStreamWaitValue32``, so the driver's
library is asked itself, as PyTorch does. Only the second version of both is used, which every
driver since CUDA 11.7 has and which needs no option of the kernel's module.
"""

from __future__ import annotations

import ctypes

from drbench.errors import CaseFailed

_CUDA, _HIP = "libcuda.so.1", "libamdhip64.so"
_WRITE, _WAIT = "cuStreamWriteValue32_v2", "cuStreamWaitValue32_v2"
_HIP_WAIT = "hipStreamWaitValue32"
_WAIT_CYCLIC, _FLUSH = 0, 1 << 30  # CU_STREAM_WAIT_VALUE_GEQ and _FLUSH
_CAN_FLUSH_REMOTE_WRITES = 98  # CU_DEVICE_ATTRIBUTE_...
_MEMCPY_DEFAULT = 4
_ALL_BITS = 0xFFFFFFFF


def load_driver(hip: bool = False):
    """The driver's library; None if there is none."""
    try:
        return ctypes.CDLL(_HIP if hip else _CUDA)
    except OSError:
        return None


class StreamValues:
    """Writes and waits of one device.

    Parameters
    ----------
    driver
        Of :func:`load_driver`.
    runtime : module
        ``cupy.cuda.runtime``.
    index : int
        The device.

    Attributes
    ----------
    why_not : str or None
        Why streams cannot wait for memory; None if they can.
    """

    def __init__(self, driver, runtime, index: int):
        self._runtime, self._hip = runtime, bool(getattr(runtime, "is_hip", False))
        self._write = getattr(driver, _WRITE, None)
        self._wait = getattr(driver, _HIP_WAIT if self._hip else _WAIT, None)
        self.why_not = None
        if self._wait is None or (self._write is None and not self._hip):
            names = _HIP_WAIT if self._hip else f"{_WRITE} and {_WAIT}"
            needs = "ROCm 4.2" if self._hip else "a driver of CUDA 11.7"
            self.why_not = f"the driver has no {names}, which {needs} and later has"
        self._flags = _WAIT_CYCLIC
        if not self._hip and driver is not None and self._can_flush(driver, index):
            self._flags |= _FLUSH
        self._cell = None

    @staticmethod
    def _can_flush(driver, index: int) -> bool:
        """Whether a wait can also order what other devices have written before the flag."""
        query, found = getattr(driver, "cuDeviceGetAttribute", None), ctypes.c_int(0)
        return (
            query is not None
            and query(ctypes.byref(found), _CAN_FLUSH_REMOTE_WRITES, index) == 0
            and bool(found.value)
        )

    def write(self, address: int, number: int, stream: int) -> None:
        """Write 32 bits once the stream comes there; what it did before is visible first.

        On AMD by a copy of four bytes (Triton-distributed, §3.6), from a place that holds the
        number as long as it is the same.
        """
        if not self._hip:
            self._call(self._write, _WRITE, stream, address, number, 0)
            return
        if self._cell is None or self._cell.value != number:
            self._cell = ctypes.c_uint32(number)
        source = ctypes.addressof(self._cell)
        self._runtime.memcpyAsync(address, source, 4, _MEMCPY_DEFAULT, stream)

    def wait(self, address: int, number: int, stream: int) -> None:
        """Hold the stream until the 32 bits are the number, or later."""
        if self._hip:  # compares without wrapping round, which takes 2**32 runs
            values = (stream, address, number, 0, _ALL_BITS)
            self._call(self._wait, _HIP_WAIT, *values)
        else:
            self._call(self._wait, _WAIT, stream, address, number, self._flags)

    def _call(self, function, name: str, stream: int, address: int, number: int, *flags) -> None:
        words = map(ctypes.c_uint32, (number, *flags))
        status = function(ctypes.c_void_p(stream), ctypes.c_uint64(address), *words)
        if status:
            raise CaseFailed(
                f"{name} failed with error {status} of the driver; run the case with "
                "--backend numpy, and report driver and devices."
            )
