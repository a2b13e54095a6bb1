"""HeAT: ``ht.matmul`` of two DNDarrays split by rows, by columns or not at all; torch multiplies
locally."""

import sys
from unittest.mock import MagicMock

from drbench.errors import UnsupportedError
from drbench.partitions import partition

from .base import installed
from .torch_side import TorchLibrary

_GET = (
    "It pins an older torch and pulls gigabytes of CUDA; with any torch: pip install --no-deps "
    "heat."
)
#: Modules that HeAT imports only for its data sets; empty modules replace them here.
_VISION = ("torchvision", "torchvision.transforms", "torchvision.datasets")


class Heat(TorchLibrary):
    """ht.matmul."""

    name = "heat"
    dtypes = ("float32", "float64")
    description = "HeAT: ht.matmul on arrays split by rows, by columns or not at all"
    instead = "HeAT decides how C is split: leave it out."

    @staticmethod
    def available():
        """Whether HeAT and torch are available."""
        return installed(_GET, "heat", "torch")

    @staticmethod
    def layout(nprocs, given, **options):
        """The given partitions; C is split like the first split operand."""
        a, b, _ = given
        a = a or "row"
        b = b or a
        return a, b, b if a in ("R", f"row/c{nprocs}") else a

    @staticmethod
    def settings(nprocs):
        """Pairs of splits, rows of both first."""
        every = f"row/c{nprocs}"
        pairs = ["row row", "row column", "column row", "column column"]
        pairs += [f"row {every}", f"{every} column"]
        return [dict(zip("ab", pair.split())) for pair in pairs]

    def prepare(self, options):
        """Make operands that are split evenly."""
        for name in _VISION:
            sys.modules.setdefault(name, MagicMock())
        super().prepare(options)
        self.attempt(self._start)
        self.resolved |= {"transport": "mpi"}

    def _start(self):
        import heat

        self._multiply = heat.matmul
        comm = heat.communication.MPICommunication(self.topology.comm)
        operands = self.work.a, self.work.b
        splits = [split_of(operand.partition) for operand in operands]
        self.check_even(
            *(operand.axes[at] for operand, at in zip(operands, splits) if at is not None)
        )
        self.operands = [
            heat.array(self.load(local), is_split=split, comm=comm)
            for local, split in zip(self.filled(), splits)
        ]
        if splits in ([0, None], [None, 1], [None, None]):  # unknown for the others
            self.moved = {"collective_bytes": 0}
        self.run()

    def run(self):
        """Multiply, with C in HeAT's own split."""
        self.out = self._multiply(*self.operands)

    def result(self):
        """Its torch tensor as an array."""
        return self.to_numpy(self.out.larray)


def split_of(bound) -> int | None:
    """HeAT's split axis of a partition.

    Raises
    ------
    UnsupportedError
        If HeAT does not support it.
    """
    texts = {None: f"row/c{bound.nprocs}", 0: "row", 1: "column"}
    for split, text in texts.items():
        if bound == partition(text, bound.shape, bound.nprocs):
            return split
    raise UnsupportedError(
        f"heat splits a matrix along one dimension or replicates it on every rank; {bound.text} "
        f"does neither. Use row, column or row/c{bound.nprocs}."
    )


LIBRARY = Heat
