"""What ``drbench doctor`` finds of GPUs, from made-up measurements of a node of eight."""

import itertools
import json

import pytest

import launch.commands.doctor

GIB = 1 << 30


def pair(one, other, **more):
    """A sound pair, each a little different."""
    near = one + other / 10
    rows = {"512": 162, "2048": 270, "8192": 330}
    rates = {"copy": 390 + near / 2, "add": 305 + near, "rows": rows, "flag_us": 3.3 + near / 20}
    found = {"from": one, "to": other, "reached": True, "atomic": True, "wrong": [], "why": ""}
    return found | rates | {"no_flag": ""} | more


class Node:
    """The answers of both self-tests; ``at`` changes some pairs."""

    def __init__(self, gpus=8):
        gpu = {"name": "NVIDIA H100 80GB HBM3", "bytes": 80 * GIB, "architecture": "sm_90"}
        gpu |= {"multiprocessors": 132, "compute_mode": 0}
        self.seen = {"cupy": "14.2.0", "cublas": "cuBLAS 13.1.0", "runtime": 13010, "driver": 13000}
        self.seen |= {
            "no_waits": None,
            "nccl": "NCCL 2.28.3",
            "no_nccl": None,
            "mpi": "",
            "gpu_aware": 0,
        }
        self.seen["devices"] = [gpu | {"index": index} for index in range(gpus)]
        shown = {"free": 79 * GIB, "bytes": 80 * GIB, "sharers": 1}
        self.gpus = [shown | {"index": index, "bus": f"{index}"} for index in range(gpus)]
        self.pairs = {each: pair(*each) for each in itertools.permutations(range(gpus), 2)}
        self.together = {"wrong": [], "from_all": [391.0, 393.0]}
        self.probe = None

    def at(self, *places, without=(), **more):
        for place in places:
            self.pairs[place] |= more
            for name in without:
                del self.pairs[place][name]

    @property
    def line(self):
        pairs = [*self.pairs.values()]
        found = {"kind": "pairs", "stuck": False, "gpus": self.gpus, "pairs": pairs}
        return self.probe or found | {"together": self.together}


@pytest.fixture
def node():
    return Node()


@pytest.fixture
def doctor(run_cli, monkeypatch):
    """``doctor(node, ...)``: the command on a made-up node, without the parts on other things."""
    module = launch.commands.doctor
    for name in ("_mpi", "_cores", "_blas", "_peak", "_memory", "measure_kernels"):
        monkeypatch.setattr(module, name, lambda *words: [])
    monkeypatch.setattr(module, "mpiexec_command", lambda ranks: ["mpiexec", "-n", str(ranks)])
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("CUDA_VISIBLE_DEVICES", "SLURM_GPUS_PER_TASK", "SLURM_GPU_BIND"):
        monkeypatch.delenv(name, raising=False)

    def on(node, *words):
        monkeypatch.setattr(module, "gpu_report", lambda: node.seen)
        on.started = []
        probe = lambda *command: on.started.append(command[:2]) or node.line
        monkeypatch.setattr(module, "_probe", probe)
        return run_cli("doctor", *words)

    return on


def findings(ended):
    return [each for each in json.loads(ended.stdout) if each["subject"] != "pairs"]


def table_rows(ended, title):
    """Words of the lines of a table, without the numbers of its GPUs."""
    lines = ended.stdout.partition(title)[2].splitlines()[2:]
    rows = itertools.takewhile(lambda line: line[:1].isdigit(), lines)
    return [line.split()[1:] for line in rows]


def test_a_sound_node_of_eight_has_nothing_to_change_and_the_json_has_every_pair(doctor, node):
    *found, pairs = doctor(node, "--json").json()
    assert doctor.started == [(["mpiexec", "-n", "8"], "gpu_pairs")]
    assert {each["level"] for each in found} == {"ok"}
    text = " ".join(each["text"] for each in found)
    for numbers in ("390-394 GB/s", "305-313 GB/s", "162, 270, 330 GB/s", "79 GiB free"):
        assert numbers in text
    assert len(pairs["pairs"]) == 56 and pairs["together"]["from_all"] == [391.0, 393.0]


def lost(node):
    node.at((2, 4), wrong=["adds of both at the same time"])
    node.together["wrong"] = ["adds of all into rank 4"]


def copies(node):
    node.at((6, 5), wrong=["copy", "rows of 512 B"])


def flags(node):
    node.at((1, 0), no_flag="a flag was not seen in 0.5 s", flag_us=None)


def stuck(node):
    flags(node)
    node.probe = node.line | {"stuck": True, "together": {"wrong": []}}


def hidden(node):
    """One GPU that others do not open."""
    gone = {"reached": False, "atomic": False, "why": "IPC refused: cudaErrorInvalidValue"}
    rates = ("copy", "add", "rows", "flag_us", "no_flag")
    node.at(*(each for each in node.pairs if 7 in each), without=rates, **gone)


def apart(node):
    gone = {"reached": False, "atomic": False, "why": "no peer access"}
    node.at(*node.pairs, without=("copy", "add", "rows", "flag_us", "no_flag"), **gone)
    node.together = {"wrong": []}


def pcie(node):
    node.at(*node.pairs, without=["add"], atomic=False)


def in_use(node):
    node.gpus[2]["free"] = 12 * GIB


def exclusive(node):
    node.seen["devices"][1]["compute_mode"] = 3


def lanes(node):
    node.together["from_all"] = [50.0, 340.0]


def failed(node):
    node.probe = {"kind": "pairs", "failed": "rank 1 in the memory of rank 0: cudaError"}


def refused_flag(node):
    node.at((1, 0), no_flag="cuStreamWaitValue32_v2 failed", flag_us=None)


