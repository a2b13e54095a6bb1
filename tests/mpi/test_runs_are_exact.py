"""A broad sample of cases under mpiexec: exact, with the plan's bytes, within the plan's memory."""

import random
from itertools import product
from types import SimpleNamespace

import pytest
from drawn_layouts import FORMS, divisors, layout

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

#: Cases by number of ranks.
COUNTS = {1: 14, 2: 60, 3: 32, 4: 40, 6: 16}
RUNS = [(p, situation) for p in COUNTS for situation in ("direct", "rma", "mixed", "remote")] + [
    (4, "nodes"),
    (6, "nodes"),
]

LARGE = {"prefetch": 2, "iters": 1, "warmup": 0, "m": 500, "n": 700, "k": 600}


def sample(p, situation):
    """Cases that between them have every value of every option; which go together is drawn with a
    fixed seed."""
    chance = random.Random(f"{p} {situation}")

    def deal(values):
        """The values in turn, shuffled, for all cases."""
        dealt = [values[x % len(values)] for x in range(COUNTS[p])]
        chance.shuffle(dealt)
        return dealt

    extents = (1, 2, 3, 5, 7, 16, 17, 31, 48, 65, 130)
    values = {
        "m": deal(extents),
        "n": deal(extents),
        "k": deal((*extents, 200, 600)),
        **{name: deal(FORMS) for name in "abc"},
        "stationary": deal(("A", "B", "C", "A", "B", "C", "auto")),
        "prefetch": deal((0, 1, 2, 3)),
        "get": deal(("view", "view", "copy")),
        "progress": deal(("poll", "none")),
        "dtype": deal(("float32", "float64")),
        "chunk": deal((None, None, 1, 5, 64)),
        "replicate_result": deal((False, True)),
        "fill": deal(("integer", "integer", "integer", "uniform")),
        "pack": deal(("always", "auto", "never")),
        "fetch": deal(("slice", "slice", "rows", "tile")),
        "reduce": deal(("pull", "push")),
        "seed": range(COUNTS[p]),
    }
    cases = []
    for each in zip(*values.values()):
        case = dict(zip(values, each))
        for name, axes in (("a", "mk"), ("b", "kn"), ("c", "mn")):
            case[name] = layout(chance, case[name], [case[axis] for axis in axes], p)
        chunk, seed = case.pop("chunk"), case["seed"]
        if chunk and chunk * 20 < max(case[axis] for axis in "mnk"):  # enough pieces are enough
            chunk = 32
        case |= {"options": {"chunk": chunk} if chunk else {}}
        cases.append(case | {"iters": 1 + (seed % 4 == 1), "warmup": int(seed % 4 == 3)})
    for rows in divisors(p):  # on grids over m, n and k, the last rank idle on one of them
        once = f"grid:1x{rows}x{p // rows}"
        mine = {"m": 33, "n": 17, "k": 600, "options": {"chunk": 100}, "iters": 1}
        mine["pack"] = chance.choice(("always", "never"))
        cases.append(mine | {"a": once, "b": once, "c": once})
        last = {"stationary": chance.choice("ABC"), "work": f"{max(1, p - 1)}x1x1"}
        cases.append(mine | last | {"a": "column", "b": once, "c": "block"})
    for stationary in "BC":  # messages too long to be sent at once
        cases.append(LARGE | {"a": "column", "b": "column", "c": "row", "stationary": stationary})
    for stationary in "ABC":
        uneven = {"a": "tiles:310x250", "b": "tiles:290x410", "c": "tiles:330x430"}
        for pack in ("always", "never"):
            level = {"stationary": stationary, "pack": pack, "options": {"work": "level"}}
            cases.append(LARGE | uneven | level)
    return cases


def panels():
    """Products of many small tiles, assembled."""
    tiles = {name: f"tiles:{tile}" for name, tile in zip("abc", ("100x90", "70x110", "130x51"))}
    large = LARGE | {"m": 310, "n": 290, "k": 330}
    return [large | tiles | {"stationary": still, "pack": "always"} for still in "ABC"]


def sums():
    """Products onto products, then added to the tile of another rank."""
    whole = {"n": 33, "k": 50, "pack": "never", "prefetch": "all", "iters": 2}
    for m, texts in enumerate(product(("row", "column", "block"), repeat=3), 40):
        for still in "AB":
            yield whole | dict(zip("abc", texts)) | {"m": m, "stationary": still}


