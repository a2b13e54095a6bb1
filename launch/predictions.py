"""``drbench.simulate``, ``drbench.tune`` and ``drbench.explain``: the commands of these names as
functions. They need no MPI."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from drbench.errors import UsageError
from drbench.launch.cases.case import FIELDS, Case, partition_texts
from drbench.launch.cases.command_line import describe, run_command
from drbench.launch.cases.machine_models import find_machine
from drbench.launch.models.explained import explained
from drbench.launch.models.predict import predict_with, ranks_on, refuse_failed
from drbench.launch.tune.rank import tune as search
from drbench.launch.tune.report import answer
from drbench.launch.tune.request import REPLICATION, TuneRequest
from drbench.launch.tune.result import SearchResult
from drbench.measure.record import Record
from drbench.model.machine import Machine
from drbench.options import check_options
from drbench.version import read_version


@dataclass(frozen=True)
class Prediction:
    """What a case takes on a machine model.

    Attributes
    ----------
    case : Case
        What is predicted, with the layouts, the algorithm and the options that were chosen.
    record : Record
        Everything that is predicted, in columns: ``record.gflops``, ``record.moved_bytes``.
    """

    case: Case
    record: Record

    @property
    def time_s(self) -> float:
        """Predicted seconds."""
        return self.record.best_s

    @property
    def interval_s(self) -> tuple[float, float] | None:
        """Seconds between which a run is expected; None where nothing is known of it."""
        low, high = self.record.median_low_s, self.record.median_high_s
        return None if low is None else (low, high)

    @property
    def layouts(self) -> tuple[str, str, str]:
        """Text forms of the layouts of A, B and C."""
        return self.record.a, self.record.b, self.record.c

    @property
    def algorithm(self) -> str:
        """The algorithm and its options, short."""
        return describe(self.record)

    @property
    def command(self) -> str:
        """The command that runs the case."""
        return run_command(self.case, self.record.ranks)

    def __str__(self) -> str:
        from drbench.launch.host.show import answer_text  # Rich

        return answer_text(self.record)


@dataclass(frozen=True)
class Choice:
    """What :func:`tune` found.

    Attributes
    ----------
    ranking : list of Prediction
        The best first.
    yours : Prediction or None
        The best on the layouts that the case names; None if it names none, or nothing fits there.
    answer : str
        What your layouts cost, the best, and whether changing pays, in three lines.
    found : SearchResult
        All that is known of the search, such as ``found.pays_after`` and ``found.left``.
    """

    ranking: list[Prediction]
    yours: Prediction | None
    answer: str
    found: SearchResult

    def rows(self) -> list[dict[str, Any]]:
        """The ranking as rows of a table, for ``pandas.DataFrame``."""
        rows = []
        for place, choice in zip(self.found.ranking, self.ranking):
            low, high = choice.interval_s or (None, None)
            rows.append(
                {
                    **dict(zip("ABC", choice.layouts)),
                    "algorithm": choice.algorithm,
                    "time_ms": 1e3 * choice.time_s,
                    "low_ms": low and 1e3 * low,
                    "high_ms": high and 1e3 * high,
                    "percent_of_gemm_only": choice.record.percent_of_gemm_only,
                    "moved_MiB": place.moved_bytes / 2**20,
                    "memory_MiB": place.memory / 2**20,
                }
            )
        return rows

    def __str__(self) -> str:
        return self.answer


@dataclass(frozen=True)
class Page:
    """What :func:`explain` made.

    Attributes
    ----------
    html : str
        One file that loads nothing from anywhere.
    verdict : str
        The first lines of the page: a sentence for each case, and one that compares them.
    """

    html: str
    verdict: str

    def save(self, path: str | os.PathLike) -> Path:
        """Write the page into a file, and return its path.

        Parameters
        ----------
        path : str or path
            The file, which is overwritten.
        """
        Path(path).write_text(self.html, encoding="utf-8", newline="")
        return Path(path)

    def __str__(self) -> str:
        return self.verdict


def simulate(case: Case, machine: str, ranks: int | None = None) -> Prediction:
    """Predict the time of a multiplication on a machine model, as ``drbench simulate`` does.

    Parameters
    ----------
    case : Case
        The problem, its layouts and its algorithm.
    machine : str
        Name of a machine model (``drbench list machines``), or the path of a machine file.
    ranks : int, optional
        How many multiply; by default one on each device of the machine.

    Returns
    -------
    Prediction
        The time, its interval, and everything else that is predicted.

    Raises
    ------
    UsageError
        If the case or the machine makes no sense.
    UnsupportedError, OutOfMemory
        If the algorithm refuses the case, or a device has not enough memory.

    Examples
    --------
    >>> import drbench
    >>> case = drbench.Case(1024, 3072, 768, preset="column", options={"stationary": "C"})
    >>> print(drbench.simulate(case, "h100x8", ranks=2))
    Predicted: 89.5 µs (66.9-136), 75 % of GEMM-only speed, 54 TFLOP/s.
    """
    model, case, ranks = _checked(case, machine, ranks)
    record, _ = predict_with(case, model, ranks, pool=True, interval=True)
    refuse_failed(record)
    return Prediction(case, record)


def tune(
    case: Case,
    machine: str,
    ranks: int | None = None,
    *,
    fix: str = "",
    multiplications: int = 100,
    replication: str = "none",
    only: Sequence[str] = (),
    memory: int | None = None,
    top: int = 10,
    effort: float | None = None,
) -> Choice:
    """Choose layouts, algorithm and options for a multiplication, as ``drbench tune`` does.

    Parameters
    ----------
    case : Case
        The problem, and the layouts of A and B today and of the C that is needed; without layouts
        nothing is redistributed.
    machine : str
        Name of a machine model (``drbench list machines``), or the path of a machine file.
    ranks : int, optional
        How many multiply; by default one on each device of the machine.
    fix : str
        Matrices that keep their layouts, as ``"ac"``.
    multiplications : int
        How many share the price of redistributing the matrices.
    replication : str
        Replication factors to try: ``none``, ``equal``, ``paired`` or ``all``.
    only : sequence of str
        Algorithms to try; all by default.
    memory : int, optional
        Most bytes of tiles and buffers a rank may use; by default the memory of the device.
    top : int
        Places of the ranking.
    effort : float, optional
        Seconds of CPU to search, about; 0: until nothing that is left can be better, which makes
        the answer the same every time. By default 9, or ranks/40.

    Returns
    -------
    Choice
        The ranking, the prediction for the layouts of the case, and the answer in words.

    Raises
    ------
    UsageError
        If the case or the machine makes no sense.
    UnsupportedError, OutOfMemory
        If no candidate is left that the algorithms accept and that fits into memory.

    Examples
    --------
    >>> import drbench
    >>> case = drbench.Case(1024, 3072, 768, preset="row")
    >>> choice = drbench.tune(case, "h100x8", ranks=2, only=["universal"], effort=0)
    >>> choice.ranking[0].layouts, choice.found.left
    (('row', 'column', 'row'), 0)
    >>> choice.ranking[0].time_s < choice.yours.time_s
    True
    """
    model, case, ranks = _checked(case, machine, ranks)
    if replication not in REPLICATION:
        raise UsageError(f"replication is one of {', '.join(REPLICATION)}; got {replication!r}.")
    if set(fix) - {name for name in "abc" if getattr(case, name)}:
        raise UsageError(f"fix names matrices whose layout the case names, got {fix!r}.")
    request = TuneRequest.of(
        case,
        ranks,
        fix,
        effort,
        algorithms=tuple(only) or None,
        memory=memory,
        replication=replication,
        top=top,
        multiplications=multiplications,
    )
    result = search(request, model)
    ranking = [Prediction(place.case, place.record) for place in result.ranking if place.record]
    mine = result.mine
    yours = Prediction(mine.case, mine.record) if mine and mine.record else None
    return Choice(ranking, yours, "\n".join(answer(result, request)), result)


def explain(case: Case, machine: str, ranks: int | None = None, other: Case | None = None) -> Page:
    """Make the page that shows a simulated run moment by moment, as ``drbench explain`` does.

    Parameters
    ----------
    case : Case
        The problem, its layouts and its algorithm.
    machine : str
        Name of a machine model (``drbench list machines``), or the path of a machine file.
    ranks : int, optional
        How many multiply; by default one on each device of the machine.
    other : Case, optional
        A second case, shown next to the first.

    Returns
    -------
    Page
        One HTML file, which ``save`` writes, and its first sentences.

    Raises
    ------
    UsageError
        If the case or the machine makes no sense.
    UnsupportedError, OutOfMemory
        If the algorithm refuses a case, or a device has not enough memory.

    Examples
    --------
    >>> import drbench
    >>> case = drbench.Case(1024, 3072, 768, preset="column", options={"stationary": "C"})
    >>> page = drbench.explain(case, "h100x8", ranks=2)
    >>> page.verdict.partition(";")[0]
    '89.5 µs (66.9-136), GEMMs of the busiest rank take 100 % of the time'
    """
    from drbench.plots.report.explained import explained_page, verdict

    shown = []
    for given in filter(None, (case, other)):
        model, checked, count = _checked(given, machine, ranks)
        shown.append(explained(checked, model, count))
    page = explained_page(shown, read_version()["version"])
    return Page(page, "\n".join(filter(None, verdict(shown))))


def _checked(case: Case, machine: str, ranks: int | None) -> tuple[Machine, Case, int]:
    """The machine, the case with its layouts, its values checked, and the number of ranks."""
    model = find_machine(machine)
    check_options(FIELDS, vars(case))
    ranks = ranks_on(model, ranks)
    layouts: dict[str, Any] = partition_texts(vars(case), ranks)
    return model, replace(case, **layouts), ranks
