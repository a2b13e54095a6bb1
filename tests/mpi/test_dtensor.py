"""Multiplications of PyTorch's DTensors by drbench: exact in every placement on every transport,
forward and backward; what one rank cannot do all ranks leave to torch."""

import itertools
import re
import sys
from textwrap import dedent

import pytest
from starting import ROOT, run_process, within

from benchmarks.pages.libraries import HERE, RESULTS, compare_placements, read_csv

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.mpi, pytest.mark.timeout(400)]

OTHERS = "rma", "mixed", "remote"


def situations(*sample):
    """A parameter ``situation``: these in every sample, all in the whole run."""
    return pytest.mark.parametrize(
        "situation",
        [
            pytest.param(each, marks=[] if each in sample else pytest.mark.thorough)
            for each in ("direct", *OTHERS)
        ],
    )


@pytest.fixture
def answer(mpirun):
    """``answer(ranks, program, what, *arguments, situation=...)``."""

    def run(ranks, program, what, *arguments, **how):
        return mpirun(ranks, f"dtensor_{program}.py", what, list(arguments), timeout=900, **how)

    return run


def words(letters, length):
    return ["".join(each) for each in itertools.product(letters, repeat=length)]


def placed(letters, length=1):
    """All placements of A, B and of the result, or "" for those of stock torch."""
    every = words(letters, length)
    return {"a": every, "b": every, "c": ["", *every]}


BOTH = [True, False]
KINDS = {"heap": BOTH, "dtype": ["float32", "bfloat16", "complex64"]}
LINE = {"mesh": ["2"]} | KINDS | placed("01RP")
PAIRS = {"mesh": ["2x2"], "shape": [[7, 5, 9]], "heap": [True]}
STRIDED = KINDS | placed("01RPtuv", 2) | {"mesh": ["2x2"], "shape": [[8, 12, 4], [9, 7, 5]]}
MESHES = KINDS | {"mesh": ["dp", "tp", "permuted", "three"], "shape": [[7, 5, 9]]}
#: Torch itself redistributes matrices of two _StridedShard wrongly.
RIGHT = [x for x in words("0011tuRPPP", 2) if set(x) <= set("RP01") or set(x) & set("RP")]
DRAWN = {
    "mesh": ["4", "2x2"],
    "op": ["addmm", "addmm", "mm", "linear"],
    "mode": ["enable_grad", "enable_grad", "no_grad", "inference_mode"],
    "shape": [*itertools.product((1, 3, 4, 7, 8, 12), repeat=3)],
    "bias": ["mn", "mn", "n", "1n", "m1", "1", ""],
    "factors": [*itertools.product((1, 2, -1, 0), (1, 3, -1, 0))],
    "dtype": ["float64", "complex128"],
    "turned": BOTH,
    "a": RIGHT,
    "b": RIGHT,
    "c": RIGHT + [""] * len(RIGHT),
    "of_bias": RIGHT,
}
#: Ranks, random cases in a sample, cases where thorough tests run (on one node), choices of each.
TABLES = {
    "2": (2, 160, None, LINE | {"shape": [[8, 12, 16], [7, 5, 9], [3, 2, 1]]}),
    "2x2": (4, 60, None, placed("01RP", 2) | PAIRS),
    "strided": (4, 60, 500, STRIDED),
    "meshes": (4, 60, 300, placed("01RP", 2) | MESHES),
    "square": (2, 120, 5000, LINE | {"shape": [[n] * 3 for n in range(1, 17)], "turned": BOTH}),
    "drawn": (4, 60, 400, DRAWN),
    "auto": (4, 60, 400, DRAWN),
}
SAMPLE = "2-direct 2x2-mixed strided-direct meshes-mixed square-rma square-remote"
SAMPLE = f"{SAMPLE} drawn-direct auto-direct".split()


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "name, situation",
    [
        pytest.param(*each, marks=[] if "-".join(each) in SAMPLE else pytest.mark.thorough)
        for each in itertools.product(TABLES, ("direct", *OTHERS))
    ],
)
def test_results_and_gradients_are_exact_and_nothing_is_left(answer, dealt, name, situation):
    ranks, few, many, table = TABLES[name]
    if len(dealt(BOTH, 0, 2)) > 1:
        few = many if situation == "direct" else 4 * few
    when = "auto" if name == "auto" else "always"
    found = answer(ranks, "multiplications", "every", table, few, when, situation=situation)
    assert (found["wrong"], found["left"]) == ([], 0)
    assert (found["stock"] == []) == (when == "always")
    assert found["drbench"] > (few or 0) // 4


