"""The bars of the core, measured: rows for the tables of docs/results/core.md. Not a test: it takes
minutes and needs a quiet machine.

    python -m benchmarks core [SECTION...] [--out DIR] [--scale 1] [--iters 5] [--budget 8]

Each section prints its table and, with ``--out``, writes DIR/SECTION.csv, a row a case with the
command that measured it; ``make docs`` takes the tables of the pages from those of
results/measured/NAME/performance. Cases are those of the sweep files benchmarks/bars/SECTION.toml
(``drbench sweep`` runs them too), whose key ``bar`` has the columns that a row begins with. Every
ratio is the median of interleaved pairs of the same run (``drbench run``): at least ``--iters`` of
them, and more until the median is known or ``--budget`` seconds of a case are over. On two cores
and at the default size, in minutes: one_node 8, layers 5, collectives 3, remote 6, overlap 6,
progress 5, mixed 4, gather, reduce, sums, signals and signals_remote 2 each, planning and executor
less than one.
"""

import json
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

from pandas import DataFrame

from benchmarks.__main__ import parser_of, start
from drbench.launch.cases.case import Case
from drbench.launch.cases.command_line import run_command
from drbench.launch.cases.sweep_file import expand
from drbench.launch.cases.sweep_values import read_toml
from drbench.launch.host.files import ROOT, write_whole
from drbench.launch.host.kernels import without_pins
from drbench.launch.sweeps.rounds import rotated
from drbench.version import git_state

