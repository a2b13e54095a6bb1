"""Predicted and measured times of the same cases: how often their order is right, and how far they
are apart."""

from collections.abc import Iterable

from drbench.measure.record import Record
from drbench.model.machine import Machine
from launch.cases.case import Case
from launch.models.explained import case_of_timeline
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


def at_calibrated_pace(measured, predicted):
    """The measured rows with the times they would have had, had the machine been as fast as when it
    was calibrated.

    The local products beside the repeats of a case, its roof, are the same work as those that the
    model predicts. So a time is the predicted roof over the measured share of the roof, the median
    of pairs: what is then compared are shares of the roof. Rows without a roof, or without a
    prediction, are left out.

    Parameters
    ----------
    measured, predicted : DataFrame
        As of :func:`beside`.

    Examples
    --------
    The machine was half as fast in the second case as in the first, and as the model has it.

    >>> from drbench.measure.record import Record
    >>> from plots.select.records import frame
    >>> case = {"m": 8, "n": 8, "k": 8, "a": "row", "b": "row", "stationary": "C", "ranks": 2}
    >>> case |= {"status": "ok", "transport": "rma"}
    >>> ran = [("row", 2.0, 50.0), ("column", 8.0, 25.0)]
    >>> measured = frame(
    ...     [
    ...         Record(mode="measured", c=c, best_s=time, percent_of_roof=share, **case)
    ...         for c, time, share in ran
    ...     ]
    ... )
    >>> predicted = frame(
    ...     [Record(mode="simulated", c=c, best_s=3.0, local_gemm_s=1.0, **case) for c, *_ in ran]
    ... )
    >>> list(at_calibrated_pace(measured, predicted).time_s)
    [2.0, 4.0]
    """
    roofs = predicted[[*CASE, "local_gemm_s"]].rename(columns={"local_gemm_s": "roof_s"})
    found = measured.merge(roofs, on=CASE)
    found = found.assign(time_s=100 * found.roof_s / found.percent_of_roof)
    return found[found.time_s.notna()]


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


def case_of(record: Record) -> Case:
    """The case that a record is of, as a model knows it."""
    about = {name: getattr(record, name) for name in record.__slots__}
    if record.nodes and record.nodes > 1:  # a model of several knows how its ranks reach each other
        about |= {"transport": "auto"}
    if record.backend == "cupy":  # a model has one transport, and knows no backends
        about |= {"transport": "auto", "backend": None, "get": None}
        about |= dict.fromkeys(("max_gemms", "max_accumulates", "accumulate_blocks", "compute"))
    return case_of_timeline(about)
