"""Numbers in memory that streams write and wait for: NVIDIA's stream memory operations.

CuPy (13 and 14) has neither ``cuStreamWriteValue32`` nor ``cuStreamWaitValue32``, so the driver's
library is called directly, as PyTorch does. Only the second version of both is used, which every
driver since CUDA 11.7 has and which needs no option of the kernel module.
"""

import ctypes

from drbench.errors import CaseFailed

_CUDA = "libcuda.so.1"
_WRITE, _WAIT = "cuStreamWriteValue32_v2", "cuStreamWaitValue32_v2"
_WAIT_CYCLIC, _FLUSH = 0, 1 << 30  # CU_STREAM_WAIT_VALUE_GEQ and _FLUSH
_CAN_FLUSH_REMOTE_WRITES = 98  # CU_DEVICE_ATTRIBUTE_...


def load_driver():
    """The driver's library; None if there is none."""
    try:
        return ctypes.CDLL(_CUDA)
    except OSError:
        return None


class StreamValues:
    """Writes and waits of one device.

    Parameters
    ----------
    driver
        Of :func:`load_driver`.
    index : int
        The device.

    Attributes
    ----------
    why_not : str or None
        Why streams cannot wait for memory; None if they can.
    """

    def __init__(self, driver, index: int):
        self._write = getattr(driver, _WRITE, None)
        self._wait = getattr(driver, _WAIT, None)
        self.why_not = None
        if self._wait is None or self._write is None:
            self.why_not = (
                f"the driver has no {_WRITE} and {_WAIT}, which a driver of CUDA 11.7 and later has"
            )
        self._flags = _WAIT_CYCLIC
        if driver is not None and self._can_flush(driver, index):
            self._flags |= _FLUSH

    @staticmethod
    def _can_flush(driver, index: int) -> bool:
        """Whether a wait can also order writes of other devices before the flag."""
        query, answer = getattr(driver, "cuDeviceGetAttribute", None), ctypes.c_int(0)
        return (
            query is not None
            and query(ctypes.byref(answer), _CAN_FLUSH_REMOTE_WRITES, index) == 0
            and bool(answer.value)
        )

    def write(self, address: int, number: int, stream: int) -> None:
        """Write 32 bits in the order of the stream; its earlier work is visible first."""
        self._call(self._write, _WRITE, stream, address, number, 0)

    def wait(self, address: int, number: int, stream: int) -> None:
        """Block the stream until the 32 bits are the number, or a later one."""
        self._call(self._wait, _WAIT, stream, address, number, self._flags)

    def _call(self, function, name: str, stream: int, address: int, number: int, *flags) -> None:
        words = map(ctypes.c_uint32, (number, *flags))
        status = function(ctypes.c_void_p(stream), ctypes.c_uint64(address), *words)
        if status:
            raise CaseFailed(
                f"{name} failed with error {status} of the driver; run the case with "
                "--backend numpy, and report driver and devices."
            )