#: What a bar's ``environ`` names: every rank remote; two virtual nodes of this machine.
ENVIRON = {
    "tcp": {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self"},
    "cliques": {"MPIR_CVAR_NUM_CLIQUES": "2"},
}
BARS = Path(__file__).parent / "bars"
#: Rounds of ``mixed`` and ``executor``; plans of a case.
ROUNDS, PLANS = 3, 9
#: Of a row that compares with the roof: what the record of the run calls it.
MEASURED = (
    "status",
    "percent_of_gemm_only",
    "percent_of_gemm_only_min",
    "percent_of_gemm_only_max",
    "percent_of_gemm_only_low",
    "percent_of_gemm_only_high",
    "stable",
    "noisy",
    "median_s",
    "gemm_only_gflops",
    "get_bytes",
    "balance_limit",
)


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
    record = json.loads(done.stdout) | {"command": prefixed(environ, command)}
    record.setdefault("percent_of_gemm_only", record.get("percent_of_roof"))  # of schema 12
    return record


def prefixed(environ: dict, command: str) -> str:
    """A command with its environment variables."""
    return " ".join([*(f"{name}={value}" for name, value in environ.items()), command])


def interleave(contenders: dict) -> dict:
    """The records of each way to run a case (arguments of :func:`run`), one a round, in an order
    that alternates."""
    found: dict = {contender: [] for contender in contenders}
    for round_index in range(ROUNDS):
        for contender in rotated(list(contenders), round_index):
            found[contender].append(run(*contenders[contender]))
    return found


def ratios(found: list[dict], base: list[dict]) -> dict:
    """One over the other, each as a share of the roof measured next to it: median and range."""
    pairs = [
        one["percent_of_gemm_only"] / other["percent_of_gemm_only"]
        for one, other in zip(found, base)
    ]
    return {
        "ratio": statistics.median(pairs),
        "low": min(pairs),
        "high": max(pairs),
        "rounds": len(pairs),
        "status": max(each["status"] for each in (*found, *base)),
    }


def of_roof(section: str, scale: str, limits: dict) -> Iterator[dict]:
    """Ratios to the roof."""
    for description, *case in cases(section, scale, **limits):
        record = run(*case)
        measured = {column: record.get(column) for column in MEASURED}
        yield {"bar": None} | description | measured | {"command": record["command"]}


def overlap(section: str, scale: str, limits: dict) -> Iterator[dict]:
    """Times on a throttled network over the larger of compute and transfers, and over their sum.

    Compute is the same program on a free network. The machine's speed may differ from run to run,
    so both are divided by the roof next to them, and compute is given at the throttled run's speed.
    """
    for description, case, *how in cases(section, scale, **limits):
        for share in (0.3, 0.7, 1.0):
            free = run(replace(case, transport="throttled:1e6,0"), *how)
            moved = free["direct_bytes"] + free["get_bytes"] + free["accumulate_bytes"]
            comm_s = share * free["median_s"]
            transport = f"throttled:{moved / 2 / comm_s / 1e9:.6f},0"
            for prefetch in (1, 0):
                found = run(replace(case, transport=transport, prefetch=prefetch), *how)
                compute_s = (
                    found["median_s"] * found["percent_of_gemm_only"] / free["percent_of_gemm_only"]
                )
                yield description | {
                    "transfers_over_compute": share,
                    "prefetch": prefetch,
                    "median_s": found["median_s"],
                    "compute_s": compute_s,
                    "transfers_s": comm_s,
                    "time_over_max": found["median_s"] / max(compute_s, comm_s),
                    "time_over_sum": found["median_s"] / (compute_s + comm_s),
                    "command": found["command"],
                }


def mixed(section: str, scale: str, limits: dict) -> Iterator[dict]:
    """Virtual nodes against the same ranks on one node that reach each other by RMA."""
    moved = ("direct_bytes", "get_bytes", "put_bytes", "accumulate_bytes")
    for description, case, ranks, environ in cases(section, scale):
        one = replace(case, transport="rma")
        contenders = {"mixed": (case, ranks, environ), "one": (one, ranks, {})}
        found = interleave(contenders)
        mixed_row, single_row = (found[contender][-1] for contender in contenders)
        yield {
            **description,
            **{axis: getattr(case, axis) for axis in "mnk"},
            **ratios(*found.values()),
            "mixed_median_s": mixed_row["median_s"],
            "one_median_s": single_row["median_s"],
            **{name: mixed_row[name] for name in moved},
            **{f"one_{name}": single_row[name] for name in moved},
            "command": mixed_row["command"],
        }


def executor(section: str, scale: str, limits: dict) -> Iterator[dict]:
    """Seconds of a step. Cases alternate, and the median run counts: an absolute time is no better
    than the seconds it was taken in."""
    todo = list(cases(section))
    found = interleave({description["case"]: case for description, *case in todo})
    for description, _, ranks, _ in todo:
        records = found[description["case"]]
        times = [each["median_s"] / (each["steps"] / ranks) for each in records]
        yield description | timed(times) | {key: records[0][key] for key in ("steps", "command")}


def planning(section: str, scale: str, limits: dict) -> Iterator[dict]:
    """Time to plan one rank of p = 4096, m = n = k = 262144; the median and the range of some."""
    from drbench.algorithms import get_algorithm
    from drbench.program.problem import Problem

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
            yield row | timed(times) | {"bar_s": bar_s} | command


def timed(times: list[float]) -> dict:
    """The median and the range of some times, by column."""
    return {"median_s": statistics.median(times), "least_s": min(times), "most_s": max(times)}


#: What ``benchmarks/signals.py`` is asked for, and the columns of its rows that are added: fused
#: overlap, and Stationary B of the universal algorithm, on slow networks against compute and
#: transfers; in place, and with every rank remote, against local GEMMs and the universal algorithm.
SIGNALS = {
    **{kind: [(f"throttled {kind}", "", {})] for kind in ("gather", "reduce", "sums")},
    "signals": [
        ("roof gather --tiles 512,2048", "", {"kind": "gather", "bar": None}),
        ("roof reduce --tiles 512,2048", "", {"kind": "reduce", "bar": None}),
        ("cost", "", {}),
    ],
    "signals_remote": [
        ("roof gather --tiles 512,2048", "tcp", {"kind": "gather", "bar": 0.80}),
        ("roof reduce --tiles 512,2048", "tcp", {"kind": "reduce", "bar": 0.75}),
    ],
}


def fused(section: str, scale: str, limits: dict) -> Iterator[dict]:
    """Rows of ``benchmarks/signals.py``, on two ranks of one thread each."""
    given = " ".join(f"--{name} {value}" for name, value in limits.items())
    for asked, where, description in SIGNALS[section]:
        words = f"signals {asked} --scale {scale} {given}".split()
        environ = ENVIRON.get(where, {})
        done = start(*words, env=environ, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{shlex.join(done.args)}\n{done.stderr}")
        command = prefixed(environ, f"python -m benchmarks {shlex.join(words)}")
        for row in json.loads(done.stdout):
            yield description | row | {"command": command}


SECTIONS = {
    **dict.fromkeys(("one_node", "layers", "collectives", "remote", "progress"), of_roof),
    **{each.__name__: each for each in (overlap, mixed, executor, planning)},
    **dict.fromkeys(SIGNALS, fused),
}


def commit(root: Path = ROOT) -> str:
    """The commit of a checkout, by default this one, with ``-dirty`` if its files differ."""
    found = git_state(root)
    return (found["commit"] or "unknown")[:7] + "-dirty" * found.get("dirty", False)


def print_row(row: dict) -> None:
    """A row as a line of the terminal: its names, then its numbers."""
    cells = [
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in row.items()
        if name not in ("case", "command") and value is not None
    ]
    print(f"{row['case']:36}", *cells, flush=True)


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
    parser.add_argument("--out", type=Path, help="folder for a CSV file a section")
    chosen = parser.parse_args()
    limits = {"iters": chosen.iters, "budget": chosen.budget}
    for name in chosen.sections or SECTIONS:
        begin, rows = time.perf_counter(), []
        print(f"\n{name}", flush=True)
        for row in SECTIONS[name](name, chosen.scale, limits):
            rows.append(row | {"date": date.today().isoformat(), "commit": commit()})
            print_row(row)
        print(f"{name} took {(time.perf_counter() - begin) / 60:.1f} minutes")
        if chosen.out:
            write_rows(chosen.out / f"{name}.csv", rows)


if __name__ == "__main__":
    main()
