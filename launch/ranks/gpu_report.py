"""The GPU report of ``drbench doctor``, as one line of JSON. Runs in a separate process, which may
crash."""

import json
from itertools import permutations

from drbench.errors import MissingError

_COMPUTE_MODE = 20  # cudaDevAttrComputeMode


def main() -> None:
    from drbench.device.gpu.cuda import cuda_device
    from drbench.device.gpu.nccl import nccl_version, why_no_nccl

    try:
        device = cuda_device(0, 1)
    except MissingError as error:
        what, _, remedy = str(error).partition(". ")
        print(json.dumps({"missing": what, "remedy": remedy.rstrip(".")}))
        return
    reason, (able, evidence) = why_no_nccl(1), _mpi()
    more = {
        "nccl": None if reason else f"NCCL {nccl_version()}, one rank per GPU",
        "no_nccl": reason,
        "gpu_aware": able,
        "mpi": evidence,
    }
    print(json.dumps(describe(device) | more))


def describe(device) -> dict:
    """The GPUs of this process and their abilities, in plain values: devices, versions, pairs
    without peer access, why streams cannot wait for flags."""
    runtime, devices = device._runtime, []
    for index in range(device.info.count):
        properties = runtime.getDeviceProperties(index)
        devices.append(
            {
                "index": index,
                "name": properties["name"].decode(),
                "bytes": int(properties["totalGlobalMem"]),
                "architecture": f"sm_{properties['major']}{properties['minor']}",
                "multiprocessors": properties["multiProcessorCount"],
                "compute_mode": runtime.deviceGetAttribute(_COMPUTE_MODE, index),
            }
        )
    pairs = permutations(range(device.info.count), 2)
    return {
        "devices": devices,
        "cupy": device._modules.cupy.__version__,
        "cublas": device.info.library,
        "runtime": runtime.runtimeGetVersion(),
        "driver": runtime.driverGetVersion(),
        "no_peer_access": [pair for pair in pairs if not runtime.deviceCanAccessPeer(*pair)],
        "no_waits": device.why_no_waits(),
    }


def _mpi() -> tuple[bool, str]:
    """(whether MPI moves device memory, the evidence)."""
    try:
        from .gpu_awareness import mpi_moves_devices
    except (ImportError, RuntimeError) as error:
        return False, f"MPI cannot be loaded ({' '.join(str(error).split())[:120]})"
    return mpi_moves_devices()


if __name__ == "__main__":
    main()
