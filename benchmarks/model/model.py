"""The machine model against this machine: predicted and measured times of many cases, their
concordance and errors.

    python -m benchmarks model.model --out FOLDER [--scale 1] [--transport throttled:0.25,50]
    [--stationary CBA] [--rounds 5] [--nodes 2]

Calibrates once (FOLDER/here.toml), then runs the 27 partition triples of row, column and block ×
Stationary C, B, A on 2 ranks at 2048³ and at both MLP shapes with hidden size 1024, and predicts
each with the model. In rounds, each in an order of its own: a moment in which a shared machine is
slow then hurts one repeat of a case, not all of them. Resumable: what FOLDER/rounds.csv already
holds is not run again, so it can be killed at any time. Wants a quiet machine; about a minute and a
half a round at scale 1.

With ``--nodes 2`` four ranks on two virtual nodes of this machine (MPICH's cliques) take the place
of the two: tiles are read in place inside a node, and cross by RMA. The machine file is made by
``calibrate --nodes`` on as many ranks, which share cores as those of the cases do. With
``--each 1`` there is one rank a node: the same network, and no core that ranks share. The roof,
local products alone, is timed between the repeats, and shares of the roof are compared: a shared
machine may be half as fast for minutes as when it was calibrated, which no order of cases mends.

On two ranks block and column are the same partition, so that up to eight cases are one program. How
far apart these are measured is what the measurement cannot tell apart; a second pick is compared
that counts all repeats of a program, under whichever name they ran.
"""

import argparse
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import groupby, product
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from pandas import DataFrame
from rich.console import Console

from drbench.measure.record import Record
from drbench.measure.record_file import append_csv, read_csv
from drbench.model.fit import spread
from launch.cases.case import Case
from launch.cases.machine_models import find_machine
from launch.cases.sweep_values import scale_of, scaled_size
from launch.host.files import ROOT
from launch.host.kernels import without_pins
from launch.models.predict import predict
from launch.papers.accuracy import CASE, at_calibrated_pace, beside, concordance
from launch.papers.ledger import dealt
from launch.sweeps.folder import opened
from launch.sweeps.rounds import pooled
from launch.sweeps.store import case_id
from launch.sweeps.supervisor import Settings, Watch, run_cases
from plots.select.records import read_records

#: On one node; on several there are two a node.
RANKS = 2
#: MPICH makes that many nodes of one machine, neighbours on one as machine models count them.
_CLIQUES = ("MPIR_CVAR_NUM_CLIQUES", "MPIR_CVAR_CLIQUES_BY_BLOCK")


def on_nodes(nodes: int) -> dict[str, str]:
    """The environment of ranks on so many virtual nodes.

    Examples
    --------
    >>> on_nodes(1), on_nodes(2)
    ({}, {'MPIR_CVAR_NUM_CLIQUES': '2', 'MPIR_CVAR_CLIQUES_BY_BLOCK': '1'})
    """
    return dict(zip(_CLIQUES, (str(nodes), "1"))) if nodes > 1 else {}


def cases(
    scale: Fraction, transport: str, stationaries: str, iters: int, model: Path, **more
) -> list[Case]:
    """All cases: shape × partition triple × data movement. What runs is planned by the model too,
    so that it is the program that is predicted."""
    n, h = scaled_size(2048, scale), scaled_size(1024, scale)
    return [
        Case(
            *shape,
            *forms,
            options={"stationary": s},
            transport=transport,
            iters=iters,
            check=False,
            model=str(model),
            **more,
        )
        for shape in ((n, n, n), (h, 4 * h, h), (h, h, 4 * h))
        for forms in product(("row", "column", "block"), repeat=3)
        for s in stationaries
    ]


def merged(rows: list[Record]) -> Iterator[Record]:
    """One row a case of its rounds, of those that were ok."""
    case = attrgetter(*CASE)
    for _, found in groupby(sorted(rows, key=case), case):
        each = list(found)
        ok = [record for record in each if record.status == "ok"] or each[:1]
        row = pooled(ok)
        yield replace(row, iters=len(row.samples_s) or None, seed=None)


def write(path: Path, records: Iterable[Record]) -> None:
    """A file of these records alone."""
    path.unlink(missing_ok=True)
    append_csv(path, *records)


class Errors(NamedTuple):
    """How far predictions are from times: the share of pairs of cases in the right order, of how
    many; the median of the absolute errors, the median error, the least and the largest, percent.
    """

    concordance: float
    pairs: int
    median: float
    bias: float
    least: float
    most: float


class Picks(NamedTuple):
    """Going by the prediction, for the cases of one shape: how far the pick, the median one, and
    column with Stationary C are above the best measured, percent. Of programs too, counting all
    repeats of a program under whichever name they ran; and how far apart the same program was
    measured under eight names."""

    pick: float
    median: float
    column: float
    programs: int
    program_pick: float
    program_median: float
    program_column: float
    apart: float


def errors(pairs: DataFrame) -> Errors:
    right, total = concordance(zip(pairs.time_s, pairs.predicted_s))
    error = 100 * pairs.error
    return Errors(right, total, error.abs().median(), error.median(), error.min(), error.max())


class Held(NamedTuple):
    """Of so many cases the share whose time lies in the interval that the other half's residuals
    make, and the median of half these intervals, both in percent."""

    cases: int
    share: float
    half: float


