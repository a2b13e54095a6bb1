"""The ledger: every measured or published number that a model predicts, with its prediction, and
whether the numbers of a group are predicted as accurately as the documentation says.

==================  ==============================================================================
group               numbers
==================  ==============================================================================
dtensor-h100        the 16 published times of DTensor (Figure 3 of "Slicing Is All You Need")
epyc-rma            the model's study on an EPYC, over RMA: in two pseudo-random halves;
                    the interval of each is made of the residuals of the other half
epyc-throttled      likewise, on throttled links
epyc-mixed          likewise, on two virtual nodes of two ranks each, which share cores: percent of
                    GEMM-only speed, for this machine is not always as fast as when calibrated
epyc-network        likewise, with one rank a node
spr-rma, -throttled as those of the EPYC, on a Sapphire Rapids
spr-mlp             both MLP shapes on this machine, read in place: none was used to calibrate
h100-one-rank       GEMMs on one H100
==================  ==============================================================================

COSMA's published points on H100 are in no group, because drbench has no such program. The numbers
of the papers about overlap and MeshSlice are compared with ours in their claims (T1 to T15, F1 to
F16, M2 to M22).

``results/ledger.csv`` has the rows, a study like those of the papers, which ``drbench artifact``
repeats in seconds.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from pandas import DataFrame

from drbench.launch.cases.case import Case
from drbench.launch.cases.command_line import describe
from drbench.launch.cases.machine_models import find_machine
from drbench.launch.host.files import CHECKOUT
from drbench.launch.models.explained import case_of
from drbench.launch.models.predict import predict, with_interval
from drbench.measure.record import Record
from drbench.measure.record_file import read_csv
from drbench.model.machine import Machine
from drbench.plots.select.records import read_published
from drbench.plots.select.typed_rows import RowFiles

from .claims import Claim, Paper, ResultRows, concordance

#: Largest mean error of a group in percent: programs of which one takes 10 % longer are then
#: mostly in the right order.
MOST_ERROR = 5.0
#: Least share of a group's numbers within their intervals, and largest median half width of these
#: intervals in percent.
LEAST_INSIDE, MOST_HALF = 0.90, 10.0
#: Least share of pairs of measured times in the right order.
CONCORDANT = 0.97
_RESULTS = CHECKOUT / "results"


class LedgerRow(NamedTuple):
    """One number.

    Attributes
    ----------
    group : str
        Points of one origin; new ones are a new group.
    mode : str
        ``measured`` or ``published``.
    machine : str
        Model that predicted it.
    what : str
        The case in words.
    unit : str
        ``s``, or ``%`` of GEMM-only speed.
    value, predicted : float
    low, high : float or None
        The interval of the prediction; None if there is none, or if it depends on this number.
    source : str
        The file with the number.
    """

    group: str
    mode: str
    machine: str
    what: str
    unit: str
    value: float
    predicted: float
    low: float | None
    high: float | None
    source: str


ROWS = RowFiles(LedgerRow, "ledger", "python -m drbench.launch.papers DIR ledger")


def choose_half(program: str) -> bool:
    """Choose the half of a program, by a reproducible pseudo-random choice.

    Examples
    --------
    >>> [choose_half(f"program {number}") for number in range(6)]
    [False, True, True, True, True, True]
    """
    return bool(sha256(program.encode()).digest()[0] % 2)


def dtensor_cases(path: Path) -> Iterator[tuple[str, Case, float]]:
    """(words, case, published seconds) of each of the 16 points."""
    for row in read_published(path):
        if row.algorithm.startswith("DT - "):
            by = row.algorithm.rpartition(" ")[2].lower()
            case = Case(row.m, row.n, row.k, by, by, by, algorithm="dtensor_mm")
            layer = "mlp1" if row.n > row.k else "mlp2"
            seconds = 2 * row.m * row.n * row.k / (row.gflops * 1e9)
            yield f"{layer} {row.algorithm} m={row.m}", case, seconds


def _dtensor() -> Iterator[LedgerRow]:
    """The rows of DTensor, without intervals, which depend on the errors here."""
    source, machine = "published/h100.csv", find_machine("h100x8")
    for what, case, took in dtensor_cases(_RESULTS / source):
        ours = predict(case, machine, 8).best_s
        description = "", "published", machine.name, what, "s"
        yield LedgerRow(*description, took, ours, None, None, source)


def _runs(source: str, machine: Machine, as_share: bool = False) -> list[tuple]:
    """Our undisturbed measured cases, each once, with their predictions, if the measured programs
    are the current ones. With ``as_share`` also disturbed or oversubscribed ones, whose
    GEMM-only speed was affected in the same way."""
    runs = {}
    for record in read_csv(_RESULTS / source):
        disturbed = record.noisy or record.oversubscribed
        if record.status != "ok" or (disturbed and not as_share):
            continue
        case = case_of(record)
        now = predict(case, machine, record.ranks)
        if (now.steps, now.moved_bytes) == (record.steps, record.moved_bytes):
            runs.setdefault(_what(record), (record, case, now))
    return list(runs.values())


def _what(record: Record) -> str:
    shape = f"{record.m}x{record.n}x{record.k}"
    words = [shape, record.a, record.b, record.c, describe(record, sizes=True)]
    words += [record.transport, record.dtype, record.compute, f"p={record.ranks}"]
    return " ".join(filter(None, words))


#: The predicted value of a case with its interval, and its unit, by whether it is a share of
#: GEMM-only speed.
_PREDICTED = {
    False: ("s", "best_s", "median_low_s", "median_high_s"),
    True: ("%", "percent_of_gemm_only", "percent_of_gemm_only_low", "percent_of_gemm_only_high"),
}


def _measured(
    source: str, machine: Machine, run: tuple[Record, Case, Record], as_share: bool = False
) -> LedgerRow:
    record, case, now = run
    predicted = with_interval(now, case, machine, record.ranks)
    unit, *names = _PREDICTED[as_share]
    value = record.percent_of_gemm_only if as_share else record.time_s
    ours = (getattr(predicted, name) for name in names)
    return LedgerRow("", "measured", machine.name, _what(record), unit, value, *ours, source)


def _halves(machine: str, transport: str, as_share: bool = False) -> Iterator[LedgerRow]:
    source = f"measured/{machine}-2core/model/{transport}/measured.csv"
    model = find_machine(str((_RESULTS / source).parent / "here.toml"))
    ratios: dict[bool, list[float]] = {False: [], True: []}
    runs = []
    for run in _runs(source, model, as_share):
        record, _, now = run
        # on two ranks blocks are columns, so that several cases are one program
        same = "column" if record.ranks == 2 else "block"
        half = choose_half(_what(record).replace("block", same))
        runs.append((half, run))
        ratios[half].append(
            now.percent_of_gemm_only / record.percent_of_gemm_only
            if as_share
            else record.time_s / now.best_s
        )
    judges = {half: replace(model, residuals={"any": ratios[not half]}) for half in ratios}
    return (_measured(source, judges[half], run, as_share) for half, run in runs)


def _mlp() -> Iterator[LedgerRow]:
    """The rows of the MLP shapes, read in place. The file has no residuals, and those over RMA do
    not apply: the machine had another speed on that day."""
    machine = find_machine(str(_RESULTS / "measured/spr-2core/model/rma/here.toml"))
    for layer in ("mlp1", "mlp2"):
        source = f"measured/spr-2core/{layer}-h1536-p2/records.csv"
        yield from (_measured(source, machine, run) for run in _runs(source, machine))


def _one_rank() -> Iterator[LedgerRow]:
    """The rows of one H100, of a GPU check with a file of each case or with one of all cases."""
    machine, folder = find_machine("h100x8measured"), _RESULTS / "measured/h100-80gb"
    for path in [*sorted(folder.glob("one-rank-*.csv")), *folder.glob("one-rank/records.csv")]:
        source = path.relative_to(_RESULTS).as_posix()
        for record in read_csv(path):
            # the model's peak is that of fp32
            if (record.status, record.dtype, record.compute) == ("ok", machine.dtype, "fp32"):
                case = case_of(record)
                yield _measured(source, machine, (record, case, predict(case, machine, 1)))


#: Group -> function that makes its rows.
GROUPS = {
    "dtensor-h100": _dtensor,
    "epyc-rma": partial(_halves, "epyc", "rma"),
    "epyc-throttled": partial(_halves, "epyc", "throttled"),
    "epyc-mixed": partial(_halves, "epyc", "mixed", True),
    "epyc-network": partial(_halves, "epyc", "network", True),
    "spr-rma": partial(_halves, "spr", "rma"),
    "spr-throttled": partial(_halves, "spr", "throttled"),
    "spr-mlp": _mlp,
    "h100-one-rank": _one_rank,
}


def predicted_now() -> Iterable[LedgerRow]:
    """Every row with its current prediction, without those that a machine refuses."""
    return (row._replace(group=group) for group, rows in GROUPS.items() for row in rows())


def time_errors(of: DataFrame):
    """Relative error of the predicted over the measured time of each number; a percentage of
    GEMM-only speed is the inverse of a time.

    Examples
    --------
    >>> rows = DataFrame({"unit": ["s", "%"], "value": [2.0, 88.0], "predicted": [2.2, 80.0]})
    >>> [round(error, 3) for error in time_errors(rows)]
    [0.1, 0.1]
    """
    ratio = of.predicted / of.value
    return ratio.where(of.unit == "s", 1 / ratio) - 1


def in_intervals(of: DataFrame) -> tuple[float, float]:
    """The share of the numbers with intervals that are in them, and half the width of these in
    percent; nan without any."""
    known = of.dropna(subset="low")
    half = 50 * ((known.high - known.low) / known.predicted).median()
    return known.value.between(known.low, known.high).mean(), half


def _accurate(rows: ResultRows, group: str) -> tuple[bool, str]:
    """Whether the numbers of a group are predicted within the allowed error."""
    of = rows.where(group=group)
    errors = 100 * time_errors(of).abs()
    holds = errors.mean() <= MOST_ERROR
    text = f"mean error {errors.mean():.1f} %, largest {errors.max():.1f} %"
    inside, half = in_intervals(of)
    if inside >= 0:
        holds = holds and inside >= LEAST_INSIDE and half <= MOST_HALF
        text += f", {100 * inside:.1f} % in their intervals of ± {half:.1f} %"
    return holds, text


def _in_order(rows: ResultRows, *groups: str) -> Iterator[tuple[bool, str]]:
    """Whether the numbers of each group are predicted in the right order."""
    for group in groups:
        of = rows.where(group=group)
        share, total = concordance(of.value, of.predicted)
        yield share >= CONCORDANT, f"{group}: {share:.3f} of {total} pairs"


#: Why groups are not predicted as accurately.
WHY = {
    "spr-mlp": "The constants were measured over another transport than it used, on another day."
}
CLAIMS = tuple(
    Claim(
        f"A.{group}",
        f"accuracy of predictions: {group}",
        _accurate,
        "none: a bar of our own",
        f"the mean error is at most {MOST_ERROR:g} %; of those with intervals {LEAST_INSIDE:.0%} "
        f"are in them, half of which is at most {MOST_HALF:g} %",
        "results/ledger.csv",
        "docs/results/model-accuracy.md#predicted-and-measured-times" * (group in WHY),
        (group,),
        why=WHY.get(group, ""),
    )
    for group in GROUPS
)
CLAIMS += (
    Claim(
        "S1",
        "the model has the order of this machine's times right, throttled and RMA",
        _in_order,
        "none: a bar of our own",
        f"{100 * CONCORDANT:.0f} % of the pairs that are more than 10 % apart, by each transport",
        "results/ledger.csv",
        "",
        ("epyc-throttled", "epyc-rma"),
        "measured",
    ),
)
PAPER = Paper(
    "accuracy of predictions",
    CLAIMS,
    lambda folder: ROWS.read([folder.parent / "ledger.csv"]),
    lambda rows, results: ResultRows(DataFrame(rows)),
    rows=ROWS,
    studies={"ledger": predicted_now},
    quick=("ledger",),
)
