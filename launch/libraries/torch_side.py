"""The base class of libraries on torch: torch itself, its threads, its device and its GEMM. torch
is imported when it is used."""

import re

from drbench.errors import MissingError
from drbench.host.blas import BlasInfo

from .base import ArrayBlas, Availability, Library, installed

GET_TORCH = (
    "Install it, from a checkout: pip install '.[torch]' (CPU build: pip install torch --index-url "
    "https://download.pytorch.org/whl/cpu)."
)


class TorchLibrary(Library):
    """A library whose operands are torch tensors on the CPU, or on the GPU of this rank."""

    @staticmethod
    def available() -> Availability:
        """Whether torch with torch.distributed.tensor is available."""
        return installed(GET_TORCH, "torch", least="2.5")

    def prepare(self, options: dict) -> None:
        """Set up torch, its threads, this rank's device, and the process group (collective)."""
        import torch

        from drbench.torch.ranks import start_process_group

        self.torch = torch
        torch.set_num_threads(self.threads)
        self.torch_device = self.find_device(options.get("device", "cpu"))
        on_gpu = self.torch_device.type == "cuda"
        transport = "nccl" if on_gpu else "gloo"
        start_process_group(self.topology.comm, self.topology.nodes, transport)
        self.wait = torch.cuda.synchronize if on_gpu else lambda: None
        info = BlasInfo(*_library(torch, self.torch_device))
        self.blas = ArrayBlas(info, torch.matmul, self.load, self.wait)
        self.resolved = {"transport": transport, "backend": f"torch-{self.torch_device.type}"}

    def load(self, array):
        """A NumPy array as a tensor: the same memory on the CPU, a copy on a GPU."""
        return self.torch.from_numpy(array).to(self.torch_device)

    def find_device(self, kind: str):
        """The torch.device of this rank: the CPU, or the GPU numbered like the rank on its node.

        Raises
        ------
        MissingError
            If a GPU is requested, but some rank has none.
        """
        node, cuda = self.topology.node, self.torch.cuda
        if kind == "cpu":
            return self.torch.device(kind)
        count = cuda.device_count() if cuda.is_available() else 0
        if min(self.topology.comm.allgather(count - node.rank)) < 1:
            raise MissingError(
                f"-o device=cuda needs a GPU per rank; a node has {count} for {node.size} ranks. "
                "Use fewer ranks per node, or -o device=cpu."
            )
        cuda.set_device(node.rank)
        return self.torch.device(kind, node.rank)

    def result(self):
        """This rank's array of C, from a tensor."""
        return self.out.detach().cpu().numpy()


def _library(torch, device) -> tuple[str, str]:
    """(name with version, kernels) of the BLAS."""
    if device.type != "cpu":
        cublas = f"torch {torch.__version__} cublas {torch.version.cuda}"
        return cublas, torch.cuda.get_device_name(device)
    config = torch.__config__.show()
    mkl = re.search(r"Math Kernel Library Version ([\d.]+)", config)
    other = "openblas" if "BLAS_INFO=open" in config else "its own BLAS"
    library = f"mkl {mkl[1]}" if mkl else other
    return f"torch {torch.__version__} {library}", torch.backends.cpu.get_cpu_capability()
