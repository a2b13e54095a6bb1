"""PyTorch's DTensors multiplied by drbench: any placements, operands read in place.

::

    import drbench.torch

    drbench.torch.install()  # under mpiexec -n 4 python train.py
    C = A @ B  # DTensors; by stock torch if no element has to move
    with drbench.torch.out(Shard(1)):
        C = A @ B  # in these placements

``import drbench.torch`` imports torch.
"""

from importlib.util import find_spec

from drbench.errors import MissingError

if find_spec("torch") is None:
    raise MissingError(
        "drbench.torch needs torch, which is not installed: pip install '.[torch]' from a checkout"
    )

from .decision import out
from .dispatch import Counts, Installed
from .explain import Explanation, explain
from .install import counts, install, uninstall
from .parameters import adopt, empty, symmetric
from .styles import ColumnParallel, RowParallel

__all__ = [
    "ColumnParallel",
    "Counts",
    "Explanation",
    "Installed",
    "RowParallel",
    "adopt",
    "counts",
    "empty",
    "explain",
    "install",
    "out",
    "symmetric",
    "uninstall",
]
