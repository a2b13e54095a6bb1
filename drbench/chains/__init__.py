"""The sharding of whole transformer layers, and of other chains of multiplications: what ``drbench
chain`` does as a function, :func:`drbench.chain`, which is imported when it is asked for."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what type checkers and editors see
    from .answer import ShardingChoice, chain

__all__ = ["ShardingChoice", "chain"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("drbench.chains.answer"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
