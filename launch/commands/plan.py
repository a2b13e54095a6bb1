"""``drbench plan``: a rank's program, without MPI; ``list``: what there is to choose from."""

from __future__ import annotations

import json
from pathlib import Path

import click

from algorithms import algorithms, get_algorithm
from drbench.common import Clock
from drbench.errors import UsageError
from drbench.plan.explain import listing, memory_bytes, traffic
from drbench.program.problem import Problem
from drbench.program.steps import COUNTERS
from launch.cases.machine_models import of_schedule
from launch.host.show import console, drawing, table
from launch.host.units import format_bytes, seconds
from launch.peers import PEERS, peers
from partitions import PRESETS

from .options import (
    RANK,
    TEXT,
    command,
    decide_stationary,
    json_option,
    machine_of,
    option,
    problem,
    problem_options,
    ranks_option,
    take_options,
)

__all__ = ["Plan", "plan_rank", "show_plan"]


@command()
@problem_options(type=("float32", "float64", "bfloat16:float32"))
@ranks_option(required=True, help="Ranks to plan for.")
@option(
    "--rank",
    "rank",
    type=RANK,
    default=0,
    metavar="RANK|all",
    group="Output",
    help="Whose program to show; all: the sums over all ranks.",
)
@option(
    "--limit",
    type=click.IntRange(0),
    default=40,
    group="Output",
    help="Steps of the program to list.",
)
@option(
    "--machine",
    type=TEXT,
    metavar="NAME|FILE",
    group="Output",
    help="Machine model that --stationary auto:model asks [default: here], and --schedule cost and "
    "exhaustive [default: 100 FLOPs to a byte].",
)
@json_option("Print counts as one JSON object.")
def plan(ranks, rank, limit, machine, as_json, **values):
    """Show the program of a rank without running it: steps, bytes by kind and by peer, FLOPs,
    memory, a drawing.

    \b
      drbench plan -m 4Ki -n 4Ki -k 4Ki -p 12 --a row --b column --c block/c2 --stationary B
    """
    if values["algorithm"] in PEERS:
        raise UsageError(
            f"{values['algorithm']} is a peer and plans its own way: there is no program to "
            "show. Run it; drbench list --peers says more."
        )
    options = take_options(values)
    asked, _, model = machine_of(machine, options)
    options = decide_stationary(values, options, ranks, asked)
    described = problem(values, options, ranks)
    show_plan(
        values["algorithm"], described, options, rank, values["prefetch"], as_json, limit, model
    )


@click.command("list")
@click.option(
    "--peers",
    "peers_",
    is_flag=True,
    help="Which other libraries can be run on the same work here, and how to get the others.",
)
def list_(peers_):
    """List algorithms, partitions, presets, transports and machines; with --peers, peers."""
    if peers_:
        return _list_peers()
    _show_listing()


class Plan:
    """Counts of one rank's program, or their sum over all ranks.

    Attributes
    ----------
    plan_s : float
        Seconds spent tracing.
    steps, flops : int
    counters : dict of str to int
    """

    def __init__(self):
        self.plan_s, self.steps, self.flops = 0.0, 0, 0
        self.counters = dict.fromkeys(COUNTERS, 0)

    def add(self, trace, plan_s: float) -> None:
        """Count one more rank's trace."""
        self.plan_s += plan_s
        self.steps += len(trace.steps)
        self.flops += trace.flops
        for name, value in traffic(trace).counters.items():
            self.counters[name] += value

    def to_json_dict(self) -> dict:
        """What ``plan --json`` prints of the counts."""
        return {"plan_s": self.plan_s, "steps": self.steps, "flops": self.flops, **self.counters}


def plan_rank(algorithm: str, problem: Problem, rank: int, options: dict, model: str | None = None):
    """Trace one rank's program: (trace, seconds it took). ``model`` as in
    :class:`launch.cases.case.Case`."""
    chosen = get_algorithm(algorithm)
    settled = chosen.settle(problem, **options)
    settled |= of_schedule(model, settled.get("schedule"))
    start = Clock.now()
    trace = chosen.trace(problem, rank, **settled)
    return trace, Clock.now() - start


