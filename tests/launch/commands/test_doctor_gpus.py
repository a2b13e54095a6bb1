"""What ``drbench doctor`` finds of GPUs, from made-up measurements of a node of eight."""

import itertools
import json

import pytest

import drbench.launch.commands.doctor

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
    module = drbench.launch.commands.doctor
    for name in ("_mpi", "_cores", "_blas", "_memory", "measure_kernels"):
        monkeypatch.setattr(module, name, lambda *words: [])
    monkeypatch.setattr(module, "_peaks", lambda *words: ([], 1.0))
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


def test_a_sound_node_of_eight_has_nothing_to_change_and_the_json_has_every_pair(doctor, node):
    *found, pairs = doctor(node, "--json").json()
    assert doctor.started == [(["mpiexec", "-n", "8"], "gpu_pairs")]
    assert {each["level"] for each in found} - {"unknown"} == {"ok"}
    text = " ".join(each["text"] for each in found)
    for numbers in ("390-394 GB/s", "305-313 GB/s", "162, 270, 330 GB/s", "79 GiB free"):
        assert numbers in text
    node.seen["gpu_aware"] = 1
    assert "staged through pinned" in text and "staged" not in doctor(node).stdout
    assert len(pairs["devices"]) == 8  # launch/gpu_check.sh reads both
    assert len(pairs["pairs"]) == 56 and pairs["together"]["from_all"] == [391.0, 393.0]


#: What a pair that is not reached, or not told of flags, lacks.
RATES = ("copy", "add", "rows", "flag_us", "no_flag")
GONE = {"reached": False, "atomic": False}


def flag(node, why):
    node.at((1, 0), no_flag=why, flag_us=None)


def stuck(node):
    flag(node, "a flag was not seen in 0.5 s")
    node.probe = node.line | {"stuck": True, "together": {"wrong": []}}


def hidden(node):
    """One GPU that others do not open."""
    pairs = [each for each in node.pairs if 7 in each]
    node.at(*pairs, without=RATES, **GONE, why="IPC refused: cudaErrorInvalidValue")


def apart(node):
    node.at(*node.pairs, without=RATES, **GONE, why="no peer access")
    node.together = {"wrong": []}


def lost(node):
    node.at((2, 4), wrong=["adds of both at the same time"])
    node.together["wrong"] = ["adds of all into rank 4"]


def failed(node):
    node.probe = {"kind": "pairs", "failed": "rank 1 in the memory of rank 0: cudaError"}


#: Subject and level of a finding, what was found, and words of its text and of its remedy.
FAULTS = [
    ("GPU atomics missing", lost, "of all into rank 4, adds of both", "transport rma"),
    (
        "GPU copies missing",
        lambda node: node.at((6, 5), wrong=["copy", "rows of 512 B"]),
        "(copy, rows of 512 B",
        "nvlink -e",
    ),
    (
        "GPU flags missing",
        lambda node: flag(node, "a flag was not seen in 0.5 s"),
        "not seen in 0.5 s: GPU 1->0",
        "fused overlap",
    ),
    (
        "GPU flags missing",
        lambda node: flag(node, "cuStreamWaitValue32_v2 failed"),
        "WaitValue32_v2 failed: GPU 1->0",
        "fused overlap",
    ),
    ("GPU flags missing", stuck, "no more pairs were tried", "fused overlap"),
    ("GPUs out of reach advice", hidden, "8 more", "--ipc=host"),
    ("GPUs out of reach advice", apart, "no peer access", "topo"),
    (
        "GPU atomics advice",
        lambda node: node.at(*node.pairs, without=["add"], atomic=False),
        "no native atomics",
        "--stationary C",
    ),
    (
        "slow GPU pairs advice",
        lambda node: node.at((3, 5), copy=48.2, add=41.0),
        "GPU 3->5",
        "topo -m",
    ),
    (
        "GPU memory advice",
        lambda node: node.gpus[2].update(free=12 * GIB),
        "GPU 2 has 12 GiB of 80 GiB free",
        "nvidia-smi",
    ),
    (
        "compute mode advice",
        lambda node: node.seen["devices"][1].update(compute_mode=3),
        "GPU 1: exclusive process",
        "-c DEFAULT",
    ),
    (
        "one GPU from all others ok",
        lambda node: node.together.update(from_all=[50.0, 340.0]),
        "50 GB/s, on a stream for each 340: use",
        "",
    ),
    ("GPU pairs missing", failed, "rank 1 in the memory of rank 0", "gpu_pairs"),
]


@pytest.mark.parametrize("what, fault, text, remedy", FAULTS)
def test_each_fault_is_a_finding_with_the_way_out(doctor, node, what, fault, text, remedy):
    fault(node)
    ended, (subject, _, level) = doctor(node, "--json"), what.rpartition(" ")
    assert ended.returncode == (3 if level == "missing" else 0)
    found = findings(ended)
    bad = [each for each in found if each["level"] not in ("ok", "unknown")]
    (only,) = bad if level != "ok" else [each for each in found if each["subject"] == subject]
    assert (only["level"], only["subject"]) == (level, subject)
    assert text in only["text"] and remedy in only["remedy"], only


def test_the_table_has_each_pair_in_its_place(doctor, node):
    node.at((3, 5), copy=48.2, add=41.0, flag_us=9.0)
    for fault in (lost, hidden):
        fault(node)
    text = doctor(node).stdout
    rates, times = (
        [line.split()[1:] for line in text.partition(title)[2].splitlines()[2:10]]
        for title in ("GB/s of copies", "us of a flag")
    )
    at = lambda rows, row, to: rows[row][to - (to > row)]  # a GPU has no cell for itself
    assert (at(rates, 3, 5), at(rates, 3, 7), at(times, 3, 5)) == ("48/41", "-", "9.0")
    assert at(rates, 2, 4).endswith("/lost") and {*rates[7]} == {"-"}


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
    real = drbench.launch.commands.doctor._probe
    words = ["sh", "-c", "echo no JSON; exit 9"], "gpu_pairs", 10
    assert real(*words) == "the self-test ended with 9, without a result"
    assert "did not end within 0.1 s" in real(["sh", "-c", "sleep 60"], "gpu_pairs", 0.1)
    node.probe = {"failed": real(*words)}
    assert doctor(node).returncode == 3
