"""Predicted and measured times of the same cases: how often their order is right, and how far they
are apart."""

from collections.abc import Iterable

from drbench.model.machine import Machine
from launch.cases.case import Case
from launch.models.predict import predict

#: What makes a measured and a predicted row the same case.
CASE = ["m", "n", "k", "a", "b", "c", "stationary", "transport", "ranks"]


def concordance(pairs: Iterable[tuple[float, float]], apart: float = 0.10) -> tuple[float, int]:
    """Share of pairs of cases, measured more than ``apart`` apart, whose order the prediction has
    right; and how many there are.

    Parameters
    ----------
    pairs : iterable of (float, float)
        Measured and predicted seconds of each case.

    Examples
    --------
    >>> concordance([(1.0, 1.1), (2.0, 2.2), (4.0, 2.0), (4.1, 2.1)])
    (0.6, 5)
    """
    from numpy import array, triu_indices

    times, predicted = array(list(pairs)).T
    one, other = triu_indices(len(times), 1)
    t, u, p, q = times[one], times[other], predicted[one], predicted[other]
    counted = (t > (1 + apart) * u) | (u > (1 + apart) * t)
    total = int(counted.sum())
    right = int((((t < u) == (p < q)) & counted).sum())
    return right / total if total else float("nan"), total


def beside(measured, predicted):
    """The measured rows that are ok and were predicted, with the columns ``predicted_s`` and
    ``error``, its share above the measured time, the median of the repeats.

    Parameters
    ----------
    measured, predicted : DataFrame of :func:`plots.select.records.read_records`
        Of the measured, several rows may be of one case (:data:`CASE`).
    """
    times = predicted[[*CASE, "time_s"]].rename(columns={"time_s": "predicted_s"})
    pairs = measured[measured.status == "ok"].merge(times, on=CASE)
    return pairs.assign(error=pairs.predicted_s / pairs.time_s - 1)


def with_predictions(measured, machine: Machine):
    """The same (:func:`beside`) of the times that a machine model gives now."""
    cases = measured[measured.status == "ok"].drop_duplicates(CASE)
    predicted = [
        predict(
            Case(
                *(row.m, row.n, row.k, row.a, row.b, row.c),
                options={"stationary": row.stationary},
                transport=row.transport,
            ),
            machine,
            row.ranks,
        ).time_s
        for row in cases.itertuples()
    ]
    return beside(measured, cases.assign(time_s=predicted))
