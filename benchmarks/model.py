"""The machine model against this machine: predicted and measured times of many cases, their
concordance and errors.

    python benchmarks/model.py --out FOLDER [--scale 1] [--transport throttled:0.25,50]
    [--stationary CBA] [--rounds 5]

Calibrates once (FOLDER/here.toml), then runs the 27 partition triples of row, column and block ×
Stationary C, B, A on 2 ranks at 2048³ and at both MLP shapes with hidden size 1024, and predicts
each with the model. In rounds, each in an order of its own: a moment in which a shared machine is
slow then hurts one repeat of a case, not all of them. Resumable: what FOLDER/rounds.csv already
holds is not run again, so it can be killed at any time. Wants a quiet machine; about a minute and a
half a round at scale 1.

On two ranks block and column are the same partition, so that up to eight cases are one program. How
far apart these are measured is what the measurement cannot tell apart; a second pick is compared
that counts all repeats of a program, under whichever name they ran.
"""

# ruff: noqa: E402

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path

from rich.console import Console

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from drbench.measure.record import append_csv, read_csv
from launch.cases.case import Case
from launch.cases.machine_models import find_machine
from launch.host.kernels import without_pins
from launch.models.predict import predict
from launch.sweeps.folder import opened
from launch.sweeps.store import case_id
from launch.sweeps.supervisor import Settings, Watch, run_cases

RANKS = 2


