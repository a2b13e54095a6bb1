"""Decisions of the adapters without their libraries."""

import _ctypes
import ctypes
import os
from types import SimpleNamespace

import pytest

from drbench.algorithms.mesh import parse_mesh
from drbench.errors import CaseFailed, MissingError, UnsupportedError, UsageError
from drbench.launch.host.streams import diverted
from drbench.launch.libraries import LIBRARIES, get_library, require_library
from drbench.launch.libraries.base import own_words
from drbench.launch.libraries.cosma import read_times
from drbench.launch.libraries.dtensor import moved_bytes
from drbench.launch.libraries.heat import split_of
from drbench.launch.libraries.loaded import call_slots, library_at, loaded_file, slot_target
from drbench.partitions import partition


def test_every_library_is_registered_under_its_own_name_and_has_a_default():
    assert [library.name for library in map(get_library, LIBRARIES)] == list(LIBRARIES)
    for library in map(get_library, LIBRARIES):
        assert library.settings(4) and library.description
        for nprocs in (1, 2, 4, 6):
            for setting in library.settings(nprocs):
                options = library.pick(setting.get("options", {}))
                library.problem(
                    96, 96, 96, nprocs, *(setting.get(name) for name in "abc"), **options
                )


class Ranks:
    """Communicators in which every rank has contributed before: what the others give is known."""

    def __init__(self, rank, *others):
        self.rank, self.size, self.others = rank, len(others) + 1, others

    def allgather(self, mine):
        return [*self.others[: self.rank], mine, *self.others[self.rank :]]


@pytest.mark.parametrize(
    "rank, visible, others, index, words",
    [
        (3, "abcd", "abc", 3, None),  # each rank sees all GPUs
        (1, "b", "a", 0, None),  # each rank sees its own
        (1, "a", "a", 0, "2 ranks of a node have only 1 together"),
        (2, "ab", "ab", 0, "3 ranks of a node have only 2 together"),
        (1, "", "a", None, "a node has no GPU for 1 of its 2 ranks"),
        (0, "a", [None], 0, "a node has no GPU for 1 of its 2 ranks"),
    ],
)
def test_each_rank_uses_a_gpu_of_its_own_and_shared_ones_are_refused(
    rank, visible, others, index, words
):
    """A rank may see all GPUs of its node or only its own (srun --gpus-per-task=1)."""
    used = []
    job = object.__new__(get_library("dtensor"))
    node = Ranks(rank, *others)
    job.topology = SimpleNamespace(node=node, comm=Ranks(0, None))
    job.torch = SimpleNamespace(
        device=lambda *words: words,
        cuda=SimpleNamespace(
            is_available=lambda: bool(visible),
            device_count=lambda: len(visible),
            get_device_properties=lambda at: SimpleNamespace(uuid=visible[at]),
            set_device=used.append,
        ),
    )
    assert job.find_device("cpu") == ("cpu",)
    if words is None:
        assert job.find_device("cuda") == ("cuda", index) and used == [index]
        return
    with pytest.raises(MissingError) as raised:
        job.find_device("cuda")
    assert f"dtensor needs a GPU per rank, but {words}." in str(raised.value)
    assert "all GPUs of the node (srun --gpus-per-node" in str(raised.value)
    assert "\n" not in str(raised.value) and not used


def test_a_rank_refuses_gpus_that_are_shared_on_another_node():
    job = object.__new__(get_library("cublasmp"))
    found = "2 ranks of a node have only 1 together"
    job.topology = SimpleNamespace(node=Ranks(0), comm=Ranks(0, found))
    with pytest.raises(MissingError, match="cublasmp needs a GPU per rank, but 2 ranks"):
        job.refuse_shared_gpus("0000:01:00.0")


@pytest.mark.parametrize(
    "name, dtype, compute, options, words",
    [
        ("dtensor", "bfloat16:float32", None, {"device": "cuda"}, None),
        ("dtensor", "float32", "tf32", {"device": "cuda"}, None),
        ("symm_mem", "float32", "tf32", {}, None),
        ("cublasmp", "bfloat16:float32", None, {}, None),
        ("dtensor", "float32", "tf32", {}, "dtensor multiplies float32 on cores here"),
        ("cublasmp", "float64", "tf32", {}, "cublasmp multiplies float64 on GPUs here"),
        ("symm_mem", "bfloat16:float32", "tf32", {}, "multiplies bfloat16:float32 on GPUs here"),
        ("scalapack", "bfloat16:float32", None, {}, "got bfloat16:float32. Use --dtype float32"),
        ("heat", "bfloat16:float32", None, {}, "heat multiplies float32 and float64 here"),
    ],
)
def test_arithmetic_that_a_library_does_not_have_is_refused(name, dtype, compute, options, words):
    check = lambda: get_library(name).check_arithmetic(dtype, compute, options)
    if words is None:
        return check()
    with pytest.raises(UnsupportedError, match=words):
        check()


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_missing_library_is_refused_in_one_line_with_the_install_command(name, nothing_installed):
    with pytest.raises(MissingError) as raised:
        require_library(get_library(name))
    described = str(raised.value)
    assert (
        described.startswith(f"{name} is not available: ")
        and "\n" not in described
        and raised.value.exit_code == 3
    )
    assert "pip install" in described or "apt-get install" in described or "Build" in described


