"""The bars of the core, measured: rows for the tables of docs/results/core.md. Not a test: it takes
minutes and needs a quiet machine.

    python -m benchmarks core [SECTION...] [--out DIR] [--scale 1] [--iters 5] [--budget 8]
    python -m benchmarks core SECTION... --against OLD   # ratios to an older checkout, a row a case

Each section prints its rows and, with ``--out``, writes DIR/SECTION.csv, a row a case with the
command that measured it; ``make docs`` takes the tables of the pages from those of
results/measured/NAME/performance. Cases are those of the sweep files benchmarks/bars/SECTION.toml
(``drbench sweep`` runs them too), whose key ``bar`` has the columns that a row begins with. Ratios
are of shares of GEMM-only speed: of pairs of one ``drbench run``, at least ``--iters`` of them, and
more until the median is known or ``--budget`` seconds of a case are over; what is compared with
another run is interleaved with it in three rounds. On two cores and at the default size, in
minutes: one_node 8, layers 5, collectives 3, remote 6, progress 5, overlap 5, gather, reduce, sums,
mixed, signals and signals_remote 4 each, planning and executor less than one.
"""

import json
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path

from pandas import DataFrame

from benchmarks.__main__ import parser_of, start
from drbench.algorithms import get_algorithm
from drbench.launch.cases.case import Case
from drbench.launch.cases.command_line import run_command
from drbench.launch.cases.sweep_file import expand
from drbench.launch.cases.sweep_values import read_toml
from drbench.launch.host.files import ROOT, write_whole
from drbench.launch.host.kernels import without_pins
from drbench.launch.sweeps.rounds import rotate_order
from drbench.mappings import grouped
from drbench.program.problem import Problem
from drbench.version import read_version