def cases(scale: int, transport: str, stationaries: str, iters: int) -> list[Case]:
    """All cases: shape × partition triple × data movement."""
    n, h = 2048 // scale, 1024 // scale
    shapes = [(n, n, n), (1024 // scale, 4 * h, h), (1024 // scale, h, 4 * h)]
    return [
        Case(
            *shape,
            a,
            b,
            c,
            options={"stationary": s},
            transport=transport,
            iters=iters,
            check=False,
        )
        for shape in shapes
        for a, b, c in product(("row", "column", "block"), repeat=3)
        for s in stationaries
    ]


def key(record) -> tuple:
    """What makes a measured and a predicted row the same case."""
    return (
        record.m,
        record.n,
        record.k,
        record.a,
        record.b,
        record.c,
        record.stationary,
        record.transport,
    )


def concordance(pairs, apart: float = 0.10) -> tuple[float, int]:
    """Share of pairs of cases, measured more than ``apart`` apart, whose order the prediction has
    right; and how many there are."""
    right = total = 0
    for (t, p), (u, q) in combinations(pairs, 2):
        if max(t, u) > (1 + apart) * min(t, u):
            total += 1
            right += (t < u) == (p < q)
    return right / total if total else float("nan"), total


def merged(rows) -> list:
    """One row a case of its rounds: all samples, the phases of the best."""
    by_case: dict = {}
    for record in rows:
        by_case.setdefault(key(record), []).append(record)
    out = []
    for each in by_case.values():
        ok = [record for record in each if record.status == "ok"] or each[:1]
        samples = [seconds for record in ok for seconds in record.samples_s]
        best = min(ok, key=lambda record: record.best_s or 0)
        out.append(
            replace(
                best,
                samples_s=samples,
                median_s=statistics.median(samples) if samples else None,
                iters=len(samples) or None,
                case=None,
                seed=None,
            )
        )
    return out


def program(record) -> tuple:
    """What a case runs: block is column on two ranks."""
    return (
        record.m,
        record.n,
        record.k,
        *("column" if form == "block" else form for form in (record.a, record.b, record.c)),
        record.stationary,
    )


def report(measured, predicted) -> None:
    by_key = {key(record): record for record in predicted}
    pairs = [
        (record, by_key[key(record)])
        for record in measured
        if record.status == "ok" and key(record) in by_key
    ]
    bad = [record for record in measured if record.status != "ok"]
    groups = {"all": pairs}
    for m, n, k in dict.fromkeys((r.m, r.n, r.k) for r, _ in pairs):
        groups[f"{m}x{n}x{k}"] = [(r, p) for r, p in pairs if (r.m, r.n, r.k) == (m, n, k)]
    print(f"{len(pairs)} cases measured and predicted, {len(bad)} not ok")
    for name, each in groups.items():
        if not each:
            continue
        errors = sorted(p.best_s / r.best_s - 1 for r, p in each)
        right, total = concordance([(r.best_s, p.best_s) for r, p in each])
        print(
            f"{name:18} concordance {right:.3f} over {total} pairs; error median "
            f"{100 * statistics.median(map(abs, errors)):.1f} %, "
            f"bias {100 * statistics.median(errors):+.1f} %, range {100 * errors[0]:+.0f} to "
            f"{100 * errors[-1]:+.0f} %"
        )
        best = min(each, key=lambda pair: pair[1].best_s)[0]
        times = sorted(r.best_s for r, _ in each)
        if name != "all":
            fixed = next(
                (
                    r
                    for r, _ in each
                    if (r.a, r.b, r.c, r.stationary) == ("column", "column", "column", "C")
                ),
                None,
            )
            print(
                f"{'':18} the model's pick is {100 * (best.best_s / times[0] - 1):.1f} % above "
                "the best measured; the median case "
                f"{100 * (statistics.median(times) / times[0] - 1):.0f} %"
                + (
                    f", column with Stationary C {100 * (fixed.best_s / times[0] - 1):.0f} %"
                    if fixed
                    else ""
                )
            )
            picks(each)
    for r, p in sorted(pairs, key=lambda pair: -abs(pair[1].best_s / pair[0].best_s - 1))[:5]:
        print(
            f"  furthest off: {r.m}x{r.n}x{r.k} {r.a} {r.b} {r.c} S-{r.stationary}: measured "
            f"{1e3 * r.best_s:.1f} ms, predicted {1e3 * p.best_s:.1f}"
        )


def picks(pairs) -> None:
    """The same for programs instead of cases, and how far apart the same program was measured."""
    programs: dict = {}
    for r, p in pairs:
        programs.setdefault(program(r), []).append((r.best_s, p.best_s))
    spread = statistics.median(
        max(t for t, _ in each) / min(t for t, _ in each)
        for each in programs.values()
        if len(each) == 8
    )
    best = {name: (min(t for t, _ in each), each[0][1]) for name, each in programs.items()}
    times = sorted(t for t, _ in best.values())
    least = min(p for _, p in best.values())
    chosen = [t for t, p in best.values() if p <= least * (1 + 1e-9)]
    print(
        f"{'':18} {len(best)} programs: the pick {100 * (chosen[0] / times[0] - 1):.1f} % above "
        "the best"
        + (f" (ties: up to {100 * (max(chosen) / times[0] - 1):.1f} %)" if chosen[1:] else "")
        + f", the median one {100 * (statistics.median(times) / times[0] - 1):.0f} %; eight "
        f"cases of one program are {100 * (spread - 1):.1f} % apart"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--scale", type=int, default=1, help="divide all extents by this")
    parser.add_argument("--transport", default="throttled:0.25,50")
    parser.add_argument("--stationary", default="CBA")
    parser.add_argument("--iters", type=int, default=2, help="timed repeats of a case in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--report-only", action="store_true", help="measure nothing")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    model, rows = chosen.out / "here.toml", chosen.out / "rounds.csv"
    todo = cases(chosen.scale, chosen.transport, chosen.stationary, chosen.iters)
    if not chosen.report_only:
        if not model.exists():
            subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "drbench",
                    "calibrate",
                    "-p",
                    str(RANKS),
                    "--out",
                    str(model),
                ],
                check=True,
                cwd=ROOT,
            )
        done = {(record.seed, key(record)) for record in read_csv(rows)} if rows.exists() else set()
        left = []
        for turn in range(chosen.rounds):  # the seed of the matrices tells a round
            order = [replace(case, seed=turn) for case in todo]
            random.Random(turn).shuffle(order)
            left += [
                case
                for case in order
                if (
                    turn,
                    (
                        case.m,
                        case.n,
                        case.k,
                        case.a,
                        case.b,
                        case.c,
                        case.options["stationary"],
                        case.transport,
                    ),
                )
                not in done
            ]
        print(f"{len(left)} of {len(todo) * chosen.rounds} runs to measure", flush=True)
        named, say = {case_id(case, RANKS): case for case in left}, Console()
        with opened(chosen.out / "runs", "model", RANKS, named, say, fresh=True) as store:
            run_cases(
                named.items(),
                store,
                Settings(RANKS, environ=without_pins()),
                Watch(say, lambda record: append_csv(rows, record)),
            )
        (chosen.out / "measured.csv").unlink(missing_ok=True)
        append_csv(chosen.out / "measured.csv", *merged(read_csv(rows)))
    machine = find_machine(str(model))
    predicted = [predict(case, machine, RANKS) for case in todo]
    (chosen.out / "predicted.csv").unlink(missing_ok=True)
    append_csv(chosen.out / "predicted.csv", *predicted)
    keys = {key(record) for record in predicted}
    report(
        [record for record in read_csv(chosen.out / "measured.csv") if key(record) in keys],
        predicted,
    )


if __name__ == "__main__":
    main()
