"""PyTorch's fused operations of tensor parallelism: ``torch.ops.symm_mem.fused_all_gather_matmul``
and ``fused_matmul_reduce_scatter``, on symmetric memory of GPUs."""

from .base import Availability, installed
from .fused import Fused, with_gpu
from .torch_side import GET_TORCH, TorchLibrary

_GET = "It needs a CUDA build of torch 2.6 or newer: pip install -U torch."


class SymmetricMemory(Fused, TorchLibrary):
    """One of the two operations, on this rank's shards."""

    name = "symm_mem"
    description = (
        "PyTorch's fused all-gather + matmul and matmul + reduce-scatter, on GPUs' symmetric memory"
    )

    @staticmethod
    def available():
        """Whether torch with CUDA and a GPU are available."""
        torch = installed(GET_TORCH, "torch", least="2.6")
        if torch.ok and "+cpu" in torch.what:
            torch = Availability(False, f"{torch.what} is built without CUDA", _GET)
        return with_gpu(torch)

    def start(self):
        """Make shards on the GPU; the first multiplication allocates symmetric memory."""
        import torch.distributed._symmetric_memory  # defines the operations

        self.check_even("m")
        TorchLibrary.prepare(self, {"device": "cuda"})
        self._group = torch.distributed.group.WORLD.group_name
        self.operands = [self.load(local) for local in self.filled()]
        self.resolved |= {"dataflow": self.flow, "transport": "symmetric memory"}

    def run(self):
        """Call the operation of the data flow."""
        ops, (a, b), group = self.torch.ops.symm_mem, self.operands, self._group
        if self.flow == "AG":
            _, (self.out,) = ops.fused_all_gather_matmul(a, [b], 0, group, return_A=False)
        else:
            self.out = ops.fused_matmul_reduce_scatter(a, b, "sum", 0, group)
        self.wait()


LIBRARY = SymmetricMemory
