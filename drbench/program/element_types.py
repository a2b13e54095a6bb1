"""Of what type the elements of each value of a program are. Operands and result may differ
(bfloat16 in, float32 out)."""

from __future__ import annotations

import numpy as np

from drbench.errors import UnsupportedError

from .trace import Trace

__all__ = ["element_types", "numpy_type"]


def numpy_type(name: str) -> np.dtype:
    """The NumPy type of a name; bfloat16 comes from the package ml_dtypes.

    Raises
    ------
    UnsupportedError
        If bfloat16 is asked for and ml_dtypes is missing.
    """
    if name == "bfloat16":
        try:
            import ml_dtypes
        except ImportError:
            raise UnsupportedError(
                "bfloat16 elements need the package ml_dtypes. pip install ml_dtypes."
            ) from None
        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def element_types(trace: Trace, of_matrix: dict) -> list:
    """The type of each step's value (None for steps without one that is a buffer or a message).

    Parameters
    ----------
    of_matrix : dict
        Name of each matrix -> type of its elements.

    Notes
    -----
    What is read keeps its matrix's type, what is shifted its own; products have the type of the
    written matrix.

    Examples
    --------
    >>> from drbench.program.problem import Problem
    >>> from drbench.program.steps import Block, Gemm, Get
    >>> from drbench.program.trace import trace
    >>> def program():
    ...     a = yield Get(Block("A", 0, 0, (0, 0), 0, 2, 0, 3, 0, 3))
    ...     b = yield Get(Block("B", 0, 0, (0, 0), 0, 3, 0, 2, 0, 2))
    ...     yield Gemm(a, b)
    >>> element_types(
    ...     trace(program(), None, 0, fresh=False),
    ...     {"A": "bfloat16", "B": "bfloat16", "C": "float32"},
    ... )
    ['bfloat16', 'bfloat16', 'float32']
    """
    found: list = []
    for step in trace.steps:
        pieces = getattr(step, "pieces", None)
        block = step.block or (
            pieces[0].block if pieces else step.piece.block if hasattr(step, "piece") else None
        )
        if block is not None:
            found.append(of_matrix[block.matrix])
        elif step.inputs and not step.computes:
            found.append(found[step.inputs[0].index])
        else:
            found.append(of_matrix[trace.written])
    return found
