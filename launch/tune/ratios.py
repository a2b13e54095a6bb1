"""How much longer programs take than their estimates, learned from those that were simulated.

Programs that share attributes, such as the algorithm, the mesh or the layout of a matrix, have
similar ratios: the logarithm of a ratio is a sum of one unknown number per attribute (and pair of
them), of equal variance. So the covariance of two programs is the number of attributes that they
share, and the ratio of any other program follows with its uncertainty (kriging; Gaussian process
regression).
"""

import numpy as np

from drbench.launch.cases.case import Case

#: Attributes of a program; the first is the same for all.
ATTRIBUTES = 8
#: Variances of the contribution of an attribute, and of what the attributes do not explain.
_SHARED, _OWN = 0.03, 0.003
#: Standard deviations by which a ratio may be smaller than likely.
_OPTIMISM = 1.0
#: Programs that are learned from: more would not pay for the time of the regression.
_MOST = 200


class Numbers(dict):
    """A number for everything that programs share."""

    def __missing__(self, key) -> int:
        return self.setdefault(key, len(self) + 1)

    def attributes(self, case: Case, resolved: dict) -> tuple[int, ...]:
        """The attributes of a program: of the universal algorithm the stationary matrix and the
        layouts, of others the options. The second is its kind."""
        if case.algorithm == "universal":
            pushes, stationary = resolved.get("sums") == "push", resolved["stationary"]
            kind = self[case.algorithm, stationary, pushes, case.a == case.b == case.c]
            triple = np.array([[self[text] for text in (case.a, case.b, case.c)]])
            return tuple(map(int, attributes_of_triples(kind, stationary, triple)[0]))
        kind, values = self[case.algorithm], [*case.options.items(), *[None] * ATTRIBUTES]
        return 0, kind, *(_number(kind, self[value]) for value in values[: ATTRIBUTES - 2])


def attributes_of_triples(kind: int, stationary: str, triples: np.ndarray) -> np.ndarray:
    """The attributes of triples of numbers of layouts, an array (triple, matrix): each layout, each
    with that of the stationary matrix, and which are equal."""
    layouts = dict(zip("ABC", triples.T))
    own = layouts.pop(stationary)
    first, second = layouts.values()
    singles = [_number(kind, layout) for layout in (own, first, second)]
    pairs = [_number(kind, own, layout) for layout in (first, second)]
    equal = _number(kind, (own == first) + 2 * (own == second) + 4 * (first == second))
    return np.stack([0 * own, 0 * own + kind, *singles, *pairs, equal], axis=1)


def _number(kind, first, second=0):
    """The number of an attribute, or of a pair, of one kind of programs."""
    return ((kind << 20) + first << 20) + second


class Ratios:
    """The ratios of the programs that were simulated.

    Examples
    --------
    Programs like the one that takes twice its estimate are likely to take twice theirs, others may
    take less:

    >>> ratios = Ratios()
    >>> ratios.learn((0, 1, 2, 3, 4, 5, 6, 7), 2.0)
    >>> same, related, other = range(8), (0, 1, 2, 3, 9, 9, 9, 9), (0, *[9] * 7)
    >>> [f"{ratio:.2f}" for ratio in ratios.likely(np.array([[*same], related, other]))]
    ['1.98', '1.41', '1.09']
    >>> [f"{ratio:.2f}" for ratio in ratios.optimistic(np.array([[*same], related, other]))]
    ['1.88', '0.92', '0.67']
    """

    def __init__(self):
        self._seen = np.empty((0, ATTRIBUTES), dtype=np.int64)
        self._logs: list[float] = []
        self._inverse = np.empty((0, 0))

    def __len__(self) -> int:
        return len(self._logs)

    def learn(self, attributes: tuple[int, ...], ratio: float) -> None:
        """Add the ratio of a program: its cost over its estimate."""
        if len(self) < _MOST and ratio > 0:
            self._seen = np.vstack([self._seen, attributes])
            self._logs.append(np.log(ratio))
            known = _covariance(self._seen, self._seen) + _OWN * np.eye(len(self))
            self._inverse = np.linalg.inv(known)

    def likely(self, attributes: np.ndarray) -> np.ndarray:
        """The likely ratios of programs, an array (program, attribute)."""
        return np.exp(_covariance(attributes, self._seen) @ self._inverse @ self._logs)

    def optimistic(self, attributes: np.ndarray) -> np.ndarray:
        """The ratios that programs may have at best; 1 while none is known."""
        if not self._logs:
            return np.ones(len(attributes))
        shared = _covariance(attributes, self._seen)
        weights = shared @ self._inverse
        left = _SHARED * ATTRIBUTES - (weights * shared).sum(axis=1)
        return np.exp(weights @ self._logs - _OPTIMISM * np.sqrt(left.clip(0)))


def _covariance(some: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Covariances of the logarithms of the ratios of programs."""
    shared = np.zeros((len(some), len(others)))
    for column, other in zip(some.T, others.T):
        shared += column[:, None] == other
    return _SHARED * shared
