"""The CUDA device on host memory: CuPy is a fake, the kernels are compiled with g++, once for all
tests."""

import shutil

import pytest
from fake_cuda import FakeCupy, Library, compile_kernels

from drbench.device.gpu.cuda import CudaDevice


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """Every kernel as a function of the host."""
    if not shutil.which("g++"):
        pytest.skip("no g++ to compile the kernels for the host")
    return Library(compile_kernels(tmp_path_factory.mktemp("kernels")))


@pytest.fixture
def cupy(library):
    """A fake CuPy with two devices."""
    return FakeCupy(library, devices=2)


@pytest.fixture
def new_device(cupy):
    """``new_device(index, ...)``: a CudaDevice over the fake."""
    return lambda index=1, **options: CudaDevice(cupy.modules(), index, **options)


@pytest.fixture
def device(new_device):
    return new_device()