def test_what_torch_does_itself_and_what_drbench_refuses_is_so_on_all_ranks(answer):
    found = answer(4, "multiplications", "torchs")
    assert found.pop("left") == 0
    assert len(found) > 34 and [name for name, right in found.items() if not right] == []


@pytest.mark.parametrize("ranks, mesh, situation", [(2, [2], "direct"), (4, [2, 2], "mixed")])
def test_bfloat16_is_rounded_once_a_block_and_not_once_an_element(answer, ranks, mesh, situation):
    found = answer(ranks, "multiplications", "rounding", mesh, situation=situation)
    assert found["left"] == 0 and found["drbench"] == 4**2
    # each of at most 2 blocks of k a mesh dimension, its sum, and the sum of copies: 2**-8 each
    assert 0 < found["error"] < 4 * len(mesh) * 2**-8


#: The message of each mistake, the same on every rank.
MESSAGES = {
    "before": "UsageError drbench.torch is not installed. Call drbench.torch.install() first.",
    "twice": "UsageError drbench.torch is installed already. Call drbench.torch.uninstall() first.",
    "when": "UsageError when must be auto, always or never, got 'alway'. Did you mean always?",
    "long": "UsageError drbench.torch.out has 2 placements, the mesh of the result has 1 ",
    "third": "UsageError drbench.torch.out(S(2)): the result is a matrix. Use Shard(0) for its ",
    "explain": "UsageError explain needs DTensors of two dimensions, got Tensor.",
    "type": "UsageError the heap stores torch.float32, torch.float64, torch.complex64",
    "placements": "UsageError drbench.torch.empty makes a matrix with a placement for each of the ",
    "sum": "UsageError drbench.torch.empty: a pending max is no sum.",
    "adopt": "OutOfMemory adopt, rank 0: the heap is too small: an array of 256x512 float32 needs ",
}


@situations("direct")
def test_what_one_rank_cannot_do_all_leave_to_torch_and_mistakes_are_one_line(answer, situation):
    found = answer(2, "multiplications", "trouble", situation=situation)
    assert found["declined"] == [6, 6, 7] and found["drbench"] == [0, 1, 1]
    assert all(why.startswith("rank 1: the ") for why in found["stock"])
    assert found["left"] == 0 and found["after"] == found["heard"][0][0]["before"]
    for described, order, factors, seconds, right, wrong in found["heard"]:
        assert right and wrong == [] and within(seconds, 5)
        assert order[1].startswith("ranks call in different order: rank 0 multiply(C = A·B: ")
        assert factors[1].startswith("ranks differ: rank 0 has alpha=1.0 ")
        assert set(described) == set(MESSAGES)
        for mistake, text in MESSAGES.items():
            line = " ".join(described[mistake] or ["no error"])
            assert line.startswith(text) and "\n" not in line and len(line) < 400


def test_explain_reports_who_multiplies_and_what_moves(answer):
    found = answer(2, "multiplications", "text")
    assert found.pop("left") == 0
    assert all(right for right, *_ in found.values())
    kept = [None, [], 0, "stock: nothing has to move, result "]
    at = {
        name: [who, why, moved, moves, least]
        for name, (_, who, why, moved, moves, least, _) in found.items()
    }
    assert at["local"] == ["stock", "nothing has to move", *kept[:3]] == at["sum"]
    # each rank lacks the half of B that the other has: 6x16 elements of 4 bytes
    in_place = "operands are read in place, nothing is gathered"
    assert at["gather"] == ["drbench", in_place, 768, ["B from (S(0)) to (R)"], 768]
    assert at["scatter"][1] == "stock would redistribute its result"
    assert at["scatter"][3:] == [["C from (P(sum)) to (S(0))"], 512]
    # torch gathers C on CPUs: each rank gets the half of 8x16 elements that the other has
    assert at["transposed"][2:] == [384, ["C from (S(0)) to (S(1))"], 512]
    assert at["partial"][0] == "drbench"
    assert found["gather"][-1] == f"drbench: {in_place}, result (S(0))"