@pytest.mark.parametrize(
    "name, given",
    [
        ("scalapack", ("row",)),
        ("pylops", (None, "row")),
        ("cosma", (None, None, "row")),
        ("heat", (None, None, "column")),
    ],
)
def test_a_partition_that_a_library_chooses_itself_is_refused(name, given):
    with pytest.raises(UsageError, match="got .*'(row|column)'"):
        get_library(name).problem(8, 8, 8, 2, *given)


def test_the_words_of_a_refusal_are_one_line_of_readable_length():
    described = own_words(RuntimeError("first\nsecond " + "x " * 500))
    assert (
        described.startswith("RuntimeError: first second x")
        and 290 < len(described) <= 300
        and described.endswith("...")
    )


def test_what_a_library_prints_goes_to_standard_error_until_it_has_started(capfd):
    with pytest.raises(ZeroDivisionError), diverted():
        os.write(1, b"its words ")
        raise ZeroDivisionError
    os.write(1, b"ours")
    assert capfd.readouterr() == ("ours", "its words ")


@pytest.mark.parametrize("text", [*"3x2 2 x 0x4 2x2x1 -2x-2".split(), ""])
def test_a_grid_that_does_not_hold_the_ranks_is_refused(text):
    with pytest.raises(UsageError, match="such as 2x3, got|Use 1x4, 2x2"):
        parse_mesh(text, 4)


@pytest.mark.parametrize(
    "text, split", [("row", 0), ("S(0)", 0), ("column", 1), ("row/c4", None), ("R", None)]
)
def test_heat_takes_rows_columns_and_everything_everywhere(text, split):
    assert split_of(partition(text, (8, 8), 4)) == split


@pytest.mark.parametrize("text", ["block", "row/c2", "tiles:2x2@2x2"])
def test_heat_has_no_split_for_other_partitions(text):
    with pytest.raises(UnsupportedError, match="Use row, column or row/c4"):
        split_of(partition(text, (8, 8), 4))


def test_collective_bytes_match_passing_blocks_around_a_ring():
    ranks, blocks = 4, [25] * 4
    gathered = sum(blocks[source] for source in range(ranks) if source != 0)
    scattered = sum(blocks[target] for target in range(ranks) if target != 0)
    assert moved_bytes("all_gather_into_tensor", blocks[0], ranks) == gathered
    assert moved_bytes("reduce_scatter_tensor", sum(blocks), ranks) == scattered
    assert moved_bytes("all_reduce", sum(blocks), ranks) == scattered + gathered


def test_the_times_of_cosma_are_read_from_what_it_prints():
    printed = (
        "Strategy = Matrix dimensions (m, n, k) = (2000, 2000, 2000)\nNumber of processors: 2\n"
        "Overlap of communication and computation: OFF.\n"
        "Divisions strategy: \nparallel (m / 2)\nRequired memory per rank (in #elements): "
        "8000000\n\nCOSMA TIMES [ms] = 101 102 250 \n"
    )
    assert read_times(printed) == [0.101, 0.102, 0.25]
    for nothing in ("", "COSMA TIMES [ms] = \n", "terminate called after throwing"):
        with pytest.raises(CaseFailed, match="printed no times"):
            read_times(nothing)


def test_a_call_slot_calls_the_function_the_loader_bound():
    file, base = loaded_file(os.path.basename(_ctypes.__file__))
    offset = call_slots(file)["PyLong_FromLong"]
    target = slot_target(base, offset).value
    assert target == ctypes.cast(ctypes.pythonapi.PyLong_FromLong, ctypes.c_void_p).value
    assert "python" in library_at(target)
    assert library_at(1) is None


def test_a_file_that_is_no_library_is_refused(tmp_path, monkeypatch):
    wrong = tmp_path / "libscalapack.so"
    wrong.write_text("hello")
    monkeypatch.setenv("DRBENCH_SCALAPACK", str(wrong))
    assert "is not a shared library" in get_library("scalapack").available().what


def test_a_library_without_an_mpi_of_the_abi_is_refused_before_it_is_loaded(monkeypatch):
    monkeypatch.setenv("DRBENCH_SCALAPACK", _ctypes.__file__)
    found = get_library("scalapack").available()
    assert not found.ok and "no MPI library" in found.what
