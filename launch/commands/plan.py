"""``drbench plan``: show the program of a rank, without MPI."""

import json
from collections.abc import Iterator
from dataclasses import replace
from operator import itemgetter

import click

from drbench.algorithms.universal.explain import why
from drbench.clock import Clock
from drbench.errors import EXIT_CODES, UsageError
from drbench.launch.cases.case import Case, bind_case, refuse_library
from drbench.launch.cases.machine_models import find_machine, find_planning_model
from drbench.launch.host.show import FORM, brief, drawing, multiplication_text, table
from drbench.plan.explain import balance, listing, memory_bytes, traffic
from drbench.plan.signals import pairs_of
from drbench.program.problem import RUN_TYPES
from drbench.program.steps import COUNTERS
from drbench.texts import bytes_text, flops_text, plural, time_text
from drbench.transport import parse_transport

from .guards import default_ranks
from .options import (
    RANK,
    case_of,
    command,
    form_options,
    machine_of,
    machine_option,
    option,
    printing,
    problem_options,
    ranks_option,
    take_options,
)

#: Resolved options that are shown.
_RESOLVED = ("experts", "topk", "routing", "stationary", "pack")


@command()
@problem_options("prefetch", type=RUN_TYPES)
@ranks_option()
@option(
    "--rank",
    "rank",
    type=RANK,
    default=0,
    metavar="RANK|all",
    group="Output",
    help="The rank whose program is shown; all: totals over all ranks.",
)
@option(
    "--limit",
    type=click.IntRange(0),
    default=20,
    group="Output",
    help="Steps of the program to list.",
)
@option(
    "--check",
    "checks",
    is_flag=True,
    group="Output",
    help="Prove the programs of all ranks right, in any order of completion, or name the steps at "
    "fault (exit code 1). For small matrices.",
)
@machine_option("machine")
@form_options
def plan(ranks, rank, limit, checks, as_json, **values):
    """Show the program of a rank without running it: steps, bytes by type and by rank, FLOPs,
    memory, a drawing. With --machine ranks are placed on its nodes, else on one node.

    \b
      drbench plan -m 4Ki -n 4Ki -k 4Ki -p 12 --preset column --stationary B
    """
    refuse_library(values["algorithm"])
    values["options"] = take_options(values)
    named, values["machine"] = machine_of(values)
    ranks = ranks or (named and find_machine(named).devices) or default_ranks()
    case = case_of(values, ranks)
    algorithm, problem, options, in_place = _placed(case, named, ranks)
    resolved = algorithm.resolve(problem, in_place, **options)
    if rank != "all" and rank >= ranks:
        raise UsageError(f"--rank must be below the number of ranks, {ranks}, got {rank}.")
    model = find_planning_model(case.machine, resolved, case.transport, case.dtype)
    verdict = _checked(algorithm, problem, model, resolved) if checks else None
    rows, signalled = {}, []
    for shown in range(ranks) if rank == "all" else [rank]:
        start = Clock.now()
        trace = algorithm.trace(problem, shown, model, **resolved)
        plan_s, moved = Clock.now() - start, traffic(trace)
        memory = memory_bytes(trace, case.ahead(resolved))
        rows[shown] = {
            "flops": trace.flops,
            "panel_bytes": trace.panel_bytes,
            "plan_s": plan_s,
            "steps": len(trace.steps),
            "tile": sum(map(memory.get, "ABC")),
            **moved.counters,
            **memory,
        }
        if trace.signals:
            signalled.append(trace)
    sums, flops = ("plan_s", "steps", "flops", *COUNTERS, "panel_bytes"), [*_column(rows, "flops")]
    totals = {
        "algorithm": algorithm.name,
        **{name: getattr(case, name) for name in "mnk"},
        "dtype": problem.dtype,
        "ranks": ranks,
        "rank": rank,
        **problem.texts,
        "transpose": problem.transpose or None,
        "updates": problem.updates,
        **{name: resolved.get(name) for name in _RESOLVED},
        **{name: sum(_column(rows, name)) for name in sums},
    }
    if rank == "all":
        if signalled and not (verdict and verdict.findings):  # each must have its counterpart
            totals["signals"] = len(pairs_of(signalled))
        totals["balance_limit"] = balance(flops)
    for name in ("tile", "pool", "pool_direct"):
        totals[f"{name}_bytes"] = max(_column(rows, name))
    code = EXIT_CODES["wrong" if verdict and verdict.findings else "ok"]
    verbose = as_json == "verbose"
    if as_json and not verbose:
        if verdict:
            totals["checked_steps"] = verdict.steps
            totals["findings"] = verdict.described() if as_json == "json" else len(verdict.findings)
        print(json.dumps(totals) if as_json == "json" else brief(totals))
        return code
    out, print_line = printing()
    if FORM.get() == "csv":
        out.print(table("", (), [{"rank": at} | row for at, row in rows.items()]))
        return code
    for line in verdict.lines() if verdict else ():
        print_line(line)
    who = f"all {ranks} ranks together" if rank == "all" else f"rank {rank} of {ranks}"
    moved_text = ", ".join(
        f"{name.removesuffix('_bytes')} {bytes_text(totals[name])}"
        for name in COUNTERS
        if totals[name]
    )
    stationary = f", Stationary {totals['stationary']}" if totals["stationary"] else ""
    most = max(rows.values(), key=lambda row: row["tile"] + row["pool"])
    print_line(
        f"{algorithm.name}{stationary}, {who}: {plural(totals['steps'], 'step')}, moves "
        f"{moved_text or 'nothing'}, {flops_text(totals['flops'])}; the "
        f"{'largest ' * (rank == 'all')}rank holds {bytes_text(most['tile'])} of tiles and at most "
        f"{bytes_text(most['pool'])} of buffers."
    )
    if not problem.plain:
        print_line(multiplication_text(replace(case, options=resolved)))
    out.print(drawing(problem))
    print_line("(a character for each tile: the rank that owns it, in replica 0)\n")
    if totals.get("balance_limit", 1) < 1:
        print_line(
            f"load balance: rank {flops.index(max(flops))} has the most FLOPs; no run exceeds "
            f"{100 * totals['balance_limit']:.1f} % of GEMM-only speed"
        )
    if verbose:
        if algorithm.name == "universal":
            for line in why(problem, in_place, ranks=list(rows), machine=model, **options):
                print_line(line)
        if "signals" in totals:
            print_line(f"signals: {totals['signals']}, each with its counterpart; no deadlock")
        tiles = " + ".join(f"{name} {bytes_text(most[name])}" for name in "ABC")
        print_line(
            f"tiles {tiles}; buffers {bytes_text(most['pool_direct'])} if every tile is read in "
            f"place; planned in {time_text(totals['plan_s'])}"
        )
    if rank == "all":
        for row in rows.values():
            row |= {"tiles": row["tile"], "buffers": row["pool"]}
        _show_bytes(out, "rank", rows, "tiles", "buffers")
    else:
        if verbose:
            _show_bytes(out, "from rank", moved.by_peer)
        for line in listing(trace, limit):
            print_line(line)
    return code