#: What a bar's ``environ`` names: every rank remote; two virtual nodes of this machine.
ENVIRON = {
    "tcp": {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self"},
    "cliques": {"MPIR_CVAR_NUM_CLIQUES": "2"},
}
BARS = Path(__file__).parent / "bars"
#: Rounds of what is interleaved; plans of a case.
ROUNDS, PLANS = 3, 9
#: What transfers take of compute on slow networks.
SHARES = (0.3, 0.7, 1.0)
#: Bytes that a run moves between ranks, and columns of :func:`spread` of times.
MOVED = "direct_bytes get_bytes put_bytes accumulate_bytes collective_bytes".split()
SECONDS = "median_s least_s most_s".split()
#: Of a row that compares with GEMM-only speed: what the record of the run calls it.
MEASURED = (
    "status percent_of_gemm_only percent_of_gemm_only_min percent_of_gemm_only_max "
    "percent_of_gemm_only_low percent_of_gemm_only_high stable noisy median_s gemm_only_gflops "
    "get_bytes balance_limit"
).split()


def cases(section: str, scale="1", **given) -> Iterator[tuple[dict, Case, int, dict]]:
    """The cases of a section's file: the first columns of its row, the case, ranks, and variables
    added to their environment; ``given`` fields replace the file's.

    Examples
    --------
    >>> description, case, ranks, environ = next(cases("remote", "1/4", iters=7))
    >>> description, case.m, case.iters, ranks, environ["UCX_TLS"]
    ({'case': 'row, S-C', 'progress': 'poll', 'bar': 0.8}, 1024, 7, 2, 'tcp,self')
    """
    file = read_toml(BARS / f"{section}.toml")
    for block in file["cases"]:
        description = dict(block["bar"])
        ranks = description.pop("ranks", file["ranks"])
        environ = ENVIRON.get(description.pop("environ", ""), {})
        for case in expand(file | {"cases": [block]}, ranks, section, scale).cases:
            fields = vars(case) | case.options
            row = {x: y.format(**fields) if type(y) is str else y for x, y in description.items()}
            yield row, replace(case, **given), ranks, environ


def run(case: Case, ranks: int, environ: dict, root: Path = ROOT) -> dict:
    """The record of one ``drbench run`` of a checkout, with its ``command``."""
    command = run_command(case, ranks)
    words = [sys.executable, "-m", *shlex.split(command), "--json"]
    around = without_pins() | {"PYTHONPATH": str(root)} | environ
    done = subprocess.run(words, env=around, cwd=root, capture_output=True, text=True)
    if not done.stdout:
        raise SystemExit(f"{command}\n{done.stderr}")
    settings = [f"{name}={value}" for name, value in environ.items()]
    return json.loads(done.stdout) | {"command": " ".join([*settings, command])}


def interleave(contenders: dict, run: Callable, rounds: int = ROUNDS) -> dict:
    """What a function returns of each contender, once a round, in an order that alternates."""
    results: dict = {name: [] for name in contenders}
    for round_index in range(rounds):
        for name in rotate_order(list(contenders), round_index):
            results[name].append(run(contenders[name]))
    return results


def run_round(how: tuple) -> dict:
    """The record of a round of a way to run a case, arguments of :func:`run`; the rounds share the
    budget of the case."""
    case, *others = how
    return run(replace(case, budget=case.budget / ROUNDS), *others)


def shares(records: list[dict]) -> list[float]:
    """Shares of GEMM-only speed."""
    return [record["percent_of_gemm_only"] / 100 for record in records]


def ratios(records: list[dict], base: list[dict]) -> list[float]:
    """The speed of one over that of the other, as shares of the GEMM-only speed next to them."""
    return [ours / other for ours, other in zip(shares(records), shares(base))]


def spread(samples: list[float], name="ratio", low="low", high="high") -> dict:
    """The median and the range of some values, by column."""
    return {name: statistics.median(samples), low: min(samples), high: max(samples)}


def of_roof(section: str, scale: str, limits: dict) -> Iterator[dict]:
    """Shares of GEMM-only speed."""
    for description, *case in cases(section, scale, **limits):
        record = run(*case)
        measured = {column: record.get(column) for column in MEASURED}
        yield {"bar": None} | description | measured | {"command": record["command"]}


def versus(base: Callable, section: str, scale: str, limits: dict) -> Iterator[dict]:
    """Ratios to another way to run each case, which ``base`` makes of the arguments of
    :func:`run`."""
    for description, *how in cases(section, scale, **limits):
        ours, theirs = interleave({"ours": how, "theirs": base(*how)}, run_round).values()
        row = description | spread(ratios(ours, theirs)) | {"rounds": ROUNDS}
        yield row | {"median_s": ours[-1]["median_s"], "command": ours[-1]["command"]}


def on_one_node(case: Case, ranks: int, environ: dict) -> tuple:
    """The case of ranks on virtual nodes on one node, where they reach each other by RMA."""
    return replace(case, transport="rma"), ranks, {}


def throttled(section: str, scale: str, limits: dict) -> Iterator[dict]:
    """Times on slow networks over the larger of compute and transfers, or over their sum.

    Compute is the same program on a free network, less what MPI's own collectives take there: on a
    slow one that is hidden in the transfer. The machine's speed may differ from run to run, so both
    are divided by GEMM-only speed next to them, and compute is given at the throttled run's speed.
    """
    done: dict = {}
    for description, case, *how in cases(section, scale, **limits):
        over = max if description["against"] == "larger" else sum
        free = run(replace(case, transport="throttled:1e6,0"), *how)
        free_s, slow = free["median_s"] - free["phase_collective_wait_s"], {}
        for share in SHARES:
            rate = sum(free[name] for name in MOVED) / 2 / (share * free_s) / 1e9
            slow[share] = (replace(case, transport=f"throttled:{rate:.6f},0"), *how)
        for share, records in interleave(slow, run_round).items():
            samples, done[description["case"], share] = [], records
            for record, slower in zip(records, ratios(records, [free] * ROUNDS)):
                compute_s = slower * record["median_s"] * free_s / free["median_s"]
                samples.append(record["median_s"] / over((compute_s, share * free_s)))
            row = description | {"transfers_over_compute": share} | spread(samples)
            yield row | {"rounds": ROUNDS, **{x: records[-1][x] for x in ("median_s", "command")}}
    for share in SHARES if section == "gather" else ():
        both = (done[f"ag_gemm {variant}", share] for variant in ("pull", "push"))
        row = {"case": "ag_gemm push over pull", "transfers_over_compute": share}
        yield row | {"against": "pull", "bar_low": 0.95, "bar": 1.05} | spread(ratios(*both))


def together(summary: Callable, section: str, scale: str, limits: dict) -> Iterator[dict]:
    """Cases that alternate, those of each kind for themselves: what ``summary`` makes of the
    records of a case and those of the first of its kind."""
    kind = lambda case: case[0].get("kind")
    for group in grouped(cases(section, scale, **limits), kind).values():
        records = interleave({at: how for at, (_, *how) in enumerate(group)}, run_round)
        for at, (description, *_) in enumerate(group):
            row = description | summary(records[at], records[0]) | {"rounds": ROUNDS}
            yield row | {"command": records[at][0]["command"]}
    if section == "signals":
        cost_s = json.loads(start("signals", stdout=subprocess.PIPE, text=True, check=True).stdout)
        command = "python -m benchmarks signals"
        yield {"case": "Push and Await", "bar": 20e-6, "cost_s": cost_s, "command": command}


def step_s(records: list[dict], _) -> dict:
    """Seconds of a step. The median run counts: an absolute time is no better than the seconds it
    was taken in."""
    times = [record["median_s"] * record["ranks"] / record["steps"] for record in records]
    return spread(times, *SECONDS) | {"steps": records[0]["steps"]}


def of_both(records: list[dict], universal: list[dict]) -> dict:
    """Shares of GEMM-only speed, and ratios to the universal algorithm on the same layouts."""
    over = spread(
        ratios(records, universal), "of_universal", "of_universal_low", "of_universal_high"
    )
    return spread(shares(records)) | over | {"median_s": records[-1]["median_s"]}


def planning(section: str, scale: str, limits: dict) -> Iterator[dict]:
    """Time to plan one rank of p = 4096, m = n = k = 262144; the median and the range of some."""
    plan = get_algorithm("universal").trace
    plan(Problem(8, 8, 8, 1), 0)  # imports what planning needs
    for grid, bar_s in ((64, 0.02), (512, 0.3)):
        text = f"tiles:{262144 // grid}x{262144 // grid}@64x64"
        problem = Problem(262144, 262144, 262144, 4096, text, text, text)
        for stationary in "CBA":
            times = []
            for _ in range(PLANS):
                begin = time.perf_counter()
                trace = plan(problem, 77, stationary=stationary)
                times.append(time.perf_counter() - begin)
            row = {"case": f"{grid} x {grid} tiles, S-{stationary}", "steps": len(trace.steps)}
            command = {"command": "python -m benchmarks core planning"}
            yield row | spread(times, *SECONDS) | {"bar_s": bar_s} | command


SECTIONS = {
    **dict.fromkeys(("one_node", "layers", "collectives", "remote", "progress"), of_roof),
    **dict.fromkeys(("overlap", "gather", "reduce", "sums"), throttled),
    **dict.fromkeys(("signals", "signals_remote"), partial(together, of_both)),
    "mixed": partial(versus, on_one_node),
    "executor": partial(together, step_s),
    "planning": planning,
}


def commit(root: Path = ROOT) -> str:
    """The commit of a checkout, by default this one, with ``-dirty`` if its files differ."""
    state = read_version(root)
    return (state["commit"] or "unknown")[:7] + "-dirty" * state["dirty"]


def write_rows(path: Path, rows: list[dict]) -> None:
    """Write a CSV file and its folder, whole or not at all: an earlier file stays until then."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, DataFrame(rows, dtype=object).to_csv(index=False, lineterminator="\n"))


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("sections", nargs="*", choices=SECTIONS, help="default: all")
    parser.add_argument("--scale", default="1", help="multiply all extents by this, as 1/4")
    parser.add_argument("--iters", type=int, default=5, help="least repeats of a case")
    parser.add_argument("--budget", type=float, default=8, help="seconds of a case")
    parser.add_argument("--against", type=Path, help="compare sections that have cases with OLD")
    parser.add_argument("--out", type=Path, help="folder for a CSV file a section")
    chosen = parser.parse_args()
    limits = {"iters": chosen.iters, "budget": chosen.budget}
    origin = {"date": date.today().isoformat(), "commit": commit()}
    if chosen.against:
        old = chosen.against.resolve()
        origin["old_commit"] = commit(old)
    for name in chosen.sections or SECTIONS:
        measure = SECTIONS[name]
        if chosen.against:
            measure = partial(versus, lambda *how: (*how, old))
        begin, rows = time.perf_counter(), []
        print(f"\n{name}", flush=True)
        for row in measure(name, chosen.scale, limits):
            rows.append(row | origin)
            print(*(f"{column}={value}" for column, value in row.items()), flush=True)
        print(f"{name} took {(time.perf_counter() - begin) / 60:.1f} minutes")
        if chosen.out:
            write_rows(chosen.out / f"{name}.csv", rows)


if __name__ == "__main__":
    main()