def show_plan(
    algorithm: str,
    problem: Problem,
    options: dict,
    rank: int | str,
    prefetch: int,
    as_json: bool,
    limit: int,
    model: str | None = None,
) -> None:
    """Print the plan of one rank, or the sums over all ranks."""
    if rank != "all" and rank >= problem.nprocs:
        raise UsageError(f"--rank must be below the number of ranks, {problem.nprocs}, got {rank}.")
    settled = get_algorithm(algorithm).settle(problem, **options)
    plan, trace, peers, memory = Plan(), None, {}, []
    for r in range(problem.nprocs) if rank == "all" else [rank]:
        trace, plan_s = plan_rank(algorithm, problem, r, options, model)
        plan.add(trace, plan_s)
        memory.append(memory_bytes(trace, prefetch))
        peers[r] = traffic(trace)
    if as_json:
        keys = {
            "algorithm": algorithm,
            "m": problem.m,
            "n": problem.n,
            "k": problem.k,
            "dtype": problem.dtype,
            "ranks": problem.nprocs,
            "rank": rank,
            **{name: problem.operand(name).partition.text for name in "abc"},
            "stationary": settled.get("stationary"),
        }
        largest = {
            f"{name}_bytes": max(each[name] for each in memory) for name in ("pool", "pool_direct")
        }
        tiles = {"tile_bytes": max(each["A"] + each["B"] + each["C"] for each in memory)}
        print(json.dumps(keys | plan.to_json_dict() | tiles | largest))
        return
    out = console()
    out.print(drawing(problem))
    still = f", Stationary {settled['stationary']}" if settled.get("stationary") else ""
    who = (
        f"all {problem.nprocs} ranks together"
        if rank == "all"
        else f"rank {rank} of {problem.nprocs}"
    )
    out.print(
        f"\n[bold]{algorithm}{still}[/], {who}: {plan.steps} steps, {plan.flops:.4g} FLOPs, "
        f"planned in {seconds(plan.plan_s)}"
    )
    moved = {name: value for name, value in plan.counters.items() if value}
    out.print(
        "bytes moved: "
        + (
            ", ".join(
                f"{name.removesuffix('_bytes')} {value} ({format_bytes(value)})"
                for name, value in moved.items()
            )
            or "none"
        )
    )
    _show_memory(out, memory, rank)
    if rank == "all":
        _show_ranks(out, peers, memory)
    else:
        _show_peers(out, peers[rank])
        for line in listing(trace, limit):
            out.print(line, markup=False, soft_wrap=True)


def _show_memory(out, memory, rank) -> None:
    total = lambda each: each["A"] + each["B"] + each["C"]
    most = max(memory, key=lambda each: total(each) + each["pool"])
    tiles = " + ".join(f"{name} {format_bytes(most[name])}" for name in "ABC")
    whose = "the largest rank" if rank == "all" else "the rank"
    out.print(
        f"memory of {whose}: tiles {tiles} = {format_bytes(total(most))}; pool at most "
        f"{format_bytes(most['pool'])} "
        f"({format_bytes(most['pool_direct'])} if every tile is read in place)"
    )


def _show_peers(out, found) -> None:
    if not found.by_peer:
        return
    names = [name for name in COUNTERS if any(name in kinds for kinds in found.by_peer.values())]
    rows = [
        (str(peer), *(str(kinds.get(name, 0)) for name in names))
        for peer, kinds in sorted(found.by_peer.items())
    ]
    out.print(table("|".join(f">{name}" for name in ("rank", *names)), rows, "bytes by peer"))


def _show_ranks(out, peers, memory) -> None:
    names = [name for name in COUNTERS if any(found.counters[name] for found in peers.values())]
    rows = [
        (
            str(rank),
            *(str(found.counters[name]) for name in names),
            format_bytes(each["A"] + each["B"] + each["C"]),
            format_bytes(each["pool"]),
        )
        for (rank, found), each in zip(sorted(peers.items()), memory)
    ]
    columns = "|".join(f">{name}" for name in ("rank", *names, "tiles", "pool"))
    out.print(table(columns, rows, "bytes by rank"))


_PARTITIONS = [
    ("row", "row blocks, one tile a rank"),
    ("column", "column blocks, one tile a rank"),
    (
        "block, block:3x2, block:3x2:col",
        "2-D blocks on a near-square or given process grid, ranks row- or column-major",
    ),
    ("tiles:128x96@2x3, ...:col", "block-cyclic: tiles of 128x96 dealt to a 2x3 process grid"),
    ("traditional, traditional:3x4", "tiles of A, B and C that align on one process grid"),
    (".../cN", "N replicas; N divides the ranks"),
    ('S(0), S(1), R, "S(0),S(1)@2x3"', "DTensor placements"),
]
_TRANSPORTS = [
    ("auto", "in place where a rank's memory can be reached, RMA elsewhere"),
    ("direct", "in place only: tiles are read without a copy, added to under locks"),
    ("rma", "MPI Rget and Raccumulate, even on one node"),
    ("throttled:GBps,us", "in place, each transfer completing by a timer; for overlap experiments"),
]


def machines() -> list[tuple[str, str]]:
    """The machine `here`, and the machine files of this installation."""
    files = sorted((Path(__file__).parents[1] / "data" / "machines").glob("*.toml"))
    return [
        ("here", "this machine, as measured by run and mlp; modelled by calibrate"),
        *(
            (
                file.stem,
                "machine model (as tpuv4-4x8)" if file.stem.startswith("tpuv4") else "machine file",
            )
            for file in files
            if file.stem != "here"
        ),
    ]


def _show_listing() -> None:
    """Print the five lists."""
    out = console()
    for title, rows in (
        ("algorithms", [(name, entry.about) for name, entry in algorithms().items()]),
        ("partitions", _PARTITIONS),
        (
            "presets",
            [(name, f"{preset.about} ({preset.source})") for name, preset in PRESETS.items()],
        ),
        ("transports", _TRANSPORTS),
        ("machines", machines()),
    ):
        out.print(table("|", rows, title))


def _list_peers() -> None:
    """Print a table of the peers: here or not, what was found or is missing, how to get it."""
    rows = []
    for peer in peers().values():
        found = peer.available()
        told = found.what if found.ok else f"{found.what}. {found.get}"
        rows.append((peer.name, "yes" if found.ok else "no", f"{peer.about}\n{told}"))
    title = "peers, for drbench run --algorithm NAME and drbench peers"
    console().print(table("name|here|what", rows, title))
