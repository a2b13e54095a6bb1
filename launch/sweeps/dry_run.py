"""``drbench sweep --dry-run``: what a sweep will take, before it runs: cases, memory, time, and
which partitionings move nothing."""

import os
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from algorithms import algorithms
from drbench.errors import DrbenchError
from drbench.plan.explain import traffic
from drbench.plan.memory import plan_arena
from drbench.plan.schedule import Lookahead
from drbench.program.problem import Problem
from launch.cases.case import Case, bound
from launch.cases.launchers import Launcher
from launch.cases.machine_models import of_schedule
from launch.cases.sweep_file import Sweep
from launch.host.kernels import measure_kernels
from launch.host.units import format_bytes, seconds
from launch.peers import PEERS, get_peer, present
from partitions import LayoutError

from .progress import title
from .sweep import Request, part_of

#: Measured at 4 ranks: between the repeats of one case and the next.
OVERHEAD_S = 0.03
_START_S = 1.5


@dataclass(frozen=True)
class Needs:
    """What one case takes.

    Attributes
    ----------
    flops : int
        Of one repeat.
    rank_bytes, total_bytes : int
        Tiles of the largest rank, and of all ranks, each with its pool of receive buffers (as
        planned for ranks that read in place).
    moves : bool
        Whether any rank reads, writes or adds to another rank's tiles.
    refused : str
        Why it cannot run; empty if it can.
    """

    flops: int = 0
    rank_bytes: int = 0
    total_bytes: int = 0
    moves: bool = True
    refused: str = ""


def needs(case: Case, ranks: int) -> Needs:
    """Plan a case without MPI: every rank's tiles and pool; traffic until the first rank that has
    any.

    Examples
    --------
    >>> needs(Case(64, 64, 64, "row", "row/c2", "row"), 2).moves
    False
    >>> made = needs(Case(64, 64, 64, "row", "column", "row"), 2)
    >>> made.moves, made.rank_bytes, made.total_bytes
    (True, 24576, 49152)
    """
    name = case.algorithm
    if name not in PEERS and name not in algorithms():
        return Needs(refused=f"no algorithm {name!r} in this drbench")
    try:
        if name in PEERS:  # what it needs beside its tiles, and what it moves, only it knows
            peer = get_peer(name)
            present(peer)
            problem = peer.problem(
                *(case.m, case.n, case.k, ranks, case.a, case.b, case.c, case.dtype),
                **peer.pick(case.options),
            )
            pools, moves = [0] * ranks, True
        else:
            problem, pools, moves = _program(case, ranks)
    except (DrbenchError, LayoutError) as error:
        return Needs(refused=str(error))
    sizes = [
        (sum(operand.partition.local_size(rank) for operand in problem.operands) + pool)
        * problem.itemsize
        for rank, pool in enumerate(pools)
    ]
    return Needs(problem.flops, max(sizes), sum(sizes), moves)


def _program(case: Case, ranks: int) -> tuple[Problem, list[int], bool]:
    """The problem, each rank's pool in elements, and whether anything moves."""
    algorithm, problem, options = bound(case, ranks)
    in_place = case.get == "view" and case.transport in ("auto", "direct")
    settled = algorithm.settle(problem, in_place, **options)
    settled |= of_schedule(case.model, settled.get("schedule"), case.transport)
    pools, moves = [], False
    for rank in range(ranks):
        program = algorithm.trace(problem, rank, **settled)
        moves = moves or any(traffic(program).counters.values())
        lookahead = Lookahead(program, case.prefetch)
        pools.append(plan_arena(lookahead, problem.itemsize, views=lambda owner: in_place).size)
    return problem, pools, moves


def dry_run(
    request: Request,
    sweep: Sweep,
    launcher: Launcher,
    pairs: list[tuple[str, Case]],
    limit: int,
    console: Console,
) -> int:
    """Print the cases of a sweep and their sum; ``limit`` lines at most, 0 for all."""
    ranks, nodes = request.ranks, launcher.nodes(request.ranks)
    console.print(
        f"{sweep.name}: {sweep.about}; scale {sweep.scale}, machine {launcher.name}, launcher "
        f"{' '.join(launcher.words) or 'mpiexec'}",
        markup=False,
    )
    cores = len(os.sched_getaffinity(0))
    threads = min(cores, ranks * (request.threads or max(1, cores // ranks)))
    cases = [case for _, case in part_of(pairs, request.part)][: request.max_cases]
    repeats_flops = 0
    most, still, refused, too_large = Needs(), 0, 0, 0
    for number, case in enumerate(cases, 1):
        each = needs(case, ranks)
        marks = []
        if each.refused:
            refused += 1
            marks.append(f"refused: {each.refused}")
        else:
            repeats_flops += each.flops * (
                case.warmup + case.repeats * (2 if case.roof else 1) + (2 if case.roof else 0)
            )
            most = max(most, each, key=lambda f: f.total_bytes)
            if not each.moves:
                still += 1
                marks.append("no communication")
            if request.mem_limit is not None and each.total_bytes > request.mem_limit * nodes:
                too_large += 1
                marks.append("beyond --mem-limit")
        if not limit or number <= limit:
            memory = f"{format_bytes(each.rank_bytes):>10} a rank" if not each.refused else ""
            console.print(
                Text(f"{number:6}  {title(case):<48} {memory}  {'; '.join(marks)}".rstrip())
            )
        elif number == limit + 1:
            console.print(f"        … {len(cases) - limit} more (--limit 0 lists all)")
    kernels = measure_kernels()
    estimate = repeats_flops / (kernels.flops_per_s * threads) + OVERHEAD_S * len(cases) + _START_S
    console.print(
        f"cases: {len(cases)} on {ranks} ranks and {nodes} node(s); no communication: {still} "
        "(marked, figures leave them out); "
        f"refused: {refused}; beyond --mem-limit: {too_large}"
    )
    console.print(
        f"memory of the largest case: {format_bytes(most.rank_bytes)} on its largest rank, "
        f"{format_bytes(-(-most.total_bytes // nodes))} a node "
        "(tiles and buffers; the roof's operands and MPI come on top)"
    )
    console.print(
        f"estimated time: {seconds(estimate)} for {repeats_flops:.3g} FLOPs at the "
        f"{kernels.flops_per_s * threads / 1e9:.4g} GFLOP/s of {threads} "
        "core(s), measured just now on this machine with a 1024^3 product, and "
        f"{OVERHEAD_S * 1e3:.0f} ms a case; communication not included"
    )
    return 0
