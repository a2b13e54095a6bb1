"""Fits of machine constants to measured times: linear, without negative coefficients, by relative
error."""

import statistics
from collections.abc import Sequence
from math import exp, inf, log, sqrt

import numpy as np

from drbench.errors import CaseFailed

#: Share of new cases that the spread of residuals must cover.
COVERED = 0.95
#: Student's t at that share, by degrees of freedom; other numbers use the next smaller one.
_STUDENT = {1: 12.71, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 8: 2.306, 10: 2.228}
_STUDENT |= {12: 2.179, 15: 2.131, 20: 2.086, 30: 2.042}
#: Candidates for the elements of k between two passes over C of a library; inf: all.
K_BLOCKS = (256, 320, 384, 448, 512, 768, 1024, inf)


def nonnegative(columns: Sequence[Sequence[float]], seconds: Sequence[float]) -> list[float]:
    """Coefficients >= 0 that fit ``seconds`` to the columns with the least squared relative error.

    A coefficient that would be negative is set to 0, the most negative first.

    Examples
    --------
    >>> [round(x, 6) for x in nonnegative([[1, 1, 1], [1, 2, 3]], [3, 5, 7])]
    [1.0, 2.0]
    >>> [
    ...     round(x, 6) for x in nonnegative([[1, 1, 1], [1, 2, 3]], [1, 3, 5])
    ... ]  # an exact fit would have -1
    [0.0, 1.256158]
    """
    matrix = np.array(columns, float).T / np.array(seconds, float)[:, None]
    used = list(range(matrix.shape[1]))
    while used:
        # columns of very different size (seconds of a FLOP, and of a launch)
        scale = np.linalg.norm(matrix[:, used], axis=0)
        solution = (
            np.linalg.lstsq(matrix[:, used] / scale, np.ones(len(seconds)), rcond=None)[0] / scale
        )
        if (solution >= -1e-12 / scale).all():
            break
        used.pop(int(np.argmin(solution * scale)))
    fitted = dict(zip(used, solution)) if used else {}
    return [max(0.0, float(fitted.get(place, 0.0))) for place in range(matrix.shape[1])]


def fit_gemm(samples: Sequence[tuple[int, int, int, float]]) -> tuple[dict, float]:
    """Launch, rate, packing and block of k of local GEMMs ``(m, n, k, seconds)``; the constants and
    the median relative error.

    The block is the one of :data:`K_BLOCKS` with which the other constants fit best.

    Examples
    --------
    >>> time = lambda m, n, k: (
    ...     1e-6 + 2 * m * n * k / 1e11 + 2e-9 * k * n + 1e-9 * m * n * -(-k // 384)
    ... )
    >>> shapes = [(m, n, k) for m in (64, 512) for n in (64, 1024) for k in (128, 600, 1300, 2048)]
    >>> fitted, error = fit_gemm([(*shape, time(*shape)) for shape in shapes])
    >>> print(
    ...     f"{fitted['peak_flops']:.3g} {fitted['launch_s']:.2g} {fitted['k_block']}", error < 1e-6
    ... )
    1e+11 1e-06 384 True
    >>> [f"{seconds:.2g}" for seconds in fitted["pack_s"][1:]]
    ['2e-09', '1e-09']
    """
    m, n, k, seconds = (np.array(column, float) for column in zip(*samples))
    fits = []
    for k_block in K_BLOCKS:
        columns = [
            np.ones_like(m),
            2 * m * n * k,
            m * k,
            k * n,
            m * n * np.maximum(1, np.ceil(k / k_block)),
        ]
        coefficients = nonnegative(columns, seconds)
        errors = abs(np.array(coefficients) @ np.array(columns) / seconds - 1)
        fits.append((float((errors**2).sum()), k_block, coefficients, statistics.median(errors)))
    _, k_block, (launch, per_flop, a, b, c), error = min(fits)
    if not per_flop:
        raise CaseFailed(
            "GEMMs of more FLOPs did not take longer, so no rate can be fitted. Measure when "
            "the machine is quiet, or with more --rounds."
        )
    return {
        "peak_flops": 1 / per_flop,
        "launch_s": launch,
        "pack_s": [a, b, c],
        "k_block": k_block,
    }, float(error)


def fit_transposed(
    samples: Sequence[tuple[int, int, int, float]],
    transposed: Sequence[tuple[int, int, int, str, float]],
) -> list[float]:
    """Added seconds for each element of A, and of B, that is stored transposed: the median over
    GEMMs ``(m, n, k, operand, seconds)`` of their time minus that of the same in ``samples``,
    ``(m, n, k, seconds)``; at least 0.

    Examples
    --------
    >>> plain = [(8, 16, 32, 1.0), (16, 16, 16, 0.5)]
    >>> slower = [(*shape, "a", time + shape[0] * shape[2] / 1024) for *shape, time in plain]
    >>> faster = [(*shape, "b", time - 0.125) for *shape, time in plain]
    >>> fit_transposed(plain, slower + faster)
    [0.0009765625, 0.0]
    """
    plain = {tuple(shape): seconds for *shape, seconds in samples}
    more: dict[str, list[float]] = {"a": [], "b": []}
    for m, n, k, operand, seconds in transposed:
        elements = m * k if operand == "a" else k * n
        more[operand].append((seconds - plain[m, n, k]) / elements)
    return [max(0.0, statistics.median(times)) for times in more.values()]