@pytest.mark.parametrize("name", ["2x2", "drawn"])
def test_where_torch_has_a_hook_for_algorithms_drbench_answers_it_exactly(answer, name):
    table = TABLES[name][-1] | {"c": [""] * 3 + ["RR", "0P"]}
    if name == "drawn":
        table |= {"dtype": ["float64"]}  # torch cannot gather a conjugated gradient
    found = answer(4, "multiplications", "hooked", table, 30)
    assert (found["wrong"], found["left"], found["more"]) == ([], 0, 0)
    assert [name for name, right in found["right"].items() if not right] == []


def test_tensors_made_inside_symmetric_are_multiplied_without_a_copy(answer):
    found = answer(2, "multiplications", "symmetric")
    assert found["left"] == 0
    assert [name for name, right in found["right"].items() if not right] == []
    for copied in found["copied"]:
        outside = {name: each for name, each in copied.items() if name.endswith("outside")}
        assert len(outside) == 9 and len(copied) == 28
        for name, each in copied.items():
            assert each == ([1, 2] if name in outside else [1, 0]), name


#: The measured multiplications of two ranks, of 2048x2048 matrices.
PLACEMENTS = [("0", "0", "0"), ("1", "1", "1"), ("1", "0", "0"), ("0", "1", "0")]


def test_predicted_differences_are_those_of_the_committed_records(answer):
    found, _, left = answer(2, "multiplications", "chosen", PLACEMENTS, 2048, "auto")
    assert left == 0 and found[0] == found[1]
    rows = compare_placements(read_csv(RESULTS / f"{HERE}/placements-p2/rounds/records.csv"))
    for row, letters, (who, _, (ours_s, stock_s), shown) in zip(rows, PLACEMENTS, found[0]):
        assert [each[2] for each in row.placements] == [*letters] and who == "drbench" and shown
        assert stock_s - ours_s == pytest.approx(row.stock.time_s - row.ours.time_s, rel=0.25)


def test_either_can_be_forced(answer):
    layouts = [("0", "0", ""), ("0", "R", ""), ("P", "1", "1"), ("R", "R", "P")]
    who = {}
    for when in ("auto", "always", "never"):
        found, counts, left = answer(2, "multiplications", "chosen", layouts, 8, when)
        assert left == 0 and found[0] == found[1]
        who[when] = [each[0] for each in found[0]]
        assert counts[0] == who[when].count("drbench") and sum(counts[1].values()) == 4 - counts[0]
    assert who["always"] == ["drbench"] * 4 and who["never"] == ["stock"] * 4
    assert who["auto"] == ["drbench", "stock", "drbench", "stock"]


def test_gradients_have_the_placements_of_out_only_inside_it(answer):
    by_torch, after, inside = answer(2, "multiplications", "gradients")
    assert by_torch == after != inside == ["R", "R"]


@situations("rma")
def test_tensors_outlive_what_made_them_and_torch_is_as_it_was(answer, situation):
    assert answer(2, "multiplications", "outliving", situation=situation) is True


@situations("direct")
def test_a_parallel_mlp_learns_as_one_process_does(answer, situation):
    found = answer(2, "training", "mlp", situation=situation)
    assert found.pop("left") == 0
    assert {name: case["wrong"] for name, case in found.items()} == dict.fromkeys(found, [])
    assert found["torch"]["drbench"] == 0  # torch's own styles gather and reduce separately
    for name in ("rows", "bias", "copied", "local", "batch", "sequence"):
        assert found[name]["drbench"] == 2 * 5, name
    assert found["copied"]["copied"] > found["bias"]["copied"]


def test_tied_parameters_stay_tied(answer):
    assert answer(2, "training", "tied") == [[[True] * 6] * 2, 0]


def test_styles_of_drbench_do_not_break_the_graph_of_torch_compile(answer):
    assert answer(2, "training", "compiled") == [True, True]


