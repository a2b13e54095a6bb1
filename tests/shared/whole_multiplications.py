"""The expected C of a whole problem; a separate module, so that ranks need not import the
oracles."""

import numpy as np

from drbench.algorithms.overlap.experts import _counts
from drbench.partitions import part


def expected(problem, a, b):
    """A·B; of experts by a loop over pairs, in whole numbers of Python."""
    if problem.plain:
        return a @ b
    a, b = ([[int(x) for x in row] for row in matrix] for matrix in (a, b))
    inner, columns, made = range(problem.k), range(problem.n), []
    summed = [[0] * problem.n for _ in range(problem.m)]
    for row, (expert, token) in enumerate(pairs_of_experts(problem)):
        x = a[row] if problem.second else a[token]
        made.append([sum(x[l] * b[expert * problem.k + l][j] for l in inner) for j in columns])
        for j in columns:
            summed[token][j] += made[-1][j]
    return np.array(summed if problem.second else made, float)


def pairs_of_experts(problem):
    """(expert, token) of each pair of a layer of experts, one by one: in
    order of experts, dealt cyclically to a rank's tokens."""
    layer, found = (problem.experts, problem.topk, problem.routing), []
    for rank, counts in enumerate(_counts(problem.m, problem.nprocs, *layer)):
        start, stop = part(problem.m, rank, problem.nprocs)
        experts = [expert for expert, count in enumerate(counts) for _ in range(count)]
        found += [
            (expert, rank, at, start + at % (stop - start)) for at, expert in enumerate(experts)
        ]
    return [(expert, token) for expert, _, _, token in sorted(found)]
