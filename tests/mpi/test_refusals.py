"""What cannot be run is refused with the way out, by every rank alike."""

import pytest
from cases import case

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

CASE = case(30, 40, 50)


@pytest.mark.parametrize("situation", ["mixed", "remote"])
@pytest.mark.parametrize("transport", ["direct", "throttled:1,1"])
def test_in_place_only_is_unsupported_where_some_memory_is_out_of_reach(
    mpirun, situation, transport
):
    refused, after = mpirun.cases(4, [CASE | {"transport": transport}, CASE], situation=situation)
    assert (refused["status"], refused["same_on_every_rank"]) == ("unsupported", True)
    assert "nodes" in refused["reason"] and "--transport auto" in refused["reason"]
    assert after["status"] == "ok"  # and nothing of it stays behind


def test_in_place_only_runs_on_one_node(mpirun):
    (out,) = mpirun.cases(4, [CASE | {"transport": "direct"}])
    assert (out["status"], out["transport"]) == ("ok", "direct")


#: What makes no sense on 3 ranks, and what the refusal must mention.
NONSENSE = [
    ({"a": "block:2x2"}, ["block:2x2", "4 rank", "3", "block:1x3"]),
    ({"b": "row/c2"}, ["row/c2", "3 ranks", "1, 3"]),
    ({"c": "tiles:4x4@2x1"}, ["tiles:4x4@2x1", "3"]),
    ({"a": "rows"}, ["rows", "row"]),
    ({"c": "tiles:0x4"}, ["0"]),
    ({"m": 0}, ["m", "0"]),
    ({"k": -3}, ["k", "-3"]),
    ({"dtype": "float61"}, ["float61", "float32"]),
    ({"fill": "random"}, ["random", "uniform"]),
    ({"k": 2**24}, ["2**24", "uniform"]),
    ({"stationary": "D"}, ["D", "auto"]),
    ({"chunk": 0}, ["chunk", "0"]),
    ({"algorithm": "univrsal"}, ["univrsal", "universal"]),
    ({"transport": "carrier pigeon"}, ["carrier pigeon", "rma"]),
    ({"transport": "throttled:fast"}, ["throttled:fast", "throttled:20,5"]),
    ({"prefetch": -1}, ["prefetch", "-1"]),
    ({"iters": 0}, ["iters", "0"]),
    ({"warmup": -1}, ["warmup", "-1"]),
    ({"progress": "magic"}, ["magic", "poll"]),
    ({"get": "magic"}, ["magic", "copy"]),
]


@pytest.fixture(scope="module")
def nonsense(mpirun):
    """What became of each, in one mpiexec."""
    return mpirun.cases(3, [CASE | wrong for wrong, _ in NONSENSE])


@pytest.mark.parametrize("x", range(len(NONSENSE)), ids=[str(wrong) for wrong, _ in NONSENSE])
def test_what_makes_no_sense_is_a_usage_error_on_every_rank(nonsense, x):
    out = nonsense[x]
    assert (out["status"], out["same_on_every_rank"], out["windows"]) == ("usage", True, 0)
    assert all(text in out["reason"] for text in NONSENSE[x][1]), out["reason"]
    assert "\n" not in out["reason"]