def _checked(algorithm, problem, model, resolved: dict):
    """The CheckResult of the programs of all ranks, unless they are too large to be checked."""
    from drbench.check.check import check, refuse_large  # loads NumPy

    refuse_large(problem)
    traces, steps = [], 0
    for rank in range(problem.nprocs):
        traces.append(algorithm.trace(problem, rank, model, **resolved))
        steps += len(traces[-1].steps)
        refuse_large(problem, steps)
    return check(traces, everywhere=bool(resolved.get("replicate_result")))


def _placed(case: Case, machine: str | None, ranks: int) -> tuple:
    """(algorithm, problem, options, whether all tiles are read in place) of a case, with ranks on
    the nodes of a machine, or all on one node without a machine."""
    if machine is None:
        return *bind_case(case, ranks), True
    from drbench.launch.models.predict import placed_on

    seen = find_machine(machine).for_transport(parse_transport(case.transport))
    return placed_on(case, seen, ranks)


def _column(rows: dict[int, dict], name: str) -> Iterator:
    return map(itemgetter(name), rows.values())


def _show_bytes(out, who: str, rows: dict[int, dict], *more: str) -> None:
    """Print a table of the counters of each rank, and of ``more`` columns."""
    names = [*filter(lambda name: any(_column(rows, name)), COUNTERS), *more]
    cells = [
        (str(rank), *(bytes_text(rows[rank][name]) for name in names)) for rank in sorted(rows)
    ]
    if rows:
        heads = "|".join(f">{name.removesuffix('_bytes')}" for name in (who, *names))
        out.print(table(heads, cells))
