"""The executor of devices on worker threads: exact under every order the streams can take, and
wrong as soon as an edge is missing."""

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

LAYOUTS = (
    ("row", "column", "block"),
    ("tiles:7x9@{grid}", "block", "column"),
    ("column/c2", "row", "row"),
    ("row", "row", "column/c2"),
    ("column", "row/c2", "block/c{ranks}"),
    ("S(0),R@{grid}", "_S(0,2),S(1)@{grid}", "R,S(1)@{grid}"),  # replicas on strided ranks
)
#: Edge -> a case that needs it.
NEEDED = {
    "ready": {
        "options": {"stationary": "C", "chunk": 16},
        "texts": ["row", "column", "block"],
        "prefetch": 2,
    },
    "made": {
        "options": {"stationary": "B", "chunk": 16},
        "texts": ["column", "column", "row"],
        "prefetch": 2,
    },
    "free": {"options": {"stationary": "C", "chunk": 8}, "texts": ["row", "row", "column"]},
    "order": {
        "options": {"stationary": "C", "chunk": 8},
        "texts": ["row", "column", "block"],
        "prefetch": 2,
        "gemms": 3,
    },
    "fence": {"options": {"stationary": "A", "chunk": 8}, "texts": ["row", "row", "column/c2"]},
    "begin": {
        "options": {"stationary": "B", "chunk": 16},
        "texts": ["row", "column", "row"],
        "transport": "rma",
    },
}


def universal(ranks, seeds):
    """Every stationary matrix on every layout, with the settings dealt over them."""
    plain = {"shape": [33, 47, 29], "seeds": seeds, "delay_s": 4e-4}
    settings = [
        {"prefetch": 1},
        {"prefetch": 0},
        {"prefetch": 3, "gemms": 2, "accumulates": 2, "streams": 2},
        {"get": "view"},
        {"transport": "rma"},
        {"transport": "rma", "direct": True, "gemms": 2},
    ]
    grid = {2: "1x2", 4: "2x2"}[ranks]
    layouts = [tuple(text.format(grid=grid, ranks=ranks) for text in texts) for texts in LAYOUTS]
    for x, texts in enumerate(layouts):
        for y, stationary in enumerate("ABC"):
            for z, setting in enumerate((settings[(x + y) % 3], settings[3 + (x + y) % 3])):
                papers = {"fetch": "tile", "reduce": "push"} if (x + y + z) % 2 else {}
                options = {"stationary": stationary, "chunk": 8, "replicate_result": y == 1}
                yield plain | {"options": options | papers, "texts": texts} | setting
    tiles = [f"tiles:{tile}@{grid}" for tile in ("7x9", "10x11", "12x8")]
    for x, setting in enumerate(settings):  # panels are filled and used again
        options = {"stationary": "ABC"[x % 3], "chunk": 8, "pack": "always"}
        yield plain | {"options": options, "texts": tiles} | setting
    options = {"stationary": "B", "schedule": "greedy:2x2"}
    yield plain | {"options": options, "texts": LAYOUTS[0], "gemms": 2}
    narrow = {"shape": [33, 48, 40], "dtype": "bfloat16:float32", "transport": "rma"}
    yield plain | narrow | {"options": {"stationary": "A"}, "texts": LAYOUTS[2]}


@pytest.mark.parametrize(
    "ranks, situation, seeds",
    [(2, "direct", 6), (4, "direct", 2), (4, "mixed", 2), (4, "nodes", 2)],
)
def test_the_universal_algorithm_is_exact_under_every_order_of_streams(
    mpirun, dealt, ranks, situation, seeds
):
    cases = dealt(universal(ranks, seeds), ranks + len(situation), 14)
    found = mpirun(ranks, "devices.py", cases, situation=situation)
    for case, each in zip(cases, found):
        assert (each["wrong"], each["as_planned"]) == ([0] * 2 * seeds, True), case


@pytest.mark.parametrize(
    "transport, direct", [("auto", False), ("rma", True)], ids=["staged", "gpu-aware"]
)
def test_every_mesh_algorithm_is_exact_under_every_order_of_streams(
    mpirun, dealt, transport, direct
):
    from drbench.algorithms import algorithms

    cases = []
    for name, algorithm in algorithms(plain=True).items():
        if name == "universal" or algorithm.signals:
            continue
        found = algorithm.options.get("dataflow")
        dataflows = found.tried if found else [None]
        for dataflow in dataflows:
            options = {"dataflow": dataflow} if dataflow else {}
            asked = {"mesh": "2x2", "replicas": 2}
            options |= {each: asked[each] for each in asked if each in algorithm.options}
            cases.append(
                {"algorithm": name, "shape": [64, 48, 56], "options": options, "prefetch": 2}
                | {"transport": transport, "direct": direct, "seeds": 2, "delay_s": 4e-4}
            )
    for strategy in ("columns", "partial"):  # contiguous data is copied
        columns = {"texts": ["column"] * 3, "options": {"strategy": strategy}}
        cases.append(cases[-1] | {"algorithm": "dtensor_mm"} | columns)
    assert len(cases) >= 16
    cases = dealt(cases, direct, 4)
    for case, each in zip(cases, mpirun(4, "devices.py", cases)):
        assert (each["wrong"], each["as_planned"]) == ([0] * 4, True), case


def test_every_edge_is_needed(mpirun):
    plain = {"shape": [64, 64, 96], "seeds": 2, "delay_s": 1e-3}
    whole = [plain | case for case in NEEDED.values()]
    cases = [case | {"seeds": 5, "without": [edge]} for edge, case in zip(NEEDED, whole)]
    found = [sum(each["wrong"]) > 0 for each in mpirun(2, "devices.py", [*cases, *whole])]
    assert dict(zip(NEEDED, found)) == dict.fromkeys(NEEDED, True)
    assert not any(found[len(cases) :])


def test_tiles_of_several_ranks_are_fetched_on_as_many_streams_as_are_requested(mpirun):
    case = {"shape": [32, 32, 32], "texts": ["row", "row", "row"], "options": {"stationary": "C"}}
    case["prefetch"] = 2
    cases = [case | {"streams": streams} for streams in (1, 2, 9)]
    wanted = [["in0"], ["in0", "in1"], ["in0", "in1", "in2"]]
    for found, lanes in zip(mpirun(4, "devices.py", cases), wanted):
        assert found["wrong"] == [0, 0] and found["copies"] == lanes


def test_a_rank_that_waits_for_its_streams_still_serves_remote_reads(mpirun):
    """Over TCP MPI moves data only while it is called: rank 0's GEMM is long, and rank 1 reads from
    it meanwhile."""
    read_s = lambda long_s: mpirun(2, "late_reads.py", str(long_s), situation="remote")
    assert read_s(0.6) < 0.3 or read_s(3) < 1.5  # on a busy machine the second, too


def test_repeats_open_no_more_streams(mpirun):
    (one, count), (five, again) = mpirun(2, "streams.py")
    assert (one, five) == ("ok", "ok") and count == again > 0