def held(pairs: DataFrame) -> Held:
    """Programs are dealt to two halves by a coin that always falls the same."""
    ratios = pairs.time_s / pairs.predicted_s
    names = pairs[[*CASE]].astype(str).agg(" ".join, axis=1)
    half = names.map(dealt)
    ends = {each: spread(list(ratios[half != each])) for each in (False, True)}
    low, high = (half.map({each: pair[at] for each, pair in ends.items()}) for at in (0, 1))
    inside = (ratios >= low) & (ratios <= high)
    return Held(len(pairs), 100 * inside.mean(), 100 * ((high - low) / 2).median())


def picks(pairs: DataFrame) -> Picks:
    above = 100 * (pairs.time_s / pairs.time_s.min() - 1)
    column = above[pairs.eval("a == b == c == 'column' and stationary == 'C'")]
    forms = ["a", "b", "c"]
    same = pairs.assign(**pairs[forms].replace("block", "column"))  # on two ranks
    by = [*forms, "stationary"]
    programs = same.groupby(by, sort=False).agg(
        least=("time_s", "min"),
        most=("time_s", "max"),
        cases=("time_s", "size"),
        model=("predicted_s", "first"),
    )
    spread = (programs.most / programs.least)[programs.cases == 8].median()
    times = same.explode("samples_s").groupby(by, sort=False).samples_s.median()
    program = 100 * (times / times.min() - 1)
    return Picks(
        above[pairs.predicted_s.idxmin()],
        above.median(),
        column.iloc[0],
        len(programs),
        program[programs.model.idxmin()],
        program.median(),
        program[("column", "column", "column", "C")],
        100 * (spread - 1),
    )


def report(measured: DataFrame, predicted: DataFrame) -> None:
    """Print how far the prediction of each case is from its time, and what comes of going by it."""
    pairs = beside(measured, predicted)
    several = pairs.nodes.gt(1).any()
    if several:
        print("of times:", describe(errors(pairs)), "; all below is of shares of the roof")
        pairs = beside(at_calibrated_pace(measured, predicted), predicted)
    print(f"{len(pairs)} cases measured and predicted, {len(measured) - len(pairs)} not ok")
    print("all:", describe(errors(pairs)), describe(held(pairs)))
    for shape, each in pairs.groupby(["m", "n", "k"], sort=False):
        print(*shape, describe(errors(each)), "" if several else describe(picks(each)))


def describe(numbers: NamedTuple) -> str:
    """Names and values.

    Examples
    --------
    >>> describe(Held(243, 91.23456, 4.0))
    'cases=243 share=91.2 half=4'
    """
    return " ".join(f"{name}={value:.3g}" for name, value in numbers._asdict().items())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--scale", default="1", help="multiply all extents by this, as 1/2")
    parser.add_argument("--transport", help="default: throttled:0.25,50; on several nodes auto")
    parser.add_argument("--nodes", type=int, default=1, help="virtual ones")
    parser.add_argument("--each", type=int, default=RANKS, help="ranks of a node")
    parser.add_argument("--stationary", default="CBA")
    parser.add_argument("--iters", type=int, default=2, help="timed repeats of a case in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--report-only", action="store_true", help="measure nothing")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    several, ranks = chosen.nodes > 1, chosen.each * chosen.nodes
    transport = chosen.transport or ("auto" if several else "throttled:0.25,50")
    environ = without_pins() | on_nodes(chosen.nodes)
    model, rows, measured, predicted = (
        chosen.out / name for name in ("here.toml", "rounds.csv", "measured.csv", "predicted.csv")
    )
    scale = scale_of(chosen.scale, "--scale")
    # repeats where ranks share cores have no end, and are compared with the roof beside them
    more = {"budget": 0.0, "roof": True} if several else {}
    todo = cases(scale, transport, chosen.stationary, chosen.iters, model, **more)
    if not chosen.report_only:
        if not model.exists():
            words = f"-m drbench calibrate -p {ranks} --save {model.resolve()}".split()
            words += ["--nodes", "--yes"] if several else []
            subprocess.run([sys.executable, *words], check=True, cwd=ROOT, env=environ)
        done = {record.case for record in read_csv(rows)} if rows.exists() else ()
        left = {}
        for turn in range(chosen.rounds):  # the seed of the matrices tells a round
            order = [replace(case, seed=turn) for case in todo]
            random.Random(turn).shuffle(order)
            named = {case_id(case, ranks): case for case in order}
            left |= {name: case for name, case in named.items() if name not in done}
        print(f"{len(left)} of {len(todo) * chosen.rounds} runs to measure", flush=True)
        say = Console()
        with opened(chosen.out / "runs", "model", ranks, left, say, fresh=True) as store:
            run_cases(
                left.items(),
                store,
                Settings(ranks, environ=environ),
                Watch(say, lambda record: append_csv(rows, record)),
            )
        write(measured, merged(read_csv(rows)))
    machine = find_machine(str(model))
    told = [predict(case, machine, ranks) for case in todo]
    if several:  # as records of runs say it
        known = {record.transport for record in read_csv(measured) if record.status == "ok"}
        told = [replace(record, transport=name) for record in told for name in known]
    write(predicted, told)
    report(read_records([measured]), read_records([predicted]))


if __name__ == "__main__":
    main()
