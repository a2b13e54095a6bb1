"""Multiplications of any layouts by any algorithm with any options, drawn by a seed, and proved
without MPI against slow oracles.

    python tests/shared/any_multiplications.py FIRST COUNT  # of each algorithm: seeds that fail

A case is a dict that :func:`prove` takes, so that one that fails can be made smaller by hand.
"""

import random
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

from arena import multiplied
from drawn_layouts import FORMS, layout
from oracles import Violation, check_blocks, home, home_of, replicas_moved, require, results
from traced import everyone_of, resolved_as
from virtual_time import RandomDelays, check_rule, drive

from drbench.algorithms import algorithms, get_algorithm
from drbench.algorithms.lowering.op_costs import BALANCE
from drbench.algorithms.universal.packing import cores
from drbench.check.check import check
from drbench.errors import UnsupportedError, UsageError
from drbench.model.gemm import Compute
from drbench.model.machine import Link, Machine
from drbench.partitions import divisors, part
from drbench.plan.explain import traffic
from drbench.plan.signals import pairs_of
from drbench.program.problem import TRANSPOSES, Problem
from drbench.program.steps import Add, Copy, FilledScratch, ReplicaAdd

SCALARS = ((1.0, 0.0), (1.0, 1.0), (-2.0, 3.0), (0.0, 2.0), (3.0, 0.0))
MACHINES = {"none": None, "balance": BALANCE, "cores": cores("float32")}
MACHINES["pairs"] = Machine("pairs", Compute(1e12), (Link("wire", 1e10, shared="pair"),))
ON_A_MESH = [name for name, each in algorithms().items() if "mesh" in each.options]
SIGNALLED = ["ag_gemm", "gemm_rs", "gemm_ar", "te_chunks", "async_tp", "ag2", "rs2"]
EXPERTS = ["ag_moe", "moe_rs", "ag2_moe", "moe_rs2", "dispatch_moe", "moe_combine"]
#: Algorithms of which some or all variants need a share of an axis on each rank.
SHARED_OUT = ["ag2", "rs2", "ag2_moe", "moe_rs2", "moe_collective"]
CHOICES = {
    "variant": {
        "ag_gemm": ("pull", "push", "ring"),
        "ag_moe": ("pull", "push", "ring"),
        "gemm_rs": ("write", "reduce", "pull", "ring"),
        "moe_rs": ("write", "reduce", "pull", "ring"),
        "dispatch_moe": ("push", "pull", "separate"),
        "moe_combine": ("push", "pull", "separate"),
    },
    "order": ("ranks", "mesh", "interleaved"),
    "swizzle": ("ranks", "naive"),
    "buffer": ("operand", "symmetric"),
    "additions": ("tiles", "tiles", "end"),
    "protocol": ("signal", "ll"),
    "inside": ("direct", "ring"),
    "phases": ("overlapped", "separate"),
    "kernel": ("fused", "parts"),
    "tile": (None, 1, 2, 5, 100),
    "part": (None, 1, 3, 5),
    "slices": (1, 2, 3, 4),
    "block": (1, 2),
    "panel": (None, 1, 3, 8),
    "unroll": (1, 2, 3),
    "strategy": ("auto", "auto", "partial", "rows", "columns"),
    "experts": (1, 2, 4, 5, 9),
    "topk": (1, 2, 3),
    "routing": ("uniform", "skewed:3", "uniform:5"),
}


