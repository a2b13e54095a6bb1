"""Every matrix of a chain of multiplications, by NumPy."""

import numpy as np

from drbench.chains.model.description import Matmul
from drbench.chains.model.functions import apply


def by_numpy(chain, values):
    """Every matrix of a chain, from the given ones."""
    values = dict(values)
    for each in chain.operations:
        c, taken = chain.matrices[each.c], [values[name] for name in each.takes]
        if isinstance(each, Matmul) and each.experts[1]:
            values[each.c] = of_experts(each, c, *taken, tokens=chain.matrices["X"].rows)
        elif isinstance(each, Matmul):
            a, b = (x.T if t in each.transpose else x for x, t in zip(taken, "ab"))
            values[each.c] = a @ b
        else:
            values[each.c] = np.empty((c.rows, c.cols))
            apply(each.function, values[each.c], taken)
    return values


def of_experts(each, c, a, b, tokens):
    """A layer of experts one pair at a time: expert (t + choice) mod E is a choice of token t."""
    (experts, topk), first = each.experts, len(a) == tokens
    out = np.zeros((c.count, c.rows, c.cols))
    for pair in range(tokens * topk):
        token, choice = divmod(pair, topk)
        expert, row = (token + choice) % experts, token if first else pair
        if "a" in each.transpose:
            out[expert] += np.outer(a[row], b[pair if first else token])
        else:
            matrix = b.reshape(experts, *b.shape[-2:])[expert]
            out[0, pair if first else token] += a[row] @ (matrix.T if each.transpose else matrix)
    return out if c.count > 1 else out[0]