@pytest.fixture(scope="module", params=RUNS, ids=lambda run: f"{run[0]}-{run[1]}")
def ran(request, mpirun, dealt):
    """All cases of one number of ranks in one situation, run in one mpiexec."""
    p, situation = request.param
    turn = RUNS.index(request.param)
    cases = dealt(sample(p, situation), turn, 6) + panels() + dealt(sums(), turn, 18)
    small_pieces = ["--small-pieces"] if p % 2 == 0 else []
    answers = mpirun.cases(p, cases, *small_pieces, situation=situation)
    return SimpleNamespace(p=p, situation=situation, pairs=list(zip(cases, answers)))


def failing(pairs, condition):
    """The cases that do not meet a condition, with what came out."""
    return [
        (case, {name: value for name, value in out.items() if value is not None})
        for case, out in pairs
        if not condition(case, out)
    ]


def test_every_case_is_exact_and_every_rank_says_so(ran):
    def exact(case, out):
        return (
            out["status"] == "ok"
            and out["same_on_every_rank"]
            and (out["error"] == 0 if case["fill"] == "integer" else 0 <= out["error"] <= 1)
        )

    assert failing([({"fill": "integer", **case}, out) for case, out in ran.pairs], exact) == []


def test_the_bytes_that_moved_are_those_of_the_plan(ran):
    def as_planned(case, out):
        plan = out["planned"]
        return (
            out["get_bytes"] + out["direct_bytes"] == plan["get_bytes"]
            and all(
                out[name] == plan[name]
                for name in ("accumulate_bytes", "replica_bytes", "put_bytes")
            )
            and not out["collective_bytes"]
        )

    assert failing(ran.pairs, as_planned) == []


def test_gets_copy_only_what_is_out_of_reach_or_asked_to_be_copied(ran):
    def copied(case, out):
        moved = out["planned"]["get_bytes"]
        if out["panel_bytes"]:  # some of it is copied into panels
            return out["get_bytes"] + out["direct_bytes"] == moved
        if case.get("get", "view") == "copy" or ran.situation == "rma":
            return (out["get_bytes"], out["direct_bytes"]) == (moved, 0)
        if ran.situation == "direct":
            return (out["get_bytes"], out["direct_bytes"]) == (0, moved)
        if (
            ran.situation == "remote" or ran.p == 2
        ):  # two cliques of one rank each: nobody is in reach
            return out["direct_bytes"] == 0
        return True

    assert failing(ran.pairs, copied) == []
    if ran.situation in ("mixed", "nodes") and ran.p > 2:
        both = [out for _, out in ran.pairs if out["get_bytes"] and out["direct_bytes"]]
        assert both


def test_products_are_assembled_in_many_cases_and_in_none_that_forbids_it(ran):
    told = [(case.get("pack"), bool(out["panel_bytes"])) for case, out in ran.pairs]
    assert sum(assembled for _, assembled in told) > 2
    assert ("never", True) not in told


def test_no_rank_holds_more_than_the_arena_of_the_plan(ran):
    assert failing(ran.pairs, lambda case, out: out["pool_bytes"] <= out["planned"]["arena"]) == []


def test_records_name_the_transport_and_the_nodes_that_were_found(ran):
    p = ran.p
    nodes = {"mixed": min(p, 2), "nodes": min(p, 2), "remote": p}.get(ran.situation, 1)
    transport = (
        "rma"
        if ran.situation == "rma"
        else "direct"
        if p == 1 or ran.situation == "direct"
        else "rma"
        if nodes == p
        else "mixed"
    )
    assert {(out["nodes"], out["transport"], out["ranks"]) for _, out in ran.pairs} == {
        (nodes, transport, p)
    }


def test_ranks_of_several_nodes_fetch_whole_rows_and_push_sums_unless_told_otherwise(mpirun):
    sizes = {"m": 92, "n": 100, "k": 112, "iters": 2}
    cases = [
        {**sizes, "a": "column", "b": "column", "c": "column", "stationary": "C"},
        {**sizes, "a": "row", "b": "row", "c": "row", "stationary": "B"},
        {**sizes, "a": "row", "b": "row", "c": "row", "stationary": "B", "sums": "accumulate"},
    ]
    far = mpirun.cases(4, cases, situation="mixed")
    tcp = mpirun.cases(4, cases, situation="remote")
    near = mpirun.cases(4, cases, situation="rma")
    assert {out["status"] for out in far + near + tcp} == {"ok"}
    for found in (far, tcp):
        assert [out["options"] for out in found] == ["fetch=rows", "sums=push", "fetch=rows"]
        assert [bool(out["put_bytes"]) for out in found] == [False, True, False]
        assert [bool(out["accumulate_bytes"]) for out in found] == [False, False, True]
        assert found[1]["put_bytes"] == 4 * 3 * 92 * 100
    assert [out["options"] for out in near] == [None] * 3
    assert [bool(out["accumulate_bytes"]) for out in far] == [False, False, True]
