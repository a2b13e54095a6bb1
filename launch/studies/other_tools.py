"""``drbench calibrate --from``: constants of a machine model from the output of nccl-tests, of the
OSU micro-benchmarks and of ``drbench bandwidth``.

What a size means differs: nccl-tests and ``drbench bandwidth`` print the bytes of all shards of an
all-gather (``src/*.cu`` of github.com/NVIDIA/nccl-tests, a0b82b2), osu_allgather those of one
(``c/mpi/collective`` of the OSU micro-benchmarks 7). MB/s of OSU are 1e6 B/s.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import inf
from pathlib import Path
from statistics import median

from drbench.errors import UsageError
from drbench.launch.cases.machine_models import write_model
from drbench.launch.cases.sweep_values import shipped
from drbench.mappings import grouped
from drbench.model.costs import group_parts
from drbench.model.fit import fit_collective
from drbench.model.machine import Machine
from drbench.model.machine_file import read_section
from drbench.program.group_steps import AllGather, Broadcast, Reduce, ReduceScatter, Shift
from drbench.texts import bytes_text
from drbench.transport import parse_transport

_STEPS = {kind.operation: kind for kind in (AllGather, ReduceScatter, Broadcast, Reduce, Shift)}
_TRANSFERS = "osu_get_latency osu_latency osu_put_latency sendrecv_perf alltoall_perf"
#: Which tests give the constants of a link and of each operation of a group; the first that was run
#: counts. In tests of bandwidth several transfers are in flight, which hides the latency.
TESTS = {
    "bandwidth_bytes_per_s": f"osu_get_bw get osu_bw osu_put_bw put osu_bibw {_TRANSFERS}",
    "latency_s": _TRANSFERS,
    "allgather": "all_gather_perf osu_allgather allgather all_reduce_perf",
    "reducescatter": "reduce_scatter_perf osu_reduce_scatter reducescatter all_reduce_perf",
    "broadcast": "broadcast_perf osu_bcast broadcast",
    "reduce": "reduce_perf osu_reduce reduce",
    "shift": "sendrecv_perf shift",
}
_KNOWN = {*" ".join(TESTS.values()).split()}
_GIVE = "Give output of nccl-tests, OSU micro-benchmarks, or drbench bandwidth --csv or --json."
#: What a launcher writes before a line; the title of a test of OSU, or the name of one of NCCL.
_TAG = re.compile(r"^ *(?:\[[\d,]+\](?:<\w+>)?:?|\d+:)", re.M)
_TITLE = re.compile(r"OSU MPI(.+) Test|([a-z]+(?:_[a-z]+)?_perf)")
_ROW = re.compile(r"^ *\d{1,15}[ \t]+\d{1,12}(?:\.\d+)?(?:[ \t].*)?$", re.M)
#: The header of nccl-tests.
_COLUMNS = re.compile(r"^[# ]*(size .* time .*)", re.M)
#: What names of OSU's tests have instead of parts of their titles.
_NAMED = {
    "-[A-Z]{2,}|(?<=[a-z])(?<!_Put) Latency": "",
    "Bi-Directional Bandwidth": "bibw",
    "Bandwidth": "bw",
    "Broad": "b",
}


def read_rows(path: str, ranks: int | None = None) -> Iterator[tuple[str, int, float, float]]:
    """Yield the rows of a file: the test, its ranks, the bytes as its tool counts them, the seconds
    of one operation. ``ranks`` if the file does not say on how many its collectives ran.

    Raises
    ------
    UsageError
        If it is not output of these tools, or has wrong results, a test that gives no constant, or
        no rows.
    """
    from drbench.plots.select.bandwidth_rows import ROWS, BandwidthRow

    rows = []
    try:
        text = Path(path).read_text("utf-8-sig")
        if text.startswith("label,"):
            rows = ROWS.read([path])
        elif text[:2] == "[{":
            rows = [BandwidthRow(**row) for row in json.loads(text)]
    except (OSError, TypeError, ValueError) as error:
        raise UsageError(f"--from {path}: {error}. {_GIVE}") from None
    for row in rows:
        if row.median_s and not row.noisy and row.operation in _KNOWN:
            yield row.operation, row.ranks, row.nbytes, row.median_s
    # the name of the file may be that of the test, which older versions of nccl-tests do not print
    _, *parts = _TITLE.split(f"{Path(path).name}\n{_TAG.sub('', text)}")
    for title, test, body in zip(parts[::3], parts[1::3], parts[2::3]):
        if title:
            for long, short in _NAMED.items():
                title = re.sub(long, short, title)
            test = f"osu{title}".replace(" ", "_").lower()
        columns = ["size time"] if title else _COLUMNS.findall(body)[:1]
        names = " ".join(columns).split()
        members = re.findall(r"^ *# +Rank +(\d+)", body, re.M)
        count = 2 if test.endswith(("bw", "latency")) else len(members) or ranks or 0
        # FAILED: out of bounds, in versions that do not count the wrong; the others are of OSU
        wrong_rows = re.search(r"FAILED|Fail$|DATA VALIDATION ERROR", body, re.M)
        for line in _ROW.findall(body):
            cells = line.split()
            # all_gather_perf 2.13.0 has a column for it, but no word
            columns = [x for x in names if x != "redop" or len(cells) + 1 != len(names)]
            row = dict(reversed([*zip(columns, cells)]))  # first out of place
            wrong = wrong_rows or row.get("#wrong", "0") not in ("0", "N/A")
            faults = {
                f"{test} gives no constant. Use {', '.join(sorted(_KNOWN))}": test not in _KNOWN,
                "there is no time out of place. Restore it": "time" not in row,
                "results are wrong. Repair that first": wrong,
                f"{test} on unknown ranks. Give their number, -p": count < 2,
                "several runs. Give each a file of its own": len({*members}) < len(members),
            }
            for fault in filter(faults.get, faults):
                raise UsageError(f"--from {path}: row {line.strip()!r}: {fault}.")
            nbytes, value = float(row["size"]), float(row["time"]) / 1e6
            if nbytes and value:  # 0: too short to be printed
                per_s = value * 1e12 / (1 + ("bibw" in test))
                yield test, count, nbytes, nbytes / per_s if test.endswith("bw") else value


def fit_tables(rows: Iterable[tuple], section: dict, link: str) -> dict[str, dict]:
    """Tables of a machine model with the constants that the rows give, each a pair with its
    comment: the test, the file, the rows, and the error of the fit.

    Parameters
    ----------
    rows : iterable of tuple
        Of :func:`read_rows`, each with its file.
    section : dict
        The model below, which says what a group moves over its links; ``link`` is added.
    link : str
        The link between the ranks of a pair; a new one joins the nodes of a model of cores.

    Raises
    ------
    UsageError
        If tests of an operation ran on different numbers of ranks, if larger messages did not take
        longer, or if the model would not use a constant.
    """
    by_test = grouped(rows, lambda row: row[0])
    tables: dict[str, dict] = {"links": {}, "collectives": {}, "transports": {}}
    tested = by_test.keys() & TESTS["bandwidth_bytes_per_s"].split()
    if tested and link not in section.setdefault("links", {}):
        section["links"][link] = {"bandwidth_bytes_per_s": 1e30}
        for name, table in section.get("transports", {}).items():
            table["within"] = section.get("calibrated", {}).get("ranks", 0)
            tables["transports"][name] = {"within": (table["within"], "ranks of a node")}
    machine = Machine.from_dict(section).for_transport(parse_transport("auto"))
    for operation, tests in TESTS.items():
        test = next(filter(by_test.get, tests.split()), None)
        if test is None:
            continue
        _, counts, sizes, seconds, files = zip(*by_test[test])
        if len({*counts}) > 1 or len({*sizes}) < 2:
            raise UsageError(f"{test} needs several sizes on one number of ranks. Run it so.")
        prefix, share = _see_in_model(machine, operation, test, counts[0])
        halves = 1 + (test == "all_reduce_perf")  # a reduce-scatter, and an all-gather
        points = [(2, share * nbytes, s / halves) for nbytes, s in zip(sizes, seconds)]
        fitted = fit_collective(points)
        start_s, _, rate = fitted.values()
        if rate == inf:
            raise UsageError(f"{test}: larger sizes did not take longer. Measure up to 1 GiB.")
        error = 100 * median(abs((start_s + x / rate) / s - 1) for _, x, s in points)
        comment = (
            f"{test} of {', '.join(dict.fromkeys(files))}: {len(points)} rows of "
            f"{bytes_text(min(sizes))} to {bytes_text(max(sizes))}, median error {error:.0f} %"
        )
        if operation in _STEPS:
            table = {f"{prefix}{name}": (value, comment) for name, value in fitted.items()}
            tables["collectives"][operation] = {"node": machine.node_ranks, **table}
        else:
            value = start_s if operation == "latency_s" else rate
            tables["links"].setdefault(link, {})[operation] = value, comment
    return {name: table for name, table in tables.items() if table}


def _see_in_model(machine: Machine, operation: str, test: str, ranks: int) -> tuple[str, float]:
    """The prefix of the constants of a test, and the bytes that cross one link for each byte of its
    sizes: for groups the seconds of the model at 1 B/s."""
    node, members = machine.node_ranks, tuple(range(ranks))
    prefix = "across_" * (0 < node < ranks)
    if test == "alltoall_perf":
        if prefix:
            raise UsageError(f"{test} on several nodes is no test of one link. Run it on one node.")
        return "", (ranks - 1) / ranks / machine.links_within(members)
    if operation not in _STEPS:
        return "", 1.0
    if machine.nccl:
        raise UsageError(
            f"machine {machine.name} has a table nccl, which replaces collectives. Use a model "
            "without it, as h100x8measured."
        )
    step = _STEPS[operation]
    collective = replace(
        machine.collective(operation),
        node=node,
        bandwidth_bytes_per_s=None if prefix else 1.0,
        across_bandwidth_bytes_per_s=1.0,
    )
    probe = replace(machine, collectives={operation: collective})
    shard = 1 / ranks if step.kind == "ring" and test != "osu_allgather" else 1.0
    return prefix, group_parts(step, probe, ranks, shard, 1.0, "row", members)[2]


def import_constants(
    files: Iterable[str], machine: str, link: str | None, name: str, save: str, ranks: int | None
) -> str:
    """Write the ``[model]`` of a machine file with the constants that the files give, above those
    of a machine model; return its text and what no file has measured.

    Raises
    ------
    UsageError
        If a file or the model is of no use, or would be replaced by what is based on it.
    """
    base = shipped("machines").get(machine, Path(machine))
    section = read_section(base)
    links = section.get("links", ["network"])
    link = link or [*links][0]
    if link not in links or base.resolve() == Path(save).resolve():
        raise UsageError(
            f"--link takes a link of {machine} ({', '.join(links)}), and --save another file than "
            f"{base}. Change one of them."
        )
    rows: list[tuple] = []
    for path in files:
        known = len(rows)
        rows += ((*row, Path(path).name) for row in read_rows(path, ranks))
        if len(rows) == known:
            raise UsageError(f"--from {path}: it has no rows that can be used. {_GIVE}")
    below = base.name if machine == base.stem else os.path.relpath(base, Path(save).parent)
    text = write_model(save, {"name": name, "base": below} | fit_tables(rows, section, link))
    Machine.load(save)
    run = {row[0] for row in rows}
    left = [f"{what}: {tests}" for what, tests in TESTS.items() if run.isdisjoint(tests.split())]
    heading = f"# as in {machine}, and the tests that give it:"
    return "\n#   ".join([f"{text}\n{heading}", *(left or ["nothing"])])
