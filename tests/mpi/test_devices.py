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
    settings = [
        {"prefetch": 1},
        {"prefetch": 0},
        {"prefetch": 3, "gemms": 2, "accumulates": 2},
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
                yield {
                    "shape": [33, 47, 29],
                    "options": options | papers,
                    "texts": texts,
                    "seeds": seeds,
                } | setting
    tiles = [f"tiles:{tile}@{grid}" for tile in ("7x9", "10x11", "12x8")]
    for x, setting in enumerate(settings):  # panels are filled and used again
        yield {
            "shape": [33, 47, 29],
            "options": {"stationary": "ABC"[x % 3], "chunk": 8, "pack": "always"},
            "texts": tiles,
            "seeds": seeds,
        } | setting
    yield {
        "shape": [33, 47, 29],
        "options": {"stationary": "B", "schedule": "greedy:2x2"},
        "texts": LAYOUTS[0],
        "seeds": seeds,
        "gemms": 2,
    }
    yield {
        "shape": [33, 48, 40],
        "options": {"stationary": "A"},
        "texts": LAYOUTS[2],
        "seeds": seeds,
        "dtype": "bfloat16:float32",
        "transport": "rma",
    }


@pytest.mark.parametrize(
    "ranks, situation, seeds",
    [(2, "direct", 12), (4, "direct", 3), (4, "mixed", 3), (4, "nodes", 3)],
)
def test_the_universal_algorithm_is_exact_under_every_order_of_streams(
    mpirun, dealt, ranks, situation, seeds
):
    cases = dealt(universal(ranks, seeds), ranks + len(situation), 6)
    found = mpirun(ranks, "devices.py", cases, situation=situation)
    assert [(each["exact"], each["as_planned"]) for each in found] == [(seeds, True)] * len(cases)


@pytest.mark.parametrize(
    "transport, direct", [("auto", False), ("rma", True)], ids=["staged", "gpu-aware"]
)
def test_every_mesh_algorithm_is_exact_under_every_order_of_streams(
    mpirun, dealt, transport, direct
):
    from algorithms import algorithms

    cases = []
    for name, algorithm in algorithms(plain=True).items():
        if name == "universal" or algorithm.signals:
            continue
        found = algorithm.options.get("dataflow")
        dataflows = found.tried if found else [None]
        for dataflow in dataflows:
            options = ({"dataflow": dataflow} if dataflow else {}) | (
                {"mesh": "2x2"}
                if "mesh" in algorithm.options
                else {"replicas": 2}
                if "replicas" in algorithm.options
                else {}
            )
            cases.append(
                {
                    "algorithm": name,
                    "shape": [64, 48, 56],
                    "options": options,
                    "transport": transport,
                    "direct": direct,
                    "prefetch": 2,
                    "seeds": 3,
                }
            )
    for strategy in ("columns", "partial"):  # what lies side by side is copied
        lies = {"texts": ["column"] * 3, "options": {"strategy": strategy}}
        cases.append(cases[-1] | {"algorithm": "dtensor_mm"} | lies)
    assert len(cases) >= 16
    cases = dealt(cases, direct, 3)
    found = mpirun(4, "devices.py", cases)
    assert [(case["algorithm"], case["options"], each) for case, each in zip(cases, found)] == [
        (case["algorithm"], case["options"], {"exact": 3, "as_planned": True}) for case in cases
    ]


def test_every_edge_is_needed(mpirun):
    cases = [
        {"shape": [64, 64, 96], "seeds": 10, "delay_s": 1e-3} | case | {"without": [edge]}
        for edge, case in NEEDED.items()
    ]
    whole = [
        {"shape": [64, 64, 96], "seeds": 4, "delay_s": 1e-3} | case for case in NEEDED.values()
    ]
    found = mpirun(2, "devices.py", [*cases, *whole])
    assert {edge: each["exact"] < 10 for edge, each in zip(NEEDED, found)} == dict.fromkeys(
        NEEDED, True
    )
    assert [each["exact"] for each in found[len(cases) :]] == [4] * len(whole)


def test_repeats_open_no_more_streams(mpirun):
    (one, count), (five, again) = mpirun(2, "streams.py")
    assert (one, five) == ("ok", "ok") and count == again > 0
