"""The stored part of an environment contains no secrets."""

import json

import pytest

from drbench.launch.host.environment import describe, without_paths

FACTS = {"host": "h", "cpu": "", "cores_of_host": 1, "memory_bytes": 1, "cores": "0"}
FACTS |= {"settings": {"governor": "powersave"}}


def test_only_variables_of_the_list_are_kept_and_of_the_launcher_its_name():
    kept = "UCX_TLS=sm,self OMP_NUM_THREADS=4 FI_PROVIDER=cxi UCX_NET_DEVICES=mlx5_0:1 "
    kept += "OMPI_MCA_osc=^ucx"
    others = "HF_TOKEN AWS_SECRET_ACCESS_KEY HOME USER MY_UCX_TLS NCCL_API_KEY".split()
    kept = dict(word.split("=") for word in kept.split())
    environ = kept | dict.fromkeys(others, "hidden") | {"NCCL_DEBUG_FILE": "/home/me/a b/log"}
    launcher = "/opt/hidden/mpirun -x HF_TOKEN=hidden --password hidden -n 4".split()
    found = describe([FACTS | {"mpi": {}, "blas": {}}], launcher, environ)
    assert found["variables"] == kept | {"NCCL_DEBUG_FILE": "…/log"}
    assert found["launcher"] == ["mpirun"] and "hidden" not in json.dumps(found)


PATHS = """--wdir=/home/me/my secret project/run | --wdir=…/run
/home/me/a b/hosts | …/hosts
-I/home/me/include | -I…/include
~/hosts | …/hosts
/home/me/My Documents/out | …/out
runs/mlp1 | runs/mlp1
1/8 | 1/8
S(0),R@2x3 | S(0),R@2x3"""


@pytest.mark.parametrize("line", PATHS.splitlines())
def test_only_the_last_part_of_a_path_is_kept(line):
    word, kept = line.split(" | ")
    assert without_paths(word) == kept
