"""The GPU report of ``drbench doctor``, as one line of JSON. Runs in a separate process, which may
crash."""

import json
import sys

from drbench.errors import MissingError


def main() -> int:
    from drbench.device.gpu.cuda import cuda_device, describe
    from drbench.device.gpu.nccl import nccl_version, why_no_nccl

    try:
        device = cuda_device(0, 1)
    except MissingError as error:
        what, _, remedy = str(error).partition(". ")
        print(json.dumps({"missing": what, "remedy": remedy.rstrip(".")}))
        return 0
    found = describe(device)
    reason = why_no_nccl(1)
    found |= {
        "nccl": None if reason else f"NCCL {nccl_version()}, one rank per GPU",
        "no_nccl": reason,
    }
    found |= dict(zip(("gpu_aware", "mpi"), _mpi()))
    print(json.dumps(found))
    return 0


def _mpi() -> tuple[bool, str]:
    """(whether MPI moves device memory, the evidence)."""
    try:
        from .gpu_awareness import mpi_moves_devices
    except (ImportError, RuntimeError) as error:
        return False, f"MPI cannot be loaded ({' '.join(str(error).split())[:120]})"
    return mpi_moves_devices()


if __name__ == "__main__":
    sys.exit(main())