def test_ranks_wait_only_so_long_for_one_that_does_not_multiply(mpiexec, tmp_path):
    (tmp_path / "late.py").write_text(
        "import logging, time, torch, drbench.torch\n"
        "from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh\n"
        "drbench.torch.dispatch._PATIENCE_S = 5\n"
        'drbench.torch.install(heap="1M")\n'
        'mesh = init_device_mesh("cpu", (3,))\n'
        "A = distribute_tensor(torch.ones(6, 6), mesh, [Shard(0)])\n"
        'print(logging.getLogger("torch.distributed.tensor").level, flush=True)\n'
        "if mesh.get_rank() == 1:\n    time.sleep(1000)\n"
        "A @ A\n"
    )
    command = [mpiexec, "-n", 3, sys.executable, "late.py"]
    ended = run_process(command, tmp_path, {"OMP_NUM_THREADS": "1"}, 60)
    assert ended.returncode == 4 and ended.stdout.count("0") == 3  # torch still warns
    assert ended.stderr.count("rank 0 multiplies on ranks 0, 1, 2, of which 1 did not follow") == 1


def test_the_blocks_of_the_page_run_one_after_the_other(answer):
    page = (ROOT / "docs/how-to/dtensor.md").read_text()
    blocks = [dedent(each) for each in re.findall(r"```python\n(.*?) *```", page, re.DOTALL)]
    assert len(blocks) == 2
    printed = answer(4, "multiplications", "page", "\n".join(blocks))
    assert printed.count("drbench: operands are read in place") == 4
    assert printed.count("Counts(drbench=7, stock={") == 4  # 2, and 5 of the model's 6


def test_torchrun_is_refused_with_the_command_to_use(tmp_path):
    (tmp_path / "train.py").write_text("import drbench.torch\ndrbench.torch.install()\n")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "train.py"]
    ended = run_process(command, tmp_path, {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}, 90)
    line = "torchrun starts no ranks of MPI. Use: mpiexec -n 2 python train.py"
    message = ended.stderr.splitlines()
    assert ended.returncode == 1
    reports = ended.stderr.count("traceback : drbench.errors.MissingError: ")
    ended_itself = re.search(r"rank +: 0 \(local_rank: 0\)\s+exitcode +: 3", ended.stderr)
    if ended_itself:  # else torchrun may have ended the first rank before it could print
        assert message[0].startswith("unsupported: ") and message[0].endswith(line)
    # what follows is torchrun's own report: of each rank (unless that was ended for the other's
    # sake) the line and the exit code, and no traceback
    assert reports in (1, 2)
    assert reports + bool(ended_itself) <= ended.stderr.count(line) <= reports + 1
    assert "exitcode  : 3" in ended.stderr and "ranks.py" not in ended.stderr


#: What another torch may lack, and the message.
LACKING = {
    "del DTensor._op_dispatcher._custom_op_handlers": "AttributeError",
    "drbench.torch.private.handlers = dict": "DTensor does not call the handlers",
    "DTensor.__new__ = None": "TypeError",
    "OpDispatcher.unwrap_to_op_info = lambda self: None": "TypeError",
}


def test_a_torch_without_the_names_that_are_needed_is_refused_in_one_line():
    program = (
        "import os\nfrom torch.distributed.tensor import DTensor\n"
        "from torch.distributed.tensor._dispatch import OpDispatcher\nimport drbench.torch\n"
        f"for change in {list(LACKING)}:\n"
        "    if not os.fork():\n"
        "        exec(change)\n"
        "        try:\n            drbench.torch.install()\n"
        "        except drbench.errors.MissingError as error:\n"
        "            print(error, flush=True)\n"
        "        os._exit(0)\n"
        "    os.wait()\n"
    )
    ended = run_process([sys.executable, "-c", program], ROOT, {}, 60)
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert len(lines) == len(LACKING)
    begin = f"drbench.torch needs private functions of DTensor that torch {torch.__version__} lacks"
    for line, message in zip(lines, LACKING.values()):
        assert line.startswith(begin) and message in line
        first, last = re.search(r"pip install 'torch>=([\d.]+),<([\d.]+)'$", line).groups()
        here = tuple(map(int, torch.__version__.split(".")[:2]))
        assert tuple(map(int, first.split("."))) <= here < tuple(map(int, last.split(".")))
