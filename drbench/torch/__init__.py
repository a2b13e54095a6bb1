"""PyTorch's DTensors multiplied by drbench: any placements, operands read where they lie.

::

    import drbench.torch

    drbench.torch.install()  # under mpiexec -n 4 python train.py
    C = A @ B  # DTensors; stock torch where drbench has nothing to win
    with drbench.torch.out(Shard(1)):
        C = A @ B  # in these placements

torch is imported here, when ``drbench.torch`` is asked for.
"""

from importlib.util import find_spec

from drbench.errors import MissingError

if find_spec("torch") is None:
    raise MissingError(
        "drbench.torch needs torch, which is not here: pip install '.[torch]' from a checkout"
    )

from .decision import out
from .dispatch import Counts, Installed
from .explain import Explanation, explain
from .install import counts, install, uninstall
from .parameters import adopt, empty
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
    "uninstall",
]
