"""drbench: runs, predicts and explains distributed dense matrix multiplication C = A·B.

As a library: :func:`init`, :func:`multiply` and :func:`redistribute` of :mod:`drbench.library`.
Without MPI, on machine models: :func:`simulate`, :func:`tune` and :func:`explain` of
:mod:`drbench.launch.predictions`, and :func:`chain` for whole layers. Each is imported when its
name is asked for. Under PyTorch's DTensor: :mod:`drbench.torch`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .version import read_version

#: The modules of names that are imported when they are asked for.
_MODULES = (
    dict.fromkeys(
        ("Context", "Matrix", "MultiplicationPlan", "init", "multiply", "redistribute"),
        "drbench.library",
    )
    | dict.fromkeys(
        ("Case", "Choice", "Page", "Prediction", "explain", "simulate", "tune"),
        "drbench.launch.predictions",
    )
    | {"chain": "drbench.chains.answer"}
)

if TYPE_CHECKING:  # what type checkers and editors see of the names below
    __version__: str
    from drbench.chains.answer import chain
    from drbench.launch.predictions import Case, Choice, Page, Prediction, explain, simulate, tune

    from .library import Context, Matrix, MultiplicationPlan, init, multiply, redistribute

__all__ = [
    "Case",
    "Choice",
    "Context",
    "Matrix",
    "MultiplicationPlan",
    "Page",
    "Prediction",
    "__version__",
    "chain",
    "explain",
    "init",
    "multiply",
    "redistribute",
    "simulate",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return value
    if name == "__version__":  # git is asked for it only if it is used
        return read_version()["version"]
    if name == "torch":
        return import_module("drbench.torch")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES, "torch"])
