"""The bars of the core, measured: rows for tables of performance.md and algorithms.md. Not a test:
it takes minutes and wants a quiet machine.

    python -m benchmarks core [SECTION...] [--out DIR] [--size 4096] [--pairs 5] [--budget 8]

Each section prints its table and, with ``--out``, writes DIR/SECTION.csv, a row a case with the
command that measured it; ``make docs`` takes the tables of the pages from those of
results/measured/NAME/performance. Every ratio is the median of interleaved pairs of the same run
(``drbench run``): at least ``--pairs`` of them, and more until the median is known or
``--budget`` seconds of a case are over. On two cores and at the default size, in minutes: one_node
8, layers 5, collectives 3, remote 6, overlap 6, progress 5, small 4, mixed 4, gather, reduce, sums,
signals and signals_remote 2 each, sockets and pieces 1, planning and executor less than one.
"""

import argparse
import csv
import json
import os
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import date
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REMOTE = {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self"}
PRESETS = {
    "row": ("row", "row", "row"),
    "column": ("column", "column", "column"),
    "inner": ("row", "column", "column"),
    "outer": ("column", "row", "row"),
    "block": ("block", "block", "block"),
    "misaligned": ("tiles:1500x1100@2x1", "tiles:1300x1700@1x2", "block"),
    "column, column, row": ("column", "column", "row"),
}
#: Two virtual nodes of one machine, and tiles for four ranks on them that meet at no boundary.
CLIQUES = {"MPIR_CVAR_NUM_CLIQUES": "2"}
MIXED_TILES = ("tiles:700x500@2x2", "tiles:600x800@2x2", "block")
#: Turns of each way to reach the others in ``mixed``, and of each case in ``executor``.
ROUNDS = 3
REMOTE_CASES = (("row", "CB"), ("column", "C"), ("outer", "CB"), ("column, column, row", "B"))
FIVE = ("row", "column", "inner", "outer", "misaligned")
#: Predicts the rows of ``gather`` and ``reduce``. Made by benchmarks/model/model.py.
MODEL = Path("results/measured/epyc-2core/model/throttled/here.toml")
#: Of what is timed here, without ``drbench run``.
PAIRS = 9
#: Of a row that compares with the roof: what the record of the run calls it.
MEASURED = (
    "status",
    "percent_of_roof",
    "percent_of_roof_min",
    "percent_of_roof_max",
    "percent_of_roof_low",
    "percent_of_roof_high",
    "stable",
    "noisy",
    "median_s",
    "roof_gflops",
    "get_bytes",
    "balance_limit",
)


def run(ranks: int, *arguments: str, env: dict | None = None, root: Path = ROOT) -> dict:
    """One ``drbench run --json`` of the checkout ``root``; its record, with its ``command``."""
    environ = {**os.environ, "PYTHONPATH": str(root), **(env or {})}
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
        environ.pop(name, None)
    words = ["run", "-p", str(ranks), *arguments]
    command = [sys.executable, "-m", "drbench", *words, "--json"]
    done = subprocess.run(command, env=environ, cwd=root, capture_output=True, text=True)
    if not done.stdout:
        raise SystemExit(f"{shlex.join(command)}\n{done.stderr}")
    told = [f"{name}={value}" for name, value in (env or {}).items()]
    return json.loads(done.stdout) | {"command": " ".join([*told, "drbench", shlex.join(words)])}


def case(sizes, layout: str, stationary: str, *more: str, repeats: str, env=None) -> dict:
    """A two-rank, one-thread fp32 case with the roof."""
    m, n, k = sizes
    a, b, c = (f"--{name}={text}" for name, text in zip("abc", PRESETS[layout]))
    words = f"-m {m} -n {n} -k {k} --stationary {stationary} --threads 1 {repeats}"
    return run(2, *words.split(), a, b, c, *more, env=env)


def ratio(name: str, bar: float, record: dict, **more) -> dict:
    """A row of a table of ratios to the roof."""
    measured = {column: record.get(column) for column in MEASURED}
    return {"case": name, **more, "bar": bar, **measured, "command": record["command"]}


def one_node(size: int, repeats: str) -> Iterator[dict]:
    """Ratios to the roof on one node: cubes and MLP layers in place, cubes by RMA."""
    cube, h = (size,) * 3, size // 2
    for stationary, bar, misaligned, layouts in (
        ("C", 0.98, 0.95, FIVE),
        ("B", 0.97, 0.93, (*FIVE, "column, column, row")),
    ):
        for layout in layouts:
            found = case(cube, layout, stationary, repeats=repeats)
            least = misaligned if layout == "misaligned" else bar
            yield ratio(f"{layout}, S-{stationary}", least, found, table="cube")
    found = case(cube, "misaligned", "B", "-o", "work=level", repeats=repeats)
    yield ratio("misaligned, S-B, -o work=level", 0.93, found, table="cube")
    yield from mlp(1024, h, 0.95, repeats, table="mlp")
    for layout in FIVE:
        for stationary in "CB":
            found = case(cube, layout, stationary, "--transport", "rma", repeats=repeats)
            yield ratio(f"{layout}, S-{stationary}", 0.85, found, table="rma")


def mlp(m: int, h: int, bar: float, repeats: str, /, **more) -> Iterator[dict]:
    """Both layers of an MLP of hidden size h, every preset with C and with B staying."""
    for name, sizes in (("MLP-1", (m, 4 * h, h)), ("MLP-2", (m, h, 4 * h))):
        for layout in ("row", "column", "inner", "outer", "block"):
            for stationary in "CB":
                found = case(sizes, layout, stationary, repeats=repeats)
                yield ratio(f"{name} {layout}, S-{stationary}", bar, found, **more)


def layers(size: int, repeats: str) -> Iterator[dict]:
    """MLP layers of few rows, tens of milliseconds a repeat, and of many."""
    for m, bar in ((256, 0.90), (4096, 0.95)):
        yield from mlp(m, size // 2, bar, repeats, m=m)


def collectives(size: int, repeats: str) -> Iterator[dict]:
    """The 2-D algorithms that sum C along process rows and columns; no bar."""
    for algorithm in ("collective", "summa", "meshslice", "wang"):
        for dataflow, mesh in (("LS", "1x2"), ("RS", "2x1")):
            words = f"--algorithm {algorithm} -o dataflow={dataflow} --mesh {mesh}"
            words += f" --threads 1 -m {size} -n {size} -k {size} {repeats}"
            found = run(2, *words.split())
            yield ratio(f"{algorithm} {dataflow}", None, found, collectives="mpi")


def remote(size: int, repeats: str) -> Iterator[dict]:
    """Ratios with every rank remote (TCP), by progress engine; sums of Stationary B pushed too."""
    for layout, stationaries in REMOTE_CASES:
        for stationary in stationaries:
            for progress in ("poll", "none"):
                found = case(
                    (size,) * 3,
                    layout,
                    stationary,
                    "-o",
                    f"progress={progress}",
                    repeats=repeats,
                    env=REMOTE,
                )
                bar = 0.80 if progress == "poll" else None
                yield ratio(f"{layout}, S-{stationary}", bar, found, progress=progress)
    for layout in ("row", "outer", "column, column, row"):
        words = "-o", "progress=poll", "-o", "sums=auto"
        found = case((size,) * 3, layout, "B", *words, repeats=repeats, env=REMOTE)
        yield ratio(f"{layout}, S-B, -o sums=auto", 0.80, found, progress="poll")


def progress(size: int, repeats: str) -> Iterator[dict]:
    """The 2-D algorithms by who drives MPI, on the node and with every rank remote."""
    half = str(size // 2)
    for algorithm in ("collective", "summa", "meshslice", "wang"):
        words = f"--algorithm {algorithm} -o dataflow=OS --mesh 1x2 --threads 1 {repeats}"
        for where, env in (("node", None), ("tcp", REMOTE)):
            for engine in ("poll", "none"):
                sizes = ["-m", half, "-n", half, "-k", half, "-o", f"progress={engine}"]
                found = run(2, *words.split(), *sizes, env=env)
                yield ratio(algorithm, None, found, where=where, progress=engine)


def overlap(size: int, repeats: str) -> Iterator[dict]:
    """Throttled transfers against max(compute, communication) and against their sum.

    Compute is the same program on a free network. The machine's speed may differ from run to run,
    so both are set against the roof beside them, and compute is said at the throttled run's speed.
    """
    for layout, stationary in (("column", "C"), ("row", "C"), ("column, column, row", "B")):
        for share in (0.3, 0.7, 1.0):
            throttled = lambda gbps, *more: case(
                (size,) * 3,
                layout,
                stationary,
                f"--transport=throttled:{gbps},0",
                "-o",
                "check=false",
                *more,
                repeats=repeats,
            )
            free = throttled("1e6")
            moved = free["direct_bytes"] + free["get_bytes"] + free["accumulate_bytes"]
            comm_s = share * free["median_s"]
            gbps = moved / 2 / comm_s / 1e9
            for prefetch in (1, 0):
                found = throttled(f"{gbps:.6f}", f"-oprefetch={prefetch}")
                slower = free["percent_of_roof"] / found["percent_of_roof"]
                compute_s = found["median_s"] / slower
                yield {
                    "case": f"{layout}, S-{stationary}",
                    "transfers_over_compute": share,
                    "prefetch": prefetch,
                    "median_s": found["median_s"],
                    "compute_s": compute_s,
                    "transfers_s": comm_s,
                    "time_over_max": found["median_s"] / max(compute_s, comm_s),
                    "time_over_sum": found["median_s"] / (compute_s + comm_s),
                    "command": found["command"],
                }


def pieces(size: int, repeats: str) -> Iterator[dict]:
    """What cutting a product costs: one GEMM of size/2 x size x size/2 on one thread, whole and in
    pieces along m, n or k, measured in turn."""
    import numpy
    from threadpoolctl import threadpool_limits

    sys.path.insert(0, str(ROOT))
    from drbench.host.blas import load_blas

    blas = load_blas()
    m = n = size // 2
    a, b, c = (numpy.ones(shape, numpy.float32) for shape in ((m, size), (size, n), (m, n)))

    def multiply(axis: str, count: int) -> float:
        start = time.perf_counter()
        for at in range(count):
            part = lambda extent: slice(at * extent // count, (at + 1) * extent // count)
            rows, columns, inner = (
                part(extent) if name == axis else slice(None)
                for name, extent in (("m", m), ("n", n), ("k", size))
            )
            beta = 1.0 if axis == "k" and at else 0.0
            blas.gemm(a[rows, inner], b[inner, columns], c[rows, columns], beta)
        return time.perf_counter() - start

    with threadpool_limits(1):
        for axis in "mnk":
            for count in (2, 4, 8):
                multiply(axis, count)
                ratios = [multiply(axis, count) / multiply(axis, 1) for _ in range(PAIRS)]
                yield {
                    "case": f"{m}x{size}x{n}",
                    "axis": axis,
                    "pieces": count,
                    "time_over_whole": statistics.median(ratios),
                    "least": min(ratios),
                    "most": max(ratios),
                    "command": "python -m benchmarks core pieces",
                }


def planning(size: int, repeats: str) -> Iterator[dict]:
    """Time to plan one rank of p = 4096, m = n = k = 262144; the median and the range of some."""
    sys.path.insert(0, str(ROOT))
    from algorithms import get_algorithm
    from drbench.program.problem import Problem

    get_algorithm("universal").trace(Problem(8, 8, 8, 1), 0)  # imports what planning needs
    for grid, bar_s in ((64, 0.02), (512, 0.3)):
        text = f"tiles:{262144 // grid}x{262144 // grid}@64x64"
        problem = Problem(262144, 262144, 262144, 4096, text, text, text)
        for stationary in "CBA":
            times = []
            for _ in range(PAIRS):
                start = time.perf_counter()
                trace = get_algorithm("universal").trace(problem, 77, stationary=stationary)
                times.append(time.perf_counter() - start)
            yield {
                "case": f"{grid} x {grid} tiles, S-{stationary}",
                "steps": len(trace.steps),
                "median_s": statistics.median(times),
                "least_s": min(times),
                "most_s": max(times),
                "bar_s": bar_s,
                "command": "python -m benchmarks core planning",
            }


def executor(size: int, repeats: str) -> Iterator[dict]:
    """Own cost of the executor: products of next to no work, 4096 of 8 x 8 x 8. Cases take turns,
    and the median run counts: an absolute time is no better than the seconds it was taken in."""
    tiles = "-m 128 -n 128 -k 128 --a tiles:8x8 --b tiles:8x8 --c tiles:8x8 -o check=false"
    tiles += " --iters 20 --budget 0"
    cases = (
        (1, "C", "S-C", ""),
        (1, "B", "S-B", ""),
        (
            2,
            "B",
            "S-B, 2 ranks, every transfer a step",
            "--transport throttled:1000,0 -o chunk=none",
        ),
    )
    turns = [
        [
            run(ranks, *f"{tiles} --stationary {stationary} {more}".split())
            for ranks, stationary, _, more in cases
        ]
        for _ in range(ROUNDS)
    ]
    for (ranks, _, name, _), found in zip(cases, zip(*turns)):
        times = [each["median_s"] / (each["steps"] / ranks) for each in found]
        yield {
            "case": name,
            "steps": found[0]["steps"],
            "median_s": statistics.median(times),
            "least_s": min(times),
            "most_s": max(times),
            "bar_s": 3e-6,
            "command": found[0]["command"],
        }


def on_ranks(size: int, repeats: str, *words: str, env: dict | None = None) -> Iterator[dict]:
    """Rows of a benchmark on two ranks of one thread each."""
    from benchmarks.ranks import start

    words += ("--size", str(size), *repeats.split())
    done = start(2, *words, env=env, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{shlex.join(done.args)}\n{done.stderr}")
    told = "".join(f"{name}={value} " for name, value in (env or {}).items())
    for row in json.loads(done.stdout):
        yield row | {"command": f"{told}python -m benchmarks {shlex.join(words)}"}


def gather(size: int, repeats: str) -> Iterator[dict]:
    """AllGather + GEMM in tiles on slow networks, against compute and transfers."""
    yield from on_ranks(size, repeats, "signals", "throttled", "gather", *model())


def reduce(size: int, repeats: str) -> Iterator[dict]:
    """GEMM + ReduceScatter in tiles on slow networks, against compute and transfers."""
    yield from on_ranks(size, repeats, "signals", "throttled", "reduce", *model())


def sums(size: int, repeats: str) -> Iterator[dict]:
    """Stationary B of the universal algorithm on slow networks, with its sums added or pushed."""
    yield from on_ranks(size, repeats, "signals", "throttled", "sums", *model())


def small(size: int, repeats: str) -> Iterator[dict]:
    """Layers of an MLP at a small batch, against the roof and against their own products."""
    for row in on_ranks(size, repeats, "small"):
        yield {"bar": 0.90, **row}


def sockets(size: int, repeats: str) -> Iterator[dict]:
    """Every rank remote, against what the sockets leave of the roof: the bound, and the share of it
    that is reached."""
    for row in on_ranks(size, repeats, "sockets", env=REMOTE):
        yield {"bar": 0.95, **row}


def in_rounds(ways: dict[str, Callable[[], dict]]) -> Iterator[tuple[dict, ...]]:
    """The records of two ways or more, which take turns, each round in another order."""
    for turn in range(ROUNDS):
        found = {how: ways[how]() for how in [*ways][:: 1 if turn % 2 else -1]}
        yield tuple(found[how] for how in ways)


def over(pairs: list[tuple[dict, ...]]) -> dict:
    """The first of two over the second, each as a share of the roof beside it: median and range."""
    ratios = [one["percent_of_roof"] / base["percent_of_roof"] for one, base in pairs]
    return {
        "ratio": statistics.median(ratios),
        "low": min(ratios),
        "high": max(ratios),
        "rounds": len(ratios),
        "status": max(each["status"] for pair in pairs for each in pair),
    }


def mixed(size: int, repeats: str) -> Iterator[dict]:
    """Four ranks on two virtual nodes of this machine, against the same ranks on one that reach
    each other by RMA: both in turn, each as a share of the roof measured beside it."""
    half = size // 2
    cube, layer = (half,) * 3, (half // 2, 4 * half, half)
    cases = [("row", "ABC", cube), ("column", "BC", cube), ("block", "ABC", cube)]
    cases += [("outer", "C", layer), ("inner", "B", layer), ("misaligned", "C", cube)]
    for layout, stationaries, (m, n, k) in cases:
        for stationary in stationaries:
            presets = MIXED_TILES if layout == "misaligned" else PRESETS[layout]
            words = f"--stationary {stationary} --threads 1 --iters 6 --budget 0"
            words += f" -m {m} -n {n} -k {k} --a {presets[0]} --b {presets[1]} --c {presets[2]}"
            one_node = partial(run, 4, *words.split(), "--transport", "rma")
            ways = {"mixed": partial(run, 4, *words.split(), env=CLIQUES), "one": one_node}
            pairs = list(in_rounds(ways))
            (far, near), moved = pairs[-1], ("direct_bytes", "get_bytes", "put_bytes")
            yield {
                "case": f"{layout}, S-{stationary}",
                "m": m,
                "n": n,
                "k": k,
                "bar": 0.93,
                **over(pairs),
                **{f"{how}_median_s": each["median_s"] for how, each in zip(ways, pairs[-1])},
                **{name: far[name] for name in (*moved, "accumulate_bytes")},
                **{f"one_{name}": near[name] for name in (*moved, "accumulate_bytes")},
                "command": far["command"],
            }


def model() -> list[str]:
    """The model of this machine, if there is one."""
    return ["--machine", str(MODEL)] if (ROOT / MODEL).exists() else []


def signals(size: int, repeats: str) -> Iterator[dict]:
    """Fused overlap in place on a node, against local products and the universal algorithm; and the
    own cost of a signal."""
    for kind in ("gather", "reduce"):
        for row in on_ranks(size, repeats, "signals", "roof", kind, "--tiles", "512,2048"):
            yield {"kind": kind, "bar": None, **row}
    yield from on_ranks(size, repeats, "signals", "cost")


def signals_remote(size: int, repeats: str) -> Iterator[dict]:
    """The same with every rank remote."""
    for kind, bar in (("gather", 0.80), ("reduce", 0.75)):
        for row in on_ranks(
            size, repeats, "signals", "roof", kind, "--tiles", "512,2048", env=REMOTE
        ):
            yield {"kind": kind, "bar": bar, **row}


SECTIONS = {
    each.__name__: each
    for each in (
        one_node,
        layers,
        collectives,
        remote,
        progress,
        overlap,
        gather,
        reduce,
        sums,
        signals,
        signals_remote,
        small,
        sockets,
        mixed,
        pieces,
        planning,
        executor,
    )
}


def commit() -> str:
    asked = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=7"]
    return subprocess.run(asked, capture_output=True, text=True).stdout.strip()


def shown(row: dict) -> str:
    """A row as a line of the terminal: what it is, then its numbers."""
    cells = [
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in row.items()
        if name not in ("case", "command") and value is not None
    ]
    return f"{row['case']:36} " + " ".join(cells)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "sections", nargs="*", help=f"of {', '.join(SECTIONS)}; all if none is named"
    )
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--pairs", type=int, default=5, help="least repeats of a case")
    parser.add_argument("--budget", type=float, default=8, help="seconds of a case")
    parser.add_argument("--out", type=Path, help="folder for a CSV file a section")
    chosen = parser.parse_args()
    for name in chosen.sections:
        if name not in SECTIONS:
            parser.error(f"no section {name!r}; there are {', '.join(SECTIONS)}")
    if chosen.out:
        chosen.out.mkdir(parents=True, exist_ok=True)
    repeats = f"--iters {chosen.pairs} --budget {chosen.budget:g}"
    about = {"date": date.today().isoformat(), "commit": commit()}
    for name in chosen.sections or SECTIONS:
        print(f"\n{name}: {' '.join(SECTIONS[name].__doc__.split())}", flush=True)
        start, rows = time.perf_counter(), []
        for row in SECTIONS[name](chosen.size, repeats):
            rows.append(row | about)
            print(shown(row), flush=True)
        print(f"{name} took {(time.perf_counter() - start) / 60:.1f} minutes")
        if chosen.out:  # whole or not at all: a section that was ended leaves what was there
            made = chosen.out / f"{name}.csv.new"
            with open(made, "w", newline="", encoding="utf-8") as file:
                columns = dict.fromkeys(name for row in rows for name in row)
                writer = csv.DictWriter(file, [*columns], lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
            made.replace(chosen.out / f"{name}.csv")


if __name__ == "__main__":
    main()
