"""What DTensor and HeAT share: torch itself, its threads, and its local GEMM. torch is imported
when it is used."""

import re

from drbench.errors import MissingError, UsageError
from drbench.host.blas import BlasInfo

GET_TORCH = (
    "Install it with: pip install 'drbench[torch]' (CPU build: pip install torch --index-url "
    "https://download.pytorch.org/whl/cpu)."
)


def device_of(options: dict, topology):
    """The torch.device of this rank: the CPU, or the GPU numbered like the rank on its node.

    Raises
    ------
    MissingError
        If a GPU is asked for and some rank has none.
    """
    import torch

    wanted = options.get("device") or "cpu"
    if wanted == "cpu":
        return torch.device("cpu")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    fewest = min(topology.comm.allgather(count - topology.node.rank))
    if fewest < 1:
        raise MissingError(
            f"-o device=cuda needs a GPU a rank; a node has {count} for {topology.node.size} "
            "ranks. Use fewer ranks a node, "
            "or -o device=cpu."
        )
    torch.cuda.set_device(topology.node.rank)
    return torch.device("cuda", topology.node.rank)


class TorchBlas:
    """torch.matmul on local operands, for the roof of peers that multiply with torch.

    Parameters
    ----------
    device : torch.device
        On a GPU the operands are copied there the first time they are seen, which the roof does not
        time.
    """

    def __init__(self, device):
        import torch

        self._torch, self._device, self._seen = torch, device, {}
        self.info = BlasInfo(*_library(torch, device), "openmp", True)

    def gemm(self, a, b, c, beta: float) -> None:
        """c = a·b (``beta`` must be 0)."""
        torch = self._torch
        if beta:
            raise UsageError(f"the roof of torch multiplies with beta = 0 only, got {beta}.")
        if self._device.type == "cpu":
            torch.matmul(torch.from_numpy(a), torch.from_numpy(b), out=torch.from_numpy(c))
            return
        key = (a.ctypes.data, a.shape, b.shape)
        if key not in self._seen:
            self._seen = {key: tuple(torch.from_numpy(x).to(self._device) for x in (a, b, c))}
        there = self._seen[key]
        torch.matmul(there[0], there[1], out=there[2])
        torch.cuda.synchronize(self._device)


def _library(torch, device) -> tuple[str, str]:
    """Name with version, and kernels, of what multiplies."""
    if device.type != "cpu":
        return f"torch {torch.__version__} cublas {torch.version.cuda}", torch.cuda.get_device_name(
            device
        )
    found = re.search(r"Math Kernel Library Version ([\d.]+)", torch.__config__.show())
    library = (
        f"mkl {found[1]}"
        if found
        else ("openblas" if "BLAS_INFO=open" in torch.__config__.show() else "its own BLAS")
    )
    return f"torch {torch.__version__} {library}", torch.backends.cpu.get_cpu_capability()
