"""The machine model against this machine: predicted and measured times of many cases, their concordance and errors.

    python benchmarks/model.py --out FOLDER [--scale 1] [--transport throttled:0.25,50] [--stationary CBA]

Calibrates once (FOLDER/here.toml), then runs the 27 partition triples of row, column and block × Stationary C, B, A on 2 ranks at
2048³ and at both MLP shapes with hidden size 1024, and predicts each with the model. Resumable: cases that FOLDER already
holds are not run again, so it can be killed at any time. Wants a quiet machine; about ten minutes at scale 1.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from itertools import combinations, product
from pathlib import Path

from rich.console import Console

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from drbench.record import append_csv, read_csv  # noqa: E402
from launch.case_fields import Case  # noqa: E402
from launch.kernels import without_pins  # noqa: E402
from launch.machine_models import find_machine  # noqa: E402
from launch.peer_store import Lines, opened  # noqa: E402
from launch.predict import predict  # noqa: E402
from launch.store import case_id  # noqa: E402
from launch.supervisor import Settings, run_cases  # noqa: E402

RANKS = 2


def cases(scale: int, transport: str, stationaries: str, iters: int) -> list[Case]:
    """All cases: shape × partition triple × data movement."""
    n, h = 2048 // scale, 1024 // scale
    shapes = [(n, n, n), (1024 // scale, 4 * h, h), (1024 // scale, h, 4 * h)]
    return [Case(*shape, a, b, c, options={"stationary": s}, transport=transport, iters=iters, check=False)
            for shape in shapes for a, b, c in product(("row", "column", "block"), repeat=3) for s in stationaries]


def key(record) -> tuple:
    """What makes a measured and a predicted row the same case."""
    return record.m, record.n, record.k, record.a, record.b, record.c, record.stationary, record.transport


def concordance(pairs, apart: float = 0.10) -> tuple[float, int]:
    """Share of pairs of cases, measured more than ``apart`` apart, whose order the prediction has right; and how many there are."""
    right = total = 0
    for (t, p), (u, q) in combinations(pairs, 2):
        if max(t, u) > (1 + apart) * min(t, u):
            total += 1
            right += (t < u) == (p < q)
    return right / total if total else float("nan"), total


def report(measured, predicted) -> None:
    by_key = {key(record): record for record in predicted}
    pairs = [(record, by_key[key(record)]) for record in measured if record.status == "ok" and key(record) in by_key]
    bad = [record for record in measured if record.status != "ok"]
    groups = {"all": pairs}
    for m, n, k in dict.fromkeys((r.m, r.n, r.k) for r, _ in pairs):
        groups[f"{m}x{n}x{k}"] = [(r, p) for r, p in pairs if (r.m, r.n, r.k) == (m, n, k)]
    print(f"{len(pairs)} cases measured and predicted, {len(bad)} not ok")
    for name, each in groups.items():
        errors = sorted(p.best_s / r.best_s - 1 for r, p in each)
        right, total = concordance([(r.best_s, p.best_s) for r, p in each])
        print(f"{name:18} concordance {right:.3f} over {total} pairs; error median {100 * statistics.median(map(abs, errors)):.1f} %, "
              f"bias {100 * statistics.median(errors):+.1f} %, range {100 * errors[0]:+.0f} to {100 * errors[-1]:+.0f} %")
        best = min(each, key=lambda pair: pair[1].best_s)[0]
        times = sorted(r.best_s for r, _ in each)
        if name != "all":
            fixed = next((r for r, _ in each if (r.a, r.b, r.c, r.stationary) == ("column", "column", "column", "C")), None)
            print(f"{'':18} the model's pick is {100 * (best.best_s / times[0] - 1):.1f} % above the best measured; the median case "
                  f"{100 * (statistics.median(times) / times[0] - 1):.0f} %" + (f", column with Stationary C {100 * (fixed.best_s / times[0] - 1):.0f} %" if fixed else ""))
    for r, p in sorted(pairs, key=lambda pair: -abs(pair[1].best_s / pair[0].best_s - 1))[:5]:
        print(f"  furthest off: {r.m}x{r.n}x{r.k} {r.a} {r.b} {r.c} S-{r.stationary}: measured {1e3 * r.best_s:.1f} ms, predicted {1e3 * p.best_s:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--scale", type=int, default=1, help="divide all extents by this")
    parser.add_argument("--transport", default="throttled:0.25,50")
    parser.add_argument("--stationary", default="CBA")
    parser.add_argument("--iters", type=int, default=3)
    parser.add_argument("--report-only", action="store_true", help="measure nothing")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    model, rows = chosen.out / "here.toml", chosen.out / "measured.csv"
    todo = cases(chosen.scale, chosen.transport, chosen.stationary, chosen.iters)
    if not chosen.report_only:
        if not model.exists():
            subprocess.run([sys.executable, "-m", "drbench", "calibrate", "-p", str(RANKS), "--out", str(model)], check=True, cwd=ROOT)
        done = {key(record) for record in read_csv(rows)} if rows.exists() else set()
        left = [case for case in todo if (case.m, case.n, case.k, case.a, case.b, case.c, case.options["stationary"], case.transport) not in done]
        print(f"{len(left)} of {len(todo)} cases to measure", flush=True)
        named, say = {case_id(case, RANKS): case for case in left}, Console()
        with opened(chosen.out / "runs", "model", RANKS, named, True, say) as (store, beat):
            run_cases(named.items(), store, Settings(RANKS, environ=without_pins()), Lines(say, beat, lambda record: append_csv(rows, record)))
    machine = find_machine(str(model))
    predicted = [predict(case, machine, RANKS) for case in todo]
    (chosen.out / "predicted.csv").unlink(missing_ok=True)
    append_csv(chosen.out / "predicted.csv", *predicted)
    keys = {key(record) for record in predicted}
    report([record for record in read_csv(rows) if key(record) in keys], predicted)


if __name__ == "__main__":
    main()
