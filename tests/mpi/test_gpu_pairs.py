"""The probe of pairs of GPUs on ranks without GPUs: real processes that open each other's memory,
and a fake device with one fault at a time."""

import json

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]
BOTH = {(0, 1), (1, 0)}


@pytest.fixture
def probe(mpirun, kernels):
    """``probe(fault, ...)``: the line, by default of two ranks with a GPU each."""

    def on(fault="none", ranks=2, **how):
        how = json.dumps({"devices": ranks} | how)
        return mpirun(ranks, "gpu_pairs.py", kernels, fault, how)

    return on


def by_pair(found):
    assert found["kind"] == "pairs"
    return {(pair["from"], pair["to"]): pair for pair in found["pairs"]}


def wrong(found):
    """What is wrong anywhere."""
    return {what for each in [*found["pairs"], found["together"]] for what in each["wrong"]}


def test_every_pair_of_sound_gpus_is_timed_and_right(probe):
    found = probe(ranks=3)
    pairs, together = by_pair(found), found["together"]
    assert pairs.keys() == {(a, b) for a in range(3) for b in range(3) if a != b}
    for pair in pairs.values():
        assert pair["reached"] and pair["atomic"] and (pair["why"], pair["no_flag"]) == ("", "")
        assert min(pair[what] for what in ("copy", "add", "flag_us")) > 0
        assert {*pair["rows"]} == {"512", "2048", "8192"} and min(pair["rows"].values()) > 0
    assert not wrong(found) and not found["stuck"]
    assert len(together["from_all"]) == 2 and min(together["from_all"]) > 0
    assert [(gpu["index"], gpu["sharers"]) for gpu in found["gpus"]] == [(0, 1), (1, 1), (2, 1)]
    assert all(gpu["free"] == gpu["bytes"] == 1 << 28 for gpu in found["gpus"])


NOT_TRIED = {"copy", "add", "flag_us"}
LATE = "a flag was not seen in 0.5 s"
#: A fault, or options of the fake; what is wrong in both directions; what each says, and lacks.
FAULTS = [
    ("none", {"peers": False}, set(), {"reached": False, "why": "no peer access"}, NOT_TRIED),
    (
        *("ipc", {}, set()),
        *({"reached": False, "why": "IPC refused: cudaErrorPeerAccessUnsupported"}, NOT_TRIED),
    ),
    ("none", {"atomics": False}, set(), {"reached": True, "atomic": False}, {"add"}),
    ("none", {"devices": 1}, set(), {"reached": True, "atomic": True}, {"no_flag"}),
    ("flags", {}, set(), {"no_flag": LATE, "flag_us": None}, set()),
    ("copies", {}, {"copy"}, {}, set()),
    ("rows", {}, {f"rows of {width} B" for width in (512, 2048, 8192)}, {}, set()),
]


@pytest.mark.parametrize("fault, how, what, says, lacks", FAULTS)
def test_a_fault_is_found_with_the_reason_and_the_rest_is_tried(
    probe, fault, how, what, says, lacks
):
    found = probe(fault, **how)
    assert by_pair(found).keys() == BOTH and not found["stuck"]
    assert {gpu["sharers"] for gpu in found["gpus"]} == {3 - how.get("devices", 2)}
    for pair in found["pairs"]:
        assert {*pair["wrong"]} == what and not lacks & pair.keys()
        assert {name: pair[name] for name in says} == says
        assert "copy" in lacks or pair["copy"] > 0
    assert wrong(found) == what


def test_lost_updates_are_found_where_two_ranks_add_at_the_same_time(probe):
    found = probe("adds")
    assert wrong(found) >= {"adds of both at the same time", "adds of all into rank 0"}
    assert not wrong(found) & {"add", "copy"}


def test_a_stream_that_cannot_be_released_is_a_line_and_all_ranks_end(mpirun, kernels):
    ended = mpirun.process(2, "gpu_pairs.py", kernels, "stuck", json.dumps({"devices": 2}))
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found["stuck"] and "together" not in found and "Traceback" not in ended.stderr
    assert [pair["no_flag"] for pair in found["pairs"]] == [LATE]


@pytest.mark.parametrize(
    "fault, words",
    [
        ("crash", "rank 1 in the memory of rank 0: cudaErrorIllegalAddress"),
        ("no_fill", "cannot fill"),
    ],
)
def test_an_error_on_one_rank_is_a_line_and_all_ranks_end(mpirun, kernels, fault, words):
    ended = mpirun.process(2, "gpu_pairs.py", kernels, fault, json.dumps({"devices": 2}))
    found = json.loads(ended.stdout.splitlines()[-1])
    assert ended.returncode and found["failed"] == words
