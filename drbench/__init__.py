"""drbench: runs, predicts and explains distributed dense matrix multiplication C = A·B.

As a library: :func:`init`, :func:`multiply` and :func:`redistribute` of :mod:`drbench.library`,
imported at the first use of one of its names. For PyTorch's DTensor: :mod:`drbench.torch`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

#: Names of :mod:`drbench.library`.
_LIBRARY = ("Context", "Matrix", "MultiplicationPlan", "init", "multiply", "redistribute")


if TYPE_CHECKING:  # what type checkers and editors see of the names below
    from .library import Context, Matrix, MultiplicationPlan, init, multiply, redistribute

__all__ = [
    "Context",
    "Matrix",
    "MultiplicationPlan",
    "__version__",
    "init",
    "multiply",
    "redistribute",
]


def __getattr__(name: str) -> Any:
    if name in _LIBRARY:
        found = globals()[name] = getattr(import_module("drbench.library"), name)
        return found
    if name == "torch":
        return import_module("drbench.torch")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LIBRARY, "torch"])
