"""drbench as a library: exact in every layout on every transport, and the same line on every rank
for every mistake."""

import json
import sys

import pytest
from starting import run_process, within

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

LAYOUTS = {
    2: [
        *("row", "column", "block", "tiles:3x2@1x2", "tiles:2x2@2x1", "row/c2", "S(1)", "P"),
        *("tiles:2x3@1x2:from0x1", "block:1x1/on1"),
    ],
    4: [
        *("row", "column", "block", "tiles:3x2@2x2", "tiles:2x3@2x2:col", "row/c2", "block/c2"),
        *("column/c4", "S(0),R@2x2", "R,S(1)@2x2", "S(1),S(1)@2x2", "P,S(0)@2x2", "R,P@2x2"),
        *("tiles:3+4*x2@2x2:from1x0", "tiles:2x1+3*@0+1+1x1+0", "tiles:2x3@2x1/on3+1", "row/on0-2"),
        "row/c2/on2+0+3+1",
    ],
}


def test_a_repeated_multiplication_plans_and_allocates_nothing(mpirun):
    found = mpirun(2, "library.py", "repeated")
    first, *again, after = found["counts"]
    assert again == [first] * 2 and first[1:] == [1, 1]
    assert (found["taken"], found["places"], found["arenas"]) == (1, 1, 1) and found["right"]
    assert after[0] - first[0] <= 2  # to_global, "block" to A's
    moved, seconds, described = found["explained"]
    assert moved == [256, 256]  # half of A, or of B
    assert f"predicted: {1e3 * seconds:.3g} ms" in described


@pytest.mark.parametrize("situation", ["direct", "remote"])
def test_every_mistake_is_one_line_the_same_on_every_rank(mpirun, situation):
    found = mpirun(2, "library.py", "bad_input", situation=situation)
    for wrong, lines, seconds, right in found:
        assert wrong == [] and right and within(seconds, 5)
        assert lines == found[0][1]


def test_a_rank_that_goes_is_heard_by_those_who_continue(mpirun):
    """It raises what nobody catches, or closes its context."""
    struck = ["CaseFailed", "rank 1: left with ValueError: struck by the test"]
    described = {
        "raises": (struck, ["ValueError", "struck\nby the test"]),
        "closes": (["UsageError", "ranks call in different order: rank 0 multiply("], None),
    }
    found = mpirun(3, "library.py", "leaving", *map(json.dumps, described))
    each = ((rank, *described[how], *of) for how in described for rank, of in enumerate(found[how]))
    for rank, others, own, message, seconds, closed in each:
        assert closed and within(seconds, 5)
        kind, text = (own or others) if rank == 1 else others
        assert message[0] == kind and message[1].startswith(text), (rank, message)


def test_arrays_outlive_their_context(mpirun):
    found = mpirun(2, "library.py", "outliving")
    assert found == {"kept": True, "freed": [False, True], "local": True, "threads": 0}


@pytest.mark.parametrize("ranks, situation, steps", [(2, "direct", 250), (3, "remote", 60)])
def test_nothing_leaks(mpirun, ranks, situation, steps):
    found = mpirun(ranks, "library.py", "churn", str(steps), "5", situation=situation)
    assert found == {"wrong": 0, "left": 0, "whole": True}


@pytest.mark.parametrize("situation", ["direct", "mixed"])
def test_contexts_of_any_ranks_live_side_by_side(mpirun, situation):
    assert mpirun(4, "library.py", "groups", situation=situation) == [0] * 4


#: How a program ends that has not closed its context: in order; with an error on one rank while the
#: others multiply; while they wait for something else, for which it is given a second instead of
#: five; and so once the context is closed, and A keeps its heap.
ENDS = {
    "in order": "A @ A",
    "error": "if rank: raise ValueError('struck')\nA @ A",
    "elsewhere": "import drbench.library.context as context\ncontext._PATIENCE_S = 1\n"
    "if rank: raise ValueError('struck')\ncomm.Barrier()",
    "after closing": "import drbench.library.context as context\ncontext._PATIENCE_S = 1\n"
    "ctx.close()\nif rank: raise ValueError('struck')\ncomm.Barrier()",
}


@pytest.mark.parametrize("how", ENDS)
def test_a_program_that_closes_nothing_ends_and_prints_the_reason(mpiexec, tmp_path, how):
    (tmp_path / "program.py").write_text(
        "import numpy as np, drbench\nctx = drbench.init(heap='64K')\n"
        "comm, rank = ctx.comm, ctx.rank\nA = ctx.from_global(np.ones((4, 4)), 'row')\n"
        f"A @ A\n{ENDS[how]}\n"
    )
    command = [mpiexec, "-n", 2, sys.executable, tmp_path / "program.py"]
    ended = run_process(command, tmp_path, {"OPENBLAS_NUM_THREADS": "1"}, 40)
    assert ended.left == () and within(ended.seconds, 12)
    if how == "in order":
        assert (ended.returncode, ended.stderr) == (0, "")
    else:
        assert ended.returncode != 0 and "ValueError: struck" in ended.stderr
        described = (
            "drbench.errors.CaseFailed: rank 1: left with ValueError: struck"
            if how == "error"
            else "drbench: rank 1 ended with ValueError and the others did not follow within 1 s"
        )
        assert described in ended.stderr


# -- matrices on devices: the same programs on a fake of CuPy whose memory other processes open by
# its handle, and on worker threads instead of a device


@pytest.fixture
def on(request):
    """``on(device)``: the option of ``library.py``."""

    def option(device):
        how = request.getfixturevalue("kernels") if device == "gpu" else device
        return f"--device={how}"

    return option


@pytest.mark.parametrize(
    "device, ranks, situation, count",
    [
        ("gpu", 2, "direct", 20),
        ("gpu", 2, "rma", 12),
        ("gpu", 4, "mixed", 8),
        ("threads", 2, "direct", 10),
        ("threads", 4, "mixed", 5),
    ],
)
def test_devices_are_exact_and_nothing_is_left(mpirun, dealt, on, device, ranks, situation, count):
    count = max(6, len(dealt(range(count), 0, 4)))
    layouts, seed = json.dumps(LAYOUTS[ranks]), str(7 * ranks + len(situation))
    words = on(device), "exact", layouts, seed, str(2 * count)
    found = mpirun(ranks, "library.py", *words, situation=situation)
    assert found == {"wrong": [], "left": 0, "refused": False}


def test_local_arrays_are_shared_with_other_libraries(mpirun, on):
    found = mpirun(2, "library.py", on("gpu"), "shared")
    assert found == {
        "dlpack": 4,
        "described": 16,
        "kind": True,
        "taken": [True, 0],
        "whole": [[10 * (x // 3) + 4 * (x % 3) + y for y in range(4)] for x in range(6)],
        "left": 0,
    }


@pytest.mark.parametrize("device", ["gpu", "threads"])
def test_a_plan_outlives_the_arena_that_it_was_laid_out_in(mpirun, on, device):
    assert mpirun(2, "library.py", on(device), "grown") == [[True] * 6, 0]


def test_nothing_leaks_on_devices(mpirun, on):
    found = mpirun(2, "library.py", on("gpu"), "churn", "150", "5")
    assert found == {"wrong": 0, "left": 0, "whole": True}
