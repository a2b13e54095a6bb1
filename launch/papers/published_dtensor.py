"""The published times of PyTorch's DTensor on 8 H100, beside what a machine model says of its
program (:mod:`algorithms.dtensor_mm`)."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from drbench.model.machine import Machine
from launch.cases.case import Case
from launch.host.files import ROOT
from launch.models.predict import predict
from launch.models.simulate_sweeps import dtensor_case

PUBLISHED = ROOT / "results/published/h100.csv"


class Point(NamedTuple):
    """One published time.

    Attributes
    ----------
    layer, series : str
        As "mlp1" and "DT - Row".
    m : int
    published_s, predicted_s : float
    """

    layer: str
    series: str
    m: int
    published_s: float
    predicted_s: float

    @property
    def error(self) -> float:
        """Share by which the prediction is longer (or, below 0, shorter)."""
        return self.predicted_s / self.published_s - 1


def points(machine: Machine) -> list[Point]:
    """The 16 points of Figure 3 of "Slicing Is All You Need", in order: A, B and C all by rows, or
    all by columns.

    Examples
    --------
    >>> from launch.cases.machine_models import find_machine
    >>> found = points(find_machine("h100x8"))
    >>> len(found), found[0].layer, found[0].series, found[0].m
    (16, 'mlp1', 'DT - Row', 1024)
    """
    return [
        Point(layer, series, case.m, took, predict(case, machine, 8).best_s)
        for layer, series, case, took in cases()
    ]


def cases(path: Path = PUBLISHED) -> Iterator[tuple[str, str, Case, float]]:
    """(layer, series, case, published seconds) of each of them."""
    from plots.select.records import read_published

    for row in read_published(path):
        if not row.algorithm.startswith("DT - "):
            continue
        by = row.algorithm.rpartition(" ")[2].lower()
        case = dtensor_case(row.m, row.n, row.k, by)
        took = 2 * row.m * row.n * row.k / (row.gflops * 1e9)
        yield "mlp1" if row.n > row.k else "mlp2", row.algorithm, case, took
