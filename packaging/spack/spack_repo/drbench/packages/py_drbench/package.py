"""The Spack recipe of drbench. In a checkout of drbench, with Spack 1.0 or newer::

    spack repo add packaging/spack/spack_repo/drbench
    spack dev-build py-drbench@0.2.0 ^mpich

A Cray or another MPI of the cluster is an external of Spack: ``^cray-mpich``, ``^openmpi@5:``.
"""

from spack.package import *
from spack_repo.builtin.build_systems.python import PythonPackage


class PyDrbench(PythonPackage):
    """Runs, predicts and explains distributed dense matrix multiplication for any partitioning."""

    # drbench.torch, drbench.device.gpu and some libraries that drbench compares with need more
    import_modules = ["drbench", "drbench.library", "drbench.launch.predictions"]

    license("BSD-3-Clause", checked_by="drbench developers")

    version("0.2.0")  # from the checkout: there is no archive to download

    variant("cuda", default=False, description="Multiply on NVIDIA GPUs (set cuda_arch of py-cupy)")

    depends_on("py-setuptools@77:", type="build")

    with default_args(type=("build", "run")):
        depends_on("python@3.11:")
        depends_on("py-click@8.1:")
        depends_on("py-jinja2@3.1:")
        depends_on("py-matplotlib@3.8:")
        depends_on("py-mpi4py@4.0:")
        depends_on("py-numpy@1.26:")
        depends_on("py-pandas@3.0:")
        depends_on("py-psutil@5.9:")
        depends_on("py-rich@13:")
        depends_on("py-threadpoolctl@3.5:")
        depends_on("py-tomlkit@0.13:")

    depends_on("mpi", type="run")  # mpiexec
    with when("+cuda"):
        depends_on("py-cupy@14: +cuda", type="run")
        depends_on("py-ml-dtypes@0.4:", type="run")

    def test_run(self):
        """multiply on two ranks, and verify the result"""
        drbench = which("drbench", path=self.prefix.bin, required=True)
        drbench("run", "-p", "2", "-m", "64", "-n", "64", "-k", "64")
