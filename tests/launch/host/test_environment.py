"""What is kept of an environment can be shown to anybody."""

import json

import pytest

from launch.host.environment import describe, told, told_words, without_paths

FACTS = {"host": "h", "cpu": "", "cores_of_host": 1, "memory_bytes": 1, "cores": "0"}


@pytest.mark.parametrize(
    "word, kept",
    [
        ("HF_TOKEN=hf_abcdefgh", "HF_TOKEN=…"),
        ("AWS_ACCESS_KEY_ID=AKIA", "AWS_ACCESS_KEY_ID=…"),
        ("ANYTHING=else", "ANYTHING=…"),
        ("UCX_TLS=sm,self", "UCX_TLS=sm,self"),
        ("UCX_PSK=abc", "UCX_PSK=…"),
        ("--auth=abc", "--auth=…"),
        ("--wdir=/home/me/my secret project/run", "--wdir=…/run"),
        ("/home/me/a b/hosts", "…/hosts"),
        ("-I/home/me/include", "-I…/include"),
        ("-L/home/me/lib", "-L…/lib"),
        ("~/hosts", "…/hosts"),
        ("hf_aB3dE9fGhIjK", "…"),
        ("AKIAIOSFODNN7EXAMPLE99", "…"),
        ("https://me:pass@host/x", "…"),
        ("--ntasks=4", "--ntasks=4"),
        ("--mpi=pmi2", "--mpi=pmi2"),
        ("--map-by", "--map-by"),
        ("core", "core"),
        ("^ucx", "^ucx"),
        ("--time=08:00:00", "--time=08:00:00"),
        ("-n", "-n"),
        ("4", "4"),
        ("x" * 100, "…"),
    ],
)
def test_a_word_of_a_launcher_is_kept_only_if_it_certainly_tells_nothing(word, kept):
    assert told_words(["mpirun", word]) == ["mpirun", kept]


def test_what_follows_a_word_that_says_so_is_hidden():
    words = ["mpirun", "-x", "HF_TOKEN=a", "--password", "hunter", "-n", "4"]
    assert told_words(words) == ["mpirun", "-x", "HF_TOKEN=…", "--password", "…", "-n", "4"]


@pytest.mark.parametrize("name", ["FI_CREDS", "UCX_PSK", "MPICH_PW", "NCCL_API_KEY", "FI_AUTH_KEY"])
def test_variables_that_hold_secrets_are_left_out(name):
    found = describe([FACTS | {"mpi": {}, "blas": {}}], ["mpiexec"], {name: "hidden"})
    assert name not in found["variables"] and "hidden" not in json.dumps(found)


def test_values_of_variables_are_kept_only_if_they_tell_nothing():
    environ = {
        "UCX_TLS": "sm,self",
        "OMP_NUM_THREADS": "4",
        "NCCL_DEBUG_FILE": "/home/me/a b/log",
        "FI_PROVIDER": "cxi",
        "UCX_NET_DEVICES": "mlx5_0:1",
        "OMPI_MCA_osc": "^ucx",
        "MPIR_CVAR_X": "aG9zdDoxMjM0NTY3ODkw",
    }
    found = describe([FACTS | {"mpi": {}, "blas": {}}], ["mpiexec"], environ)["variables"]
    assert found == environ | {"NCCL_DEBUG_FILE": "…/log", "MPIR_CVAR_X": "…"}


def test_paths_with_blanks_lose_all_but_their_last_part():
    assert without_paths("/home/me/My Documents/out") == "…/out"
    assert told("/home/me/x y/log") == "…/log"