def any_layout(chance: random.Random, shape, p: int, result: bool) -> str:
    """A layout of one matrix: tiles of any size on any grid, with replicas; placements of DTensor,
    strided and pending ones too; or blocks of a grid over m, n and k."""
    kind = chance.random()
    if kind < 0.65:
        return layout(chance, chance.choice(FORMS), shape, p)
    if kind < 0.92:
        mesh = [chance.choice(divisors(p))]
        mesh.append(p // mesh[0])
        if chance.random() < 0.4:
            mesh = [p]
        words = ["R", "S(0)", "S(1)", "_S(0,2)", "_S(1,3)", *["P"] * result]
        return ",".join(chance.choice(words) for _ in mesh) + "@" + "x".join(map(str, mesh))
    return f"grid:{any_grid(chance, p)}"


def any_grid(chance: random.Random, p: int) -> str:
    """A grid over m, n and k on all ranks."""
    rows = chance.choice(divisors(p))
    cols = chance.choice(divisors(p // rows))
    return f"{rows}x{cols}x{p // rows // cols}"


def any_nodes(chance: random.Random, p: int) -> list[int]:
    """For each rank the lowest rank on its node."""
    found = [chance.randrange(chance.choice((1, 2, p))) for _ in range(p)]
    return [found.index(each) for each in found]


def any_universal(chance: random.Random) -> dict:
    """A case of the universal algorithm."""
    p = chance.choice((1, 2, 3, 4, 5, 6, 7, 8, 9, 12))
    sizes = [chance.choice((1, 2, 3, 5, 6, 7, 8, 9, 11, 13)) for _ in "mnk"]
    m, n, k = sizes
    transpose = chance.choice(("", *TRANSPOSES))
    shapes = [(m, k)[:: -1 if "a" in transpose else 1], (k, n)[:: -1 if "b" in transpose else 1]]
    shapes.append((m, n))
    texts = [any_layout(chance, shape, p, x == 2) for x, shape in enumerate(shapes)]
    if chance.random() < 0.08:
        texts = [f"grid:{any_grid(chance, p)}"] * 3
    alpha, beta = chance.choice(SCALARS)
    grid = any_grid(chance, chance.randint(1, p))
    options = {
        "stationary": chance.choice(("A", "B", "C", "A", "B", "C", "auto")),
        "work": chance.choice(("auto", "own", "own", "level", grid)),
        "chunk": chance.choice(("auto", "none", None, 1, 2, 3, 5)),
        "sums": chance.choice((None, "auto", "accumulate", "accumulate", "push", "push")),
        "pack": chance.choice(("auto", "never", "never", "always")),
        "fetch": chance.choice(("auto", "slice", "slice", "tile", "rows")),
        "schedule": chance.choice(("direct",) * 6 + ("greedy", "cost", "greedy:2x1")),
        "reduce": chance.choice(("pull", "push")),
        "replicate_result": chance.random() < 0.3,
        "offset": chance.choice(("auto", "auto", "axis", "interval", "off")),
    }
    clashes = ("schedule", "direct"), ("pack", "auto"), ("sums", "accumulate")
    free = chance.choice([name for name, _ in clashes])  # two orders at once are refused
    options |= {name: value for name, value in clashes if name != free}
    return {
        "algorithm": "universal",
        "sizes": sizes,
        "p": p,
        "texts": texts,
        "transpose": transpose,
        "alpha": alpha,
        "beta": beta,
        "nodes": any_nodes(chance, p) if chance.random() < 0.3 else None,
        "in_place": chance.random() < 0.5,
        "machine": chance.choice(list(MACHINES)),
        "depth": chance.choice(("all", 0, 1, 2, 3)),
        "seed": chance.randrange(1 << 20),
        "options": options,
    }


def any_other(chance: random.Random, name: str) -> dict:
    """A case of another algorithm, on its own layout."""
    few = 1, 2, 3, 4, 5, 6, 8
    p = chance.choice((*few, 9, 12) if name in ON_A_MESH else few)
    algorithm, options = get_algorithm(name), {}
    if "mesh" in algorithm.options:
        rows = chance.choice(divisors(p))
        if name == "cannon":
            p, rows = chance.choice(((1, 1), (4, 2), (9, 3)))
        options["mesh"] = f"{rows}x{p // rows}"
    if "dataflow" in algorithm.options:
        flows = {"te_chunks": ("AG", "RS"), "async_tp": ("AG", "RS")}
        flows |= {"tensor_parallel_1d": ("AG", "RdS"), "moe_collective": ("AG", "RS")}
        options["dataflow"] = chance.choice(flows.get(name, ("OS", "LS", "RS")))
    if "replicas" in algorithm.options:
        options["replicas"] = chance.choice(divisors(p))
    if "per_node" in algorithm.options:
        options["per_node"] = chance.choice((None, *divisors(p)))
    for each, values in CHOICES.items():
        if each in algorithm.options:
            values = values.get(name) if isinstance(values, dict) else values
            options[each] = chance.choice(values)
    if "topk" in options:
        options["topk"] = min(options["topk"], options["experts"])
    texts = [chance.choice(("row", "column")) for _ in "abc"] if name == "dtensor_mm" else []
    sizes = [chance.randint(1, 18) for _ in "mnk"]
    if name in SHARED_OUT and chance.random() < 0.8:  # ragged, but for all ranks
        tiles = [chance.randint(1, 3) for _ in "mnk"]
        sizes = [p * tile - chance.randrange(min(p, tile)) for tile in tiles]
    return {
        "algorithm": name,
        "sizes": sizes,
        "p": p,
        "texts": texts,
        "depth": chance.choice((0, 1, 2, 3)),
        "seed": chance.randrange(1 << 20),
        "options": {each: value for each, value in options.items() if value is not None},
    }


def any_of(name: str, seed: int) -> dict:
    """A case of that algorithm; of the universal one, some with a matrix on fewer ranks."""
    chance = random.Random(f"{name} {seed}")
    if name != "universal":
        return any_other(chance, name)
    case = any_universal(chance)
    if chance.random() < 0.05:
        grid = any_grid(chance, chance.randint(1, case["p"]))
        case["texts"][chance.randrange(3)] = f"grid:{grid}"
    return case


# -- proofs


def prove(case: dict) -> str:
    """Run the traces of a case in random orders of completion out of planned memory: C is exact,
    and ranks move only remote blocks of their GEMMs; returns the algorithm, or ``refused``.

    Raises
    ------
    AssertionError
        If anything is wrong.
    """
    try:
        return _prove_universal(case) if case["algorithm"] == "universal" else _prove_other(case)
    except (UnsupportedError, UsageError) as error:
        require("\n" not in str(error) and str(error), "a refusal is one line", error)
        return "refused"


def programs_of(case: dict) -> tuple[dict, list]:
    """The resolved options of a case, and the traces of all ranks."""
    if case["algorithm"] != "universal":
        sizes, texts = (*case["sizes"], case["p"]), case["texts"]
        *what, found = resolved_as(case["algorithm"], *sizes, *texts, **case["options"])
        return found, everyone_of(*what, found)
    how = {"transpose": case["transpose"], "updates": case["beta"] != 0}
    problem = Problem(*case["sizes"], case["p"], *case["texts"], **how)
    if case["nodes"]:
        problem = problem.on_nodes(case["nodes"])
    universal, machine = get_algorithm("universal"), MACHINES[case["machine"]]
    found = universal.resolve(problem, case["in_place"], **case["options"])
    again = universal.resolve(problem, **found)
    if pushes := found.get("sums") == "push":  # tiles that are given are not longer than their axis
        again["chunk"] = found["chunk"]
    require(again == found, "resolved options resolve to themselves", found, again)
    if machine is MACHINES["cores"] and (pushes or found["schedule"] != "direct"):
        machine = None  # it has no links
    ranks = range(problem.nprocs)
    return found, [universal.trace(problem, rank, machine, **found) for rank in ranks]


def _prove_universal(case: dict) -> str:
    alpha, beta, seed = case["alpha"], case["beta"], case["seed"]
    found, traces = programs_of(case)
    problem = traces[0].problem
    pairs_of(traces)
    before = np.random.default_rng(seed).integers(-99, 100, (problem.m, problem.n)).astype(float)
    held = before if problem.updates else None
    how = {"alpha": alpha, "beta": beta, "before": held}
    c, right = multiplied(traces, case["depth"], seed, **how)
    _check_result(problem, found, c, right)
    _check_programs(found, traces)
    if found.get("sums") != "push":
        still = found["stationary"] if found.get("work", "own") == "own" else None
        check_blocks(problem, traces, still)
        _check_copies(problem, found, traces)
        if found["schedule"] == "direct" and seed % 8 == 0 and case["depth"] != "all":
            timeline = drive(traces, case["depth"], RandomDelays(seed))
            if not any(type(step) is FilledScratch for trace in traces for step in trace.steps):
                check_rule(traces, case["depth"], timeline)  # it knows no panels
    if found["schedule"] == "direct" and found.get("work", "own") == "own":
        for trace in traces:
            _check_moved(problem, found, trace)
    return "universal"


def _check_programs(found: dict, traces: list) -> None:
    """The programs pass the library's own check."""
    verdict = check(traces, bool(found.get("replicate_result")))
    require(not verdict.findings, "the programs pass the check", *verdict.lines())


def _check_result(problem, found: dict, c, right) -> None:
    """The first copy of each term of C, or every copy, adds up to the result."""
    for total in results(problem, c, found["replicate_result"]):
        require(np.array_equal(total, right), "C is exact", total - right)


def _check_copies(problem, found: dict, traces) -> None:
    """The first copy of each term of C is added to once from each of its others, and given back to
    them once if that is asked for."""
    terms = home(problem.c.partition).term
    moved = np.ones((len(terms), problem.m, problem.n))
    moved[[terms.index(term) for term in {*terms}]] = 0
    pushed = found.get("reduce") == "push"
    for kind, wanted in (
        (Add, not pushed),
        (ReplicaAdd, pushed),
        (Copy, found["replicate_result"]),
    ):
        count = replicas_moved(problem, traces, kind)
        require((count == moved * wanted).all(), "copies are moved once", kind)


def _offset(problem, rank: int, stationary: str, free: str) -> int:
    """Where the range i + j of an axis begins, i and j being the rank's first tile of a replicated
    stationary matrix: ranges end where a tile of another matrix does."""
    held, starts = problem.operand(stationary).partition, {0}
    if held.replicas == 1 or not held.tiles_of(rank):
        return 0
    for each in problem.operands:
        if free in each.axes:
            line = home_of(each).tile
            line = line[:, 0] if each.axes[0] == free else line[0]
            starts |= {x for x in range(1, len(line)) if line[x] != line[x - 1]}
    return sorted(starts)[sum(held.tiles_of(rank)[0]) % len(starts)]


def _check_moved(problem, found: dict, trace) -> None:
    """The elements that a rank moves are those of one of the offsets that it may use."""
    offset = found.get("offset", "axis")
    if offset == "auto":
        with suppress(Violation):
            return _check_moved_with(problem, found, trace, "axis")
    _check_moved_with(problem, found, trace, offset)


def _check_moved_with(problem, found: dict, trace, offset: str) -> None:
    """Elements that a rank fetches and sends, counted one by one: for each of its tiles of the
    stationary matrix the remote elements that its GEMMs need."""
    rank, stationary = trace.rank, found["stationary"]
    at = {each.name: home_of(each) for each in problem.operands}
    mine = {name: place.owner[place.replica[rank]] for name, place in at.items()}
    still, replicas = at[stationary], len(at[stationary].term)
    axes = {"A": "mk", "B": "kn", "C": "mn"}
    (free,) = {*"mnk"} - {*axes[stationary]}
    start, stop = part(problem.extent(free), still.replica[rank], replicas)
    by = _offset(problem, rank, stationary, free) if offset == "axis" else 0
    own = mine[stationary] == rank
    regions: dict = {name: [] for name in "ABC"}
    for tile in {*still.tile[own].tolist()}:
        rows, cols = np.nonzero(own & (still.tile == tile))
        ends = dict(zip(axes[stationary], ({*rows.tolist()}, {*cols.tolist()})))
        ends[free] = {(x + by) % problem.extent(free) for x in range(start, stop)}
        for name in axes:
            region = np.zeros(mine[name].shape, bool)
            region[np.ix_(*(sorted(ends[axis]) for axis in axes[name]))] = True
            regions[name].append(region & (mine[name] != rank))
    union = {name: np.any([*each, np.zeros(mine[name].shape, bool)], axis=0)
             for name, each in regions.items()}  # fmt: skip
    once = {name: int(each.sum()) for name, each in union.items()}
    slices = {name: sum(int(each.sum()) for each in found) for name, found in regions.items()}
    moved, item = traffic(trace).counters, problem.itemsize
    got, added, put = (moved[f"{each}_bytes"] // item for each in ("get", "accumulate", "put"))
    fetch, packs = found.get("fetch", "slice"), found.get("pack", "never") != "never"
    least, most = once["A"] + once["B"], slices["A"] + slices["B"]
    text = found, rank, moved, once, slices
    if fetch == "tile" and not packs:
        tiles = [(mine[name] != rank) & np.isin(at[name].tile, [*{*at[name].tile[union[name]]}])
                 for name in "AB"]  # fmt: skip
        require(got == sum(int(each.sum()) for each in tiles), "each tile is fetched once", *text)
    elif fetch == "slice" and not packs and found.get("sums") != "push":
        require(got == most, "blocks are fetched once for each stationary tile", *text)
    elif fetch == "slice":
        require(least <= got <= most, "nothing is fetched more often than its tile needs", *text)
    else:
        require(got >= least, "all that a rank multiplies is fetched", *text)
    if found.get("sums") == "push":
        require((put, added) == (once["C"], 0), "each partial sum is pushed once", *text)
    elif found.get("reduce", "pull") == "pull":
        lower = once["C"] if packs else slices["C"]
        require(put == 0 and lower <= added <= slices["C"], "sums leave once for a tile", *text)


def _prove_other(case: dict) -> str:
    found, traces = programs_of(case)
    problem = traces[0].problem
    pairs_of(traces)
    require(sum(each.flops for each in traces) == problem.flops, "each term is made once")
    c, right = multiplied(traces, case["depth"], case["seed"])
    for copy in c if found.get("replicate_result") else c[:1]:
        require(np.array_equal(copy, right), "C is exact", copy - right)
    _check_programs(found, traces)
    return case["algorithm"]


def failing(name: str, seeds) -> tuple[int, list]:
    """The number of proved cases of an algorithm, others having been refused; and the failing cases
    with their errors."""
    proved, wrong = 0, []
    for seed in seeds:
        case = any_of(name, seed)
        try:
            proved += prove(case) == name
        except Exception as error:
            wrong.append((seed, f"{type(error).__name__}: {error}"[:600], case))
    return proved, wrong


def main(first: int, count: int) -> None:
    """Prove so many cases of each algorithm; print those that fail, and how many were proved."""
    for name in sorted(algorithms()):
        proved, wrong = failing(name, range(first, first + count))
        print(*wrong, f"{name}: {len(wrong)} failed, {proved} proved", sep="\n", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
