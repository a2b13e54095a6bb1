"""A broad sample of cases under mpiexec: exact, with the plan's bytes, within the plan's memory."""

import itertools
import random
from types import SimpleNamespace

import pytest
from cases import case
from drawn_layouts import FORMS, divisors, layout

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

#: Cases by number of ranks.
COUNTS = {1: 14, 2: 60, 3: 32, 4: 40, 6: 16}
SITUATIONS = ("direct", "rma", "mixed", "remote")
RUNS = [(1, "direct"), *((p, situation) for p in (2, 3, 4, 6) for situation in SITUATIONS)]
RUNS += [(4, "nodes"), (6, "nodes")]

LARGE = case(300, 420, 360, prefetch=2)


def sample(p, situation):
    """Cases that between them have every value of every option; which go together is drawn with a
    fixed seed."""
    chance = random.Random(f"{p} {situation}")

    def deal(values):
        """The values cyclically, shuffled, for all cases."""
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
        "offset": deal(("auto", "axis", "axis", "interval", "off")),
        "seed": range(COUNTS[p]),
    }
    cases = []
    for each in zip(*values.values()):
        made = dict(zip(values, each))
        for name, axes in (("a", "mk"), ("b", "kn"), ("c", "mn")):
            made[name] = layout(chance, made[name], [made[axis] for axis in axes], p)
        chunk, seed = made["chunk"], made["seed"]
        if chunk and chunk * 20 < max(made[axis] for axis in "mnk"):  # limit the number of segments
            made["chunk"] = 32
        cases.append(made | {"iters": 1 + (seed % 4 == 1), "warmup": int(seed % 4 == 3)})
    for rows in divisors(p):  # on grids over m, n and k, the last rank idle on one of them
        once = f"grid:1x{rows}x{p // rows}"
        mine = case(33, 17, 600, chunk=100, pack=chance.choice(("always", "never")))
        cases.append(mine | dict.fromkeys("abc", once))
        last = {"stationary": chance.choice("ABC"), "work": f"{max(1, p - 1)}x1x1"}
        cases.append(mine | last | {"a": "column", "b": once, "c": "block"})
    for sums in ("auto", "accumulate"):  # of ranks without tiles
        one = dict.fromkeys("abc", "grid:1x1x1")
        cases.append(case(33, 17, 60, **one, work=f"1x1x{p}", sums=sums))
    for stationary in "BC":  # messages too long to be sent at once
        cases.append(LARGE | {"a": "column", "b": "column", "c": "row", "stationary": stationary})
    uneven = LARGE | {"a": "tiles:190x150", "b": "tiles:170x250", "c": "tiles:200x260"}
    for stationary, pack in itertools.product("ABC", ("always", "never")):
        cases.append(uneven | {"stationary": stationary, "pack": pack, "work": "level"})
    return cases


def panels():
    """Multiplications of many small tiles, with packing."""
    tiles = "tiles:100x90", "tiles:70x110", "tiles:130x51"
    many = case(310, 290, 330, *tiles, prefetch=2, pack="always")
    return [many | {"stationary": still} for still in "ABC"]


def sums():
    """GEMMs onto GEMMs, then added to the tile of another rank."""
    how = {"pack": "never", "prefetch": "all", "iters": 2}
    for m, texts in enumerate(itertools.product(("row", "column", "block"), repeat=3), 40):
        for still in "AB":
            yield case(m, 33, 50, *texts, stationary=still, **how)


@pytest.fixture(scope="module", params=RUNS, ids=lambda run: f"{run[0]}-{run[1]}")
def ran(request, mpirun, dealt):
    """All cases of one number of ranks in one situation, run in one mpiexec: exact, with the bytes
    and within the memory of the plan."""
    p, situation = request.param
    turn = RUNS.index(request.param)
    cases = dealt(sample(p, situation), turn, 12)
    cases += dealt(panels(), turn, 3) + dealt(sums(), turn, 54)
    small_segments = ["--small-segments"] if p % 2 == 0 else []
    answers = mpirun.exact(p, cases, *small_segments, situation=situation)
    assert not any(out["collective_bytes"] for out in answers)
    return SimpleNamespace(p=p, situation=situation, pairs=list(zip(cases, answers)))


def test_gets_copy_only_what_is_out_of_reach_or_asked_to_be_copied(ran):
    both = 0
    for made, out in ran.pairs:
        copied, seen = out["get_bytes"], out["direct_bytes"]
        both += bool(copied and seen)
        if out["panel_bytes"]:  # some of it is copied into panels
            continue
        if made.get("get") == "copy" or ran.situation == "rma":
            assert not seen, made
        elif ran.situation == "direct":
            assert not copied, made
        elif ran.situation == "remote" or ran.p == 2:  # two cliques of one rank: nobody is in reach
            assert not seen, made
    assert both or ran.situation not in ("mixed", "nodes") or ran.p == 2


def test_many_small_tiles_are_packed_unless_a_case_forbids_it(ran):
    text = [(case.get("pack"), bool(out["panel_bytes"])) for case, out in ran.pairs]
    assert ("never", True) not in text
    assert {bool(out["panel_bytes"]) for case, out in ran.pairs if case in panels()} == {True}


def test_records_name_the_transport_and_the_nodes_that_were_found(ran):
    p = ran.p
    nodes = {"mixed": min(p, 2), "nodes": min(p, 2), "remote": p}.get(ran.situation, 1)
    far = "rma" if nodes == p else "mixed"
    transport = "rma" if ran.situation == "rma" else far if nodes > 1 else "direct"
    assert {(out["nodes"], out["transport"], out["ranks"]) for _, out in ran.pairs} == {
        (nodes, transport, p)
    }


def test_ranks_of_several_nodes_fetch_whole_rows_and_push_partial_sums_by_default(mpirun):
    cases = [
        case(92, 100, 112, *["column"] * 3, stationary="C", iters=2),
        case(92, 100, 112, *["row"] * 3, stationary="B", iters=2),
    ]
    cases.append(cases[1] | {"sums": "accumulate"})
    far, tcp, near = (mpirun.exact(4, cases, situation=x) for x in ("mixed", "remote", "rma"))
    for found in (far, tcp):
        assert [out["options"] for out in found] == ["fetch=rows", "sums=push", "fetch=rows"]
        assert [bool(out["put_bytes"]) for out in found] == [False, True, False]
        assert [bool(out["accumulate_bytes"]) for out in found] == [False, False, True]
        assert found[1]["put_bytes"] == 4 * 3 * 92 * 100
    assert [out["options"] for out in near] == [None] * 3
