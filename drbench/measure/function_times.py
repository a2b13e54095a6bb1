"""What functions between products take on the cores of these ranks."""

from collections.abc import Callable
from functools import partial

import numpy as np

from drbench.host.blas import load_blas
from drbench.host.kernels.elementwise import apply, panels
from drbench.program.elementwise import attention, function, functions, gradient

#: What functions are timed on: rows and columns of the result, larger than a core's caches; and of
#: attention heads, those that share a key, their width, and tokens of a sequence.
_SHAPE = 2048, 2048
_HEADS = 8, 4, 64, 256


def function_seconds(spent: Callable[[Callable[[], None]], float], code: str) -> dict[str, float]:
    """Seconds an element of what may stand between products, all ranks at once (collective); of
    attention an element of the scores besides the products.

    Parameters
    ----------
    spent : callable
        ``spent(function)``: seconds of a call on all ranks at once (collective).
    code : str
        NumPy's element type.
    """
    rng, blas, found = np.random.default_rng(0), load_blas(), {}
    for of in [*map(function, functions()), *_attentions()]:
        rows, units = _SHAPE[0], _SHAPE[1] // of.gives
        if of.heads:
            rows, units = of.rows, 1
        out = np.empty((rows, units * of.gives), code)
        taken = [rng.standard_normal((rows, units * each)).astype(code) for each in of.takes]
        seconds = spent(partial(apply, of, out, taken, panels(of, out)))
        for m, n, k in of.products(*out.shape):
            a, b, c = (rng.random(shape).astype(code) for shape in ((m, k), (k, n), (m, n)))
            seconds -= spent(partial(blas.gemm, a, b, c, 0.0))
        found[of.name] = max(0.0, seconds) / of.elements(*out.shape)
    return found


def _attentions():
    found = attention(*_HEADS)
    return found, gradient(found)
