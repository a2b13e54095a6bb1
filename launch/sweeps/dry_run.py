"""``drbench sweep --dry-run``: the cases, memory and estimated time of a sweep, and the
partitionings that move nothing."""

import math
from collections import Counter
from typing import NamedTuple

from rich.console import Console
from rich.progress import track
from rich.text import Text

from drbench.errors import DrbenchError
from drbench.launch.cases.case import Case, bind_on_nodes, blocks_in_place, in_place_on
from drbench.launch.cases.machine_models import find_planning_model
from drbench.launch.host.show import console as screen_of
from drbench.launch.libraries import LIBRARIES, get_library, require_library
from drbench.measure.noise import FEWEST
from drbench.partitions import LayoutError
from drbench.plan.explain import moves
from drbench.plan.schedule import pool_bytes
from drbench.texts import bytes_text, duration_text, flops_text, plural, rate_text

from .estimate import estimate_time
from .plan import SweepPlan, SweepRequest
from .progress import title
from .rounds import OVERHEAD_S


class Needs(NamedTuple):
    """The needs of one case.

    Attributes
    ----------
    rank_bytes, total_bytes : int
        Tiles of the largest rank, and of all ranks, each with its pool of receive buffers (planned
        for reads in place on a node) unless these were left out.
    moves : bool
        Whether any rank reads, writes or adds to another rank's tiles.
    refused : str
        Why the case cannot run; empty if it can.
    """

    rank_bytes: int = 0
    total_bytes: int = 0
    moves: bool = True
    refused: str = ""


def plan_needs(
    case: Case, ranks: int, node_of: list[int] | None = None, buffers: bool = True
) -> Needs:
    """Plan a case without MPI: tiles and pool of every rank, and whether any rank moves data.
    ``node_of`` has for each rank the lowest rank on its node; by default all share one. Without
    ``buffers`` only the programs of ranks that move nothing are made completely.

    Examples
    --------
    >>> plan_needs(Case(64, 64, 64, "row", "row/c2", "row"), 2).moves
    False
    >>> made = plan_needs(Case(64, 64, 64, "row", "column", "row"), 2)
    >>> made.moves, made.rank_bytes, made.total_bytes
    (True, 24576, 49152)
    """
    pools, moving = [0] * ranks, True  # of a library only the tiles are known
    try:
        if case.algorithm in LIBRARIES:
            require_library(get_library(case.algorithm))
        node_of = node_of or [0] * ranks
        algorithm, problem, options = bind_on_nodes(case, node_of)
        if case.algorithm not in LIBRARIES:
            resolved = algorithm.resolve(problem, in_place_on(case, len({*node_of})), **options)
            model = find_planning_model(case.machine, resolved, case.transport, case.dtype)
            steps = (algorithm.steps(problem, rank, model, **resolved) for rank in range(ranks))
            moving = any(moves(program, rank) for rank, program in enumerate(steps))
            for rank in range(ranks) if buffers else ():
                trace = algorithm.trace(problem, rank, model, **resolved)
                views = blocks_in_place(case, node_of, rank)
                pools[rank] = pool_bytes(trace, case.ahead(resolved), views)
    except (DrbenchError, LayoutError) as error:
        return Needs(refused=str(error))
    sizes = [sum(problem.tile_bytes(rank).values()) + pool for rank, pool in enumerate(pools)]
    return Needs(max(sizes), sum(sizes), moving)


def dry_run(request: SweepRequest, plan: SweepPlan, limit: int, console: Console) -> int:
    """Print the totals of a sweep, then its cases: at most ``limit`` lines, 0 for all. Buffers are
    planned where they are shown: of cases with a line, of those with the largest tiles, and of all
    with ``--mem-limit``."""
    launcher, print_line = plan.launcher, console.print
    chosen = plan.mine[: request.max_cases]
    limit = limit or len(chosen)
    buffered = limit if request.mem_limit is None else len(chosen)  # with buffers
    needed = lambda job, buffers: plan_needs(
        job.case, job.ranks, launcher.node_of(job.ranks), buffers
    )
    errors = screen_of(stderr=True)
    quiet = len(chosen) <= limit or not errors.is_terminal
    shown = track(chosen, "cases", console=errors, transient=True, disable=quiet)
    planned = [(needed(job, at < buffered), job) for at, job in enumerate(shown)]
    known, others = planned[:buffered], planned[buffered:]
    tiles = max((need.total_bytes for need, _ in others), default=0)
    known += [(needed(job, True), job) for need, job in others if need.total_bytes == tiles]
    counts, able, lines = Counter(), [], []
    for at, (need, job) in enumerate(planned, 1):
        nodes, memory = launcher.nodes(job.ranks), ""
        if need.refused:
            counts["refused"] += 1
            marks = [f"refused: {need.refused}"]
        else:
            space = math.inf if request.mem_limit is None else request.mem_limit * nodes
            flags = {
                "no communication": not need.moves,
                "beyond --mem-limit": need.total_bytes > space,
            }
            marks = [mark for mark, holds in flags.items() if holds]
            counts.update(marks)
            able.append(job)
            memory = f"{bytes_text(need.rank_bytes):>10} a rank"
        if at <= limit:
            on = f" on {plural(job.ranks, 'rank')}" if len(plan.counts) > 1 else ""
            described = "; ".join(marks)
            lines.append(f"{at:6}  {title(job.case) + on:<48} {memory}  {described}".rstrip())
    most, job = max(known, key=lambda entry: entry[0].total_bytes)
    rounds = plan.experiment(plan.mine).rounds
    nodes = max(map(launcher.nodes, plan.counts))
    estimate = estimate_time(able, rounds) if able else None
    takes = "" if estimate is None else f"{'about' if rounds == 'known' else 'up to'} "
    takes += "no time" if estimate is None else duration_text(estimate.time_s)
    print_line(
        f"{plural(len(chosen), 'case')} on {plan.on_ranks}{f' of {nodes} nodes' * (nodes > 1)}: "
        f"{takes} without communication, at most {bytes_text(most.rank_bytes)} a rank and "
        f"{bytes_text(-(-most.total_bytes // launcher.nodes(job.ranks)))} a node."
    )
    more = [f"{count} {what}" for what, count in counts.items()]
    if rounds == "known":
        more.append(f"{FEWEST} interleaved rounds, more of cases that may be the fastest")
    elif rounds:
        more.append(plural(rounds, "interleaved round"))
    if words := " ".join(launcher.words):
        more.append(f"launcher {words}")
    if estimate is not None:
        more.append(
            f"the time is that of {flops_text(estimate.flops)} at the "
            f"{rate_text(estimate.core_flops_per_s / 1e9)} that a core reaches now, and "
            f"{OVERHEAD_S * 1e3:.0f} ms a case"
        )
    print_line("; ".join(more), soft_wrap=True)
    for line in lines:
        print_line(Text(line), soft_wrap=True)
    if left := len(chosen) - len(lines):
        print_line(f"        … {left} more (--limit 0 lists all)")
    return 0