def slow(node):
    node.at((3, 5), copy=48.2, add=41.0)


@pytest.mark.parametrize(
    "fault, level, subject, texts, remedy",
    [
        (lost, "missing", "GPU atomics", ["of all into rank 4, adds of both"], "transport rma"),
        (copies, "missing", "GPU copies", ["(copy, rows of 512 B"], "nvlink -e"),
        (flags, "missing", "GPU flags", ["not seen in 0.5 s: GPU 1->0"], "fused overlap"),
        (
            refused_flag,
            "missing",
            "GPU flags",
            ["WaitValue32_v2 failed: GPU 1->0"],
            "fused overlap",
        ),
        (stuck, "missing", "GPU flags", ["no more pairs were tried"], "fused overlap"),
        (hidden, "advice", "GPUs out of reach", ["8 more", "cudaErrorInvalidValue"], "--ipc=host"),
        (apart, "advice", "GPUs out of reach", ["no peer access", "every pair"], "topo"),
        (pcie, "advice", "GPU atomics", ["no native atomics"], "--stationary C"),
        (slow, "advice", "slow GPU pairs", ["GPU 3->5"], "topo -m"),
        (in_use, "advice", "GPU memory", ["GPU 2 has 12 GiB of 80 GiB free"], "nvidia-smi"),
        (exclusive, "advice", "compute mode", ["GPU 1: exclusive process"], "-c DEFAULT"),
        (lanes, "ok", "one GPU from all others", ["50 GB/s, on a stream for each 340: use"], ""),
        (failed, "missing", "GPU pairs", ["rank 1 in the memory of rank 0"], "gpu_pairs"),
    ],
)
def test_each_fault_is_a_finding_with_the_way_out(
    doctor, node, fault, level, subject, texts, remedy
):
    fault(node)
    ended = doctor(node, "--json")
    found = findings(ended)
    sound = level == "ok"
    (only,) = (
        each for each in found if (each["subject"] == subject if sound else each["level"] != "ok")
    )
    assert (only["level"], only["subject"]) == (level, subject)
    assert all(text in only["text"] for text in texts) and remedy in only["remedy"], only
    assert ended.returncode == (3 if level == "missing" else 0)


def test_the_tables_have_each_pair_in_its_place(doctor, node):
    node.at((3, 5), copy=48.2, add=41.0, flag_us=9.0)
    for fault in (lost, copies, flags, hidden):
        fault(node)
    ended = doctor(node)
    rows, times = table_rows(ended, "GB/s of copies"), table_rows(ended, "us of a flag")
    assert rows[0][0] == "390/305" and rows[3][4] == "48/41" and times[3][4] == "9.0"
    assert rows[2][3].endswith("/lost") and rows[6][5] == "wrong" and times[1][0] == "never"
    assert {row[-1] for row in rows[:7]} == {"-"} == {*rows[7]}  # not reached


@pytest.mark.parametrize("gpus, ranks", [(1, 2), (4, 4), (16, 8)])
def test_a_rank_for_each_gpu_and_at_most_eight(doctor, gpus, ranks):
    doctor(Node(gpus))
    assert doctor.started[0][0][-1] == str(ranks)


def test_ranks_that_share_the_only_gpu_show_no_times(doctor):
    node = Node(1)
    node.gpus = 2 * [node.gpus[0] | {"sharers": 2}]
    node.pairs = {each: pair(*each) for each in ((0, 1), (1, 0))}
    node.at(*node.pairs, without=("flag_us", "no_flag"))
    text = " ".join(doctor(node).stdout.split())
    assert "Copies and atomic adds are right" in text and "GB/s" not in text


def test_a_launcher_that_shows_each_rank_one_gpu_is_advice(doctor, node, monkeypatch):
    """Under it nothing is started. Slurm that binds GPUs to ranks is advice too."""
    for name, value in (("PMI_SIZE", "8"), ("PMI_RANK", "0"), ("CUDA_VISIBLE_DEVICES", "3")):
        monkeypatch.setenv(name, value)
    by_subject = lambda node: {x["subject"]: x for x in findings(doctor(node, "--json"))}
    found = by_subject(Node(1))
    assert not doctor.started and "without it" in found["GPU pairs"]["text"]
    assert "CUDA_VISIBLE_DEVICES=3" in found["GPUs of a rank"]["text"]
    assert "--gpus-per-node" in found["GPUs of a rank"]["remedy"]
    monkeypatch.setenv("PMI_SIZE", "1")
    assert "GPUs of a rank" not in by_subject(Node(1))
    monkeypatch.setenv("SLURM_GPUS_PER_TASK", "1")
    assert "SLURM_GPUS_PER_TASK=1" in by_subject(node)["GPUs of a rank"]["text"]


def test_a_machine_without_a_usable_gpu_starts_no_ranks_and_has_no_table(doctor, node, monkeypatch):
    monkeypatch.setenv("PATH", "")
    node.seen = {"missing": "no CuPy", "remedy": "install it"}
    ended = doctor(node)
    assert ended.returncode == 0 and not doctor.started
    assert "every command runs on CPUs" in ended.stdout and "GB/s" not in ended.stdout


def test_a_self_test_without_a_result_is_missing(run_cli, doctor, node, monkeypatch, tmp_path):
    """It crashed, or did not end in time."""
    real = launch.commands.doctor._probe
    words = ["sh", "-c", "echo no JSON; exit 9"], "gpu_pairs", 10
    assert real(*words) == "the self-test ended with 9, without a result"
    assert "did not end within 0.1 s" in real(["sh", "-c", "sleep 60"], "gpu_pairs", 0.1)
    node.probe = {"failed": real(*words)}
    assert doctor(node).returncode == 3
