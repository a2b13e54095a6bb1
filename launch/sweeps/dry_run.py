"""``drbench sweep --dry-run``: what a sweep will take, before it runs: cases, memory, time, and
which partitionings move nothing."""

import math
from collections import Counter
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from drbench.errors import DrbenchError
from drbench.plan.explain import traffic
from drbench.plan.schedule import pool_bytes
from launch.cases.case import Case, bound_on, in_place_on, near_by
from launch.cases.machine_models import of_schedule
from launch.host.units import duration, format_bytes, plural
from launch.peers import PEERS, get_peer, present
from partitions import LayoutError

from .estimate import OVERHEAD_S, estimated
from .plan import Plan, SweepRequest, part_of
from .progress import title


@dataclass(frozen=True)
class Needs:
    """What one case takes.

    Attributes
    ----------
    rank_bytes, total_bytes : int
        Tiles of the largest rank, and of all ranks, each with its pool of receive buffers (as
        planned for ranks that read in place on their node).
    moves : bool
        Whether any rank reads, writes or adds to another rank's tiles.
    refused : str
        Why it cannot run; empty if it can.
    """

    rank_bytes: int = 0
    total_bytes: int = 0
    moves: bool = True
    refused: str = ""


def needs(case: Case, ranks: int, node_of: list[int] | None = None) -> Needs:
    """Plan a case without MPI: every rank's tiles and pool; traffic until the first rank that has
    any. ``node_of`` has for each rank the lowest one on its node; by default all share one.

    Examples
    --------
    >>> needs(Case(64, 64, 64, "row", "row/c2", "row"), 2).moves
    False
    >>> made = needs(Case(64, 64, 64, "row", "column", "row"), 2)
    >>> made.moves, made.rank_bytes, made.total_bytes
    (True, 24576, 49152)
    """
    pools, moves = [0] * ranks, True  # beside its tiles, what a peer needs and moves only it knows
    try:
        if case.algorithm in PEERS:
            present(get_peer(case.algorithm))
        node_of = node_of or [0] * ranks
        count = len({*node_of})
        taker, problem, options = bound_on(case, node_of)
        if case.algorithm not in PEERS:
            resolved = taker.resolve(problem, in_place_on(case, count), **options)
            model = of_schedule(case.model, resolved, case.transport, case.dtype)
            moves = False
            for rank in range(ranks):
                trace = taker.trace(problem, rank, model, **resolved)
                moves = moves or any(traffic(trace).counters.values())
                views = near_by(case, node_of, rank)
                pools[rank] = pool_bytes(trace, case.ahead(resolved), views)
    except (DrbenchError, LayoutError) as error:
        return Needs(refused=str(error))
    sizes = [sum(problem.tile_bytes(rank).values()) + pool for rank, pool in enumerate(pools)]
    return Needs(max(sizes), sum(sizes), moves)


def dry_run(request: SweepRequest, plan: Plan, limit: int, console: Console) -> int:
    """Print the cases of a sweep and their sum; ``limit`` lines at most, 0 for all."""
    sweep, launcher = plan.sweep, plan.launcher
    console.print(
        f"{sweep.name}: {sweep.about}; scale {sweep.scale}, launcher "
        f"{' '.join(launcher.words) or 'mpiexec'}",
        markup=False,
    )
    chosen = part_of(plan.pairs, request.part)[: request.max_cases]
    most, most_nodes, counts, able = Needs(), 1, Counter(), {}
    for number, (name, case) in enumerate(chosen, 1):
        ranks = plan.ranks_of[name]
        nodes = launcher.nodes(ranks)
        room = math.inf if request.mem_limit is None else request.mem_limit * nodes
        each = needs(case, ranks, launcher.node_of(ranks))
        flags = {
            "refused": each.refused,
            "no communication": not each.moves,
            "beyond --mem-limit": each.total_bytes > room,
        }
        marks = [mark for mark, holds in flags.items() if holds]
        counts.update(marks)
        if not each.refused:
            able.setdefault(ranks, []).append(case)
        if each.total_bytes > most.total_bytes:
            most, most_nodes = each, nodes
        if not limit or number <= limit:
            on = f" on {plural(ranks, 'rank')}" if len({*plan.ranks_of.values()}) > 1 else ""
            memory = f"{format_bytes(each.rank_bytes):>10} a rank" if not each.refused else ""
            told = f"refused: {each.refused}" if each.refused else "; ".join(marks)
            console.print(Text(f"{number:6}  {title(case) + on:<48} {memory}  {told}".rstrip()))
        elif number == limit + 1:
            console.print(f"        … {len(chosen) - limit} more (--limit 0 lists all)")
    rounds = sweep.rounds if type(sweep.rounds) is int else 1
    found = [estimated(cases * max(1, rounds), ranks) for ranks, cases in able.items()]
    ranks = ", ".join(map(str, sorted({*plan.ranks_of.values()})))
    console.print(
        f"cases: {len(chosen)} on {ranks} rank{'s' * (ranks != '1')} and "
        f"{plural(max(map(launcher.nodes, plan.ranks_of.values())), 'node')}; "
        f"no communication: {counts['no communication']} (marked, figures leave them out); "
        f"refused: {counts['refused']}; beyond --mem-limit: {counts['beyond --mem-limit']}"
    )
    if sweep.rounds:
        told = "until the fastest are known" if rounds != sweep.rounds else plural(rounds, "round")
        console.print(f"interleaved, {told}")
    console.print(
        f"memory of the largest case: {format_bytes(most.rank_bytes)} on its largest rank, "
        f"{format_bytes(-(-most.total_bytes // most_nodes))} a node "
        "(tiles and buffers; the roof's operands and MPI come on top)"
    )
    if found:
        console.print(
            f"estimated time: up to {duration(sum(each.time_s for each in found))} for "
            f"{sum(each.flops for each in found):.3g} FLOPs at the "
            f"{found[-1].flops_per_s / 1e9:.4g} GFLOP/s of {found[-1].cores} "
            "cores, measured just now on this machine with a 1024^3 product, and "
            f"{OVERHEAD_S * 1e3:.0f} ms a case; communication not included"
        )
    return 0
