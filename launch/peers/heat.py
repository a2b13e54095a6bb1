"""HeAT: ``ht.matmul`` of two DNDarrays split by rows, by columns or not at all; torch multiplies
locally."""

import importlib.util
import sys
import types

import numpy as np

from drbench.errors import UnsupportedError, UsageError
from partitions import partition as named

from .base import Availability, Job, Peer, Setting, installed, own_words, refuse_alike
from .options import PEERS
from .torch_side import GET_TORCH, TorchBlas, device_of

_GET = (
    "It pins an older torch and pulls gigabytes of CUDA; beside any torch: pip install --no-deps "
    "heat."
)


def _available() -> Availability:
    heat, torch = installed("heat", _GET), installed("torch", GET_TORCH)
    if heat.ok and torch.ok:
        return Availability(True, f"{heat.what} on {torch.what}")
    return torch if heat.ok else heat


def _layout(a, b, c, nprocs, **options):
    if c:
        raise UsageError(f"heat decides how C is split, got --c {c!r}. Leave it out.")
    return a or "row", b or a or "row", "row"


def _texts(nprocs: int) -> dict[int | None, str]:
    """Partitions by HeAT's split axis."""
    return {None: f"row/c{nprocs}", 0: "row", 1: "column"}


def split_of(partition) -> int | None:
    """HeAT's split axis of a partition.

    Raises
    ------
    UnsupportedError
        If HeAT has no word for it.

    Examples
    --------
    >>> from partitions import partition
    >>> split_of(partition("column", (8, 8), 2)), split_of(partition("row/c2", (8, 8), 2))
    (1, None)
    """
    for split, text in _texts(partition.nprocs).items():
        if partition == named(text, partition.shape, partition.nprocs):
            return split
    raise UnsupportedError(
        f"heat splits a matrix along one dimension or gives it to every rank; {partition.text} "
        "does neither. "
        f"Use row, column or row/c{partition.nprocs}."
    )


def _settings(nprocs: int) -> list[Setting]:
    everywhere = f"row/c{nprocs}"
    pairs = [
        ("row", "row"),
        ("row", "column"),
        ("column", "row"),
        ("column", "column"),
        ("row", everywhere),
        (everywhere, "column"),
    ]
    return [Setting(f"{a} · {b}".replace(everywhere, "all"), {"a": a, "b": b}) for a, b in pairs]


def _import_heat():
    """Import HeAT. It imports torchvision for its data sets alone; where there is none, an empty
    module stands in for it."""
    if "torchvision" not in sys.modules and importlib.util.find_spec("torchvision") is None:
        names = ("torchvision", "torchvision.transforms", "torchvision.datasets")
        vision, transforms, datasets = modules = [*map(types.ModuleType, names)]
        transforms.Compose = transforms.transforms = datasets.MNIST = object
        vision.transforms, vision.datasets = transforms, datasets
        sys.modules |= dict(zip(names, modules))
    import heat

    return heat


class _Multiplication(Job):
    def __init__(self, problem, topology, fill, threads, options):
        import torch

        splits = {name: split_of(problem.operand(name).partition) for name in "AB"}
        try:
            heat = _import_heat()
        except (ImportError, AttributeError) as error:  # torch's and HeAT's versions do not fit
            raise UnsupportedError(f"heat cannot be imported: {own_words(error)}") from None
        torch.set_num_threads(threads)
        device = device_of(options, topology)
        self._heat, comm = heat, heat.communication.MPICommunication(topology.comm)
        self.operands = []
        for name, split in splits.items():
            shape = problem.operand(name).partition.shape
            elements = np.empty(comm.chunk(shape, split)[1], problem.dtype)
            fill.into(elements, name, *_corner(comm, shape, split))
            self.operands.append(
                heat.array(
                    torch.from_numpy(elements),
                    is_split=split,
                    comm=comm,
                    device=heat.gpu if device.type == "cuda" else heat.cpu,
                )
            )
        self._comm = comm
        self.blas = TorchBlas(device)
        refuse_alike(topology.comm, "HeAT", self.run)
        split = self.out.split
        self.layouts = tuple(_texts(topology.comm.size)[axis] for axis in (*splits.values(), split))
        if (splits["A"], splits["B"]) in ((0, None), (None, 1), (None, None)):
            # its local product is C's part; of the others it does not tell
            self.moved = {"collective_bytes": 0}
        self.replicas = topology.comm.size if split is None else 1
        self._replica = topology.comm.rank if split is None else 0
        self.resolved = {
            "dataflow": f"split {splits['A']}, {splits['B']} -> {split}",
            "transport": "mpi",
            "backend": f"torch-{device.type}",
        }

    def run(self) -> None:
        self.out = self._heat.matmul(*self.operands)

    def parts(self):
        out = self.out
        if out.split is not None and not out.is_balanced(force_check=True):
            raise UnsupportedError(
                "HeAT left C out of balance: which rank holds which rows is not known here."
            )
        corner = _corner(self._comm, out.shape, out.split)
        return self._replica, [(*corner, out.larray.detach().cpu().numpy())]


def _corner(comm, shape, split: int | None) -> tuple[int, int]:
    """Global row and column of this rank's first element."""
    offset, _, _ = comm.chunk(shape, split)
    return (0, offset) if split == 1 else (offset, 0)


PEER = Peer(
    "heat",
    "HeAT: ht.matmul on arrays split by rows, by columns or not at all",
    _available,
    _settings,
    _layout,
    _Multiplication,
    options=PEERS["heat"],
)