def fit_line(samples: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
    """Latency in seconds and bytes per second of transfers ``(bytes, seconds)``; for ``(bytes, rows
    that are not contiguous, seconds)`` also the bytes per second of transfers with such rows, and
    the seconds of each row.

    Examples
    --------
    >>> latency_s, bandwidth = fit_line([(1000, 2e-6), (2000, 3e-6), (4000, 5e-6)])
    >>> f"{latency_s:.2g} {bandwidth:.2g}"
    '1e-06 1e+09'
    >>> latency_s, bandwidth, strided, row_s = fit_line(
    ...     [(x, 0, 1e-6 + x / 1e9) for x in (1e3, 1e4, 1e6)]
    ...     + [(x, rows, 1e-6 + x / 5e8 + rows * 1e-7) for x in (1e4, 1e6) for rows in (8, 64)]
    ... )
    >>> f"{latency_s:.2g} {bandwidth:.2g} {strided:.2g} {row_s:.2g}"
    '1e-06 1e+09 5e+08 1e-07'
    """
    nbytes, *rows, seconds = zip(*samples)
    strided = [[size if many else 0 for size, many in zip(nbytes, rows[0])]] if rows else []
    columns = [[1.0] * len(nbytes), nbytes, *strided, *rows]
    latency, per_byte, *more = nonnegative(columns, seconds)
    if not rows:
        return latency, _rate(per_byte)
    return latency, _rate(per_byte), _rate(per_byte + more[0]), more[1]


def _rate(per_byte: float) -> float:
    """Bytes per second."""
    return 1 / per_byte if per_byte else inf


def fit_collective(samples: Sequence[tuple[int, float, float]]) -> dict:
    """Launch, synchronisation and bandwidth of ``(ranks, bytes of a shard, seconds)``: launch +
    (P-1)(sync + bytes / bandwidth).

    With one number of ranks launch and synchronisation are not distinguishable: ``launch_s`` then
    contains both.

    Examples
    --------
    >>> time = lambda p, x: 5e-6 + (p - 1) * (1e-6 + x / 1e9)
    >>> fitted = fit_collective([(p, x, time(p, x)) for p in (2, 4) for x in (1e3, 1e5, 1e6)])
    >>> f"{fitted['launch_s']:.2g} {fitted['sync_s']:.2g} {fitted['bandwidth_bytes_per_s']:.2g}"
    '5e-06 1e-06 1e+09'
    """
    ranks, nbytes, seconds = (np.array(column, float) for column in zip(*samples))
    columns = [np.ones_like(ranks), (ranks - 1) * nbytes, ranks - 1]
    launch, per_byte, *sync = nonnegative(columns[: 2 + (len(set(ranks)) > 1)], seconds)
    return {
        "launch_s": launch,
        "sync_s": sum(sync),
        "bandwidth_bytes_per_s": _rate(per_byte),
    }


def spread(ratios: Sequence[float]) -> tuple[float, float]:
    """The factors of its prediction between which the next measured time is in 95 of 100 cases.

    Parameters
    ----------
    ratios : sequence of float
        Measured over predicted times of similar cases, at least two.

    Notes
    -----
    The i-th smallest and largest ratio, with the largest allowed i: of n ratios the next is between
    them in (n + 1 - 2 i) of n + 1 cases, whatever their distribution (conformal prediction; Vovk et
    al., 2005). That needs 39 ratios. With fewer the interval of the next value of a log-normal
    distribution is used (Student's t). The interval always contains the prediction itself.

    Examples
    --------
    >>> spread([1 + x / 1000 for x in range(-19, 20)]), spread([1.0, 1.0, 1.0])
    ((0.981, 1.019), (1.0, 1.0))
    >>> [round(end, 3) for end in spread([0.98, 1.0, 1.01, 1.03])]
    [0.933, 1.082]
    """
    count = len(ratios)
    cut = int((1 - COVERED) * (count + 1) / 2 + 1e-9)
    if cut:
        ordered = sorted(ratios)
        low, high = ordered[cut - 1], ordered[-cut]
    else:
        logs = [log(ratio) for ratio in ratios]
        free = max(known for known in _STUDENT if known < count)
        half = _STUDENT[free] * statistics.stdev(logs) * sqrt(1 + 1 / count)
        middle = statistics.fmean(logs)
        low, high = exp(middle - half), exp(middle + half)
    return min(1.0, low), max(1.0, high)
