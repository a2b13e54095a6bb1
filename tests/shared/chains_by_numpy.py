"""Every matrix of a chain of multiplications, by NumPy."""

import numpy as np

from algorithms.chains.description import Matmul
from algorithms.chains.functions import apply


def by_numpy(chain, values):
    """Every matrix of a chain, from the given ones."""
    values = dict(values)
    for each in chain.operations:
        c, taken = chain.matrices[each.c], [values[name] for name in each.takes]
        if isinstance(each, Matmul):
            a, b = (x.T if t in each.transpose else x for x, t in zip(taken, "ab"))
            values[each.c] = a @ b
        else:
            values[each.c] = np.empty((c.rows, c.cols))
            apply(each.function, values[each.c], taken)
    return values
