"""``drbench plan``: a rank's program, without MPI."""

import json
from collections import Counter
from dataclasses import replace
from operator import itemgetter

import click

from algorithms.universal.program import why
from drbench.common import Clock, parse_transport
from drbench.errors import UsageError
from drbench.plan.explain import balance, listing, memory_bytes, traffic
from drbench.plan.signals import pairs_of
from drbench.program.steps import COUNTERS
from launch.cases.case import Case, bound
from launch.cases.machine_models import find_machine, of_schedule
from launch.host.show import brief, console, drawing, product_text, table
from launch.host.units import format_bytes, seconds
from launch.peers import PEERS

from .options import (
    RANK,
    brief_option,
    case_of,
    command,
    json_option,
    machine_of,
    machine_option,
    option,
    problem_options,
    ranks_option,
    take_options,
)


@command()
@problem_options("prefetch", type=("float32", "float64", "bfloat16:float32"))
@ranks_option(required=True)
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
@machine_option()
@json_option(flag_value="json")
@brief_option()
def plan(ranks, rank, limit, as_json, **values):
    """Show the program of a rank without running it: steps, bytes by kind and by peer, FLOPs,
    memory, a drawing. With --machine ranks are on its nodes, else on one.

    \b
      drbench plan -m 4Ki -n 4Ki -k 4Ki -p 12 --a row --b column --c block/c2 --stationary B
    """
    if values["algorithm"] in PEERS:
        raise UsageError(
            f"{values['algorithm']} is a peer and plans its own way: there is no program to "
            "show. Run it; drbench list libraries says more."
        )
    values["options"] = take_options(values)
    named, values["model"] = machine_of(values)
    case = case_of(values, ranks)
    algorithm, described, options, in_place = _placed(case, named, ranks)
    resolved = algorithm.resolve(described, in_place, **options)
    if rank != "all" and rank >= ranks:
        raise UsageError(f"--rank must be below the number of ranks, {ranks}, got {rank}.")
    model = of_schedule(case.model, resolved, case.transport, case.dtype)
    counts: Counter = Counter(plan_s=0.0, steps=0, flops=0, **dict.fromkeys(COUNTERS, 0))
    found, memory, traces = {}, [], []
    flops = []
    for each in range(ranks) if rank == "all" else [rank]:
        start = Clock.now()
        trace = algorithm.trace(described, each, model, **resolved)
        counts["plan_s"] += Clock.now() - start
        found[each] = traffic(trace)
        counts.update(steps=len(trace.steps), flops=trace.flops, **found[each].counters)
        counts["panel_bytes"] += trace.panel_bytes
        flops.append(trace.flops)
        memory.append(memory_bytes(trace, case.ahead(resolved)))
        if trace.signals:
            traces.append(trace)
    signals = None
    if rank == "all" and traces:  # each with its other end, and no circles
        signals = len(pairs_of(traces))
    if as_json:
        keys = {name: getattr(described, name) for name in ("m", "n", "k", "dtype")} | {
            "ranks": ranks,
            "rank": rank,
            **described.texts,
            "transpose": described.transpose or None,
            "updates": described.updates,
            **{name: resolved.get(name) for name in ("experts", "topk", "routing", "stationary")},
            "pack": resolved.get("pack"),
        }
        largest = {
            f"{name}_bytes": max(each[name] for each in memory) for name in ("pool", "pool_direct")
        }
        tiles = {"tile_bytes": max(map(_tile_bytes, memory))}
        told = {} if signals is None else {"signals": signals}
        if rank == "all":
            told["balance_limit"] = balance(flops)
        values = {"algorithm": algorithm.name} | keys | counts | told | tiles | largest
        print(json.dumps(values) if as_json == "json" else brief(values))
        return
    out = console()
    out.print(drawing(described))
    told = "" if described.plain else f"\n{product_text(replace(case, options=resolved))}"
    still = f", Stationary {resolved['stationary']}" if resolved.get("stationary") else ""
    who = f"all {ranks} ranks together" if rank == "all" else f"rank {rank} of {ranks}"
    out.print(
        f"{told}\n[bold]{algorithm.name}{still}[/], {who}: {counts['steps']} steps, "
        f"{counts['flops']:.4g} FLOPs, planned in {seconds(counts['plan_s'])}"
    )
    moved = ", ".join(
        f"{name.removesuffix('_bytes')} {counts[name]} ({format_bytes(counts[name])})"
        for name in COUNTERS
        if counts[name]
    )
    out.print(f"bytes moved: {moved or 'none'}")
    even = balance(flops) if rank == "all" else None
    if even is not None and even < 1:
        out.print(
            f"balance: rank {flops.index(max(flops))} multiplies most; no run gets beyond "
            f"{100 * even:.1f} % of the roof"
        )
    if algorithm.name == "universal":
        for line in why(described, in_place, ranks=list(found), machine=model, **options):
            out.print(line)
    if signals is not None:
        out.print(f"signals: {signals}, each with its other end; no rank waits in a circle")
    _show_memory(out, memory, rank)
    if rank == "all":
        held = (
            {"tiles": format_bytes(_tile_bytes(each)), "pool": format_bytes(each["pool"])}
            for each in memory
        )
        told = {each: found[each].counters | more for each, more in zip(found, held)}
        _show_bytes(out, "rank", told, "tiles", "pool")
    else:
        _show_bytes(out, "peer", found[rank].by_peer)
        for line in listing(trace, limit):
            out.print(line, markup=False, soft_wrap=True)


def _placed(case: Case, machine: str | None, ranks: int) -> tuple:
    """The algorithm of a case, its problem and options, and whether all is read in place: with a
    machine as its ranks would stand there, without one as on one node."""
    if machine is None:
        return *bound(case, ranks), True
    from launch.models.predict import placed_on

    seen = find_machine(machine).for_transport(parse_transport(case.transport))
    return placed_on(case, seen, ranks)


def _tile_bytes(memory: dict) -> int:
    return sum(memory[name] for name in "ABC")


def _show_memory(out, memory, rank) -> None:
    most = max(memory, key=lambda each: _tile_bytes(each) + each["pool"])
    tiles = " + ".join(f"{name} {format_bytes(most[name])}" for name in "ABC")
    whose = "the largest rank" if rank == "all" else "the rank"
    out.print(
        f"memory of {whose}: tiles {tiles} = {format_bytes(_tile_bytes(most))}; pool at most "
        f"{format_bytes(most['pool'])} "
        f"({format_bytes(most['pool_direct'])} if every tile is read in place)",
        soft_wrap=True,
    )


def _show_bytes(out, who: str, of_ranks: dict[int, dict], *more: str) -> None:
    """A table of what was counted for each rank, and of more that is told of it."""
    names = [name for name in COUNTERS if any(map(itemgetter(name), of_ranks.values()))]
    columns = [*names, *more]
    rows = [
        (str(rank), *(str(told[name]) for name in columns))
        for rank, told in sorted(of_ranks.items())
    ]
    if rows:
        heads = "|".join(f">{name}" for name in ("rank", *columns))
        out.print(table(heads, rows, f"bytes by {who}"))
