"""Fake CuPy and fake driver compared with CuPy's wheel and with cuda.h: functions, the order of
their parameters, and numbers. Neither needs a GPU or its driver."""

import ctypes
import importlib.util
import inspect
import json
import subprocess
import sys
import sysconfig
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest
from fake_cuda import GEMM_ARGUMENTS, NCCL_CALLS, STATUS, FakeCublas, FakeCupy, FakeRuntime

from drbench.device.gpu import cuda, cuda_gemm, cuda_stream, nccl, stream_values
from drbench.device.gpu.kernels import KernelLauncher, Launch
from drbench.launch.ranks import gpu_report

pytestmark = pytest.mark.wheels
INCLUDE = Path(sysconfig.get_path("purelib"), "nvidia/cuda_runtime/include")
if importlib.util.find_spec("cupy") is None or not INCLUDE.exists():
    pytest.skip("no CuPy and cuda.h: make test-torch installs them", allow_module_level=True)

#: Of libraries that CuPy loads when it is imported: CuPy calls no other function then.
LIBRARIES = {
    "libcublas.so.12": "",
    "libcublasLt.so.12": "",
    "libnccl.so.2": "int ncclGetVersion(int *found) { *found = 23200; return 0; }",
}
#: Prints [type, name, required] of each parameter of each function, and the value of each number.
ASK = """
import ctypes, inspect, json, os, re, sys
for path in sys.argv[2:]:
    ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
sys.setdlopenflags(os.RTLD_LAZY)
import cupy
from cupy.cuda import nccl, runtime
from cupy_backends.cuda.libs import cublas

def parameters(function):
    try:
        given = inspect.signature(function).parameters.values()
        found = [["", each.name, each.default is each.empty] for each in given]
    except ValueError:  # Cython describes them in the docstring
        text = " ".join(function.__doc__.partition("\\n\\n")[0].split())
        words = re.sub("[(][^()]*[)]", "", re.search("[(](.*)[)]", text)[1]).split(",")
        found = [re.fullmatch(" *(.*?)([*]|[A-Za-z_]*)(=.*)?", word).groups() for word in words]
        found = [[kind.strip(), name, not default] for kind, name, default in found]
    return [each for each in found if each[1] not in ("", "*", "self")]

answers = {}
for name in json.loads(sys.argv[1]):
    found = eval(name)
    answers[name] = parameters(found) if callable(found) else found
print(json.dumps(answers))
"""
FAKE = FakeCupy()


def functions_of(prefix, fake):
    """All functions of a class of the fake, with their names in CuPy."""
    found = {f"{prefix}.{name}": each for name, each in vars(fake).items() if name[0] != "_"}
    return {name: each for name, each in found.items() if inspect.isfunction(each)}


#: Functions of CuPy, with the fake of each, or the names of its parameters.
FUNCTIONS = {
    **functions_of("runtime", FakeRuntime),
    **functions_of("cublas", FakeCublas),
    **functions_of("cupy.cuda.Stream", FAKE.cuda.Stream),
    **{
        f"cupy.{name}": attrgetter(name)(FAKE)
        for name in "empty asarray from_dlpack cuda.Stream cuda.Event cuda.Event.synchronize "
        "cuda.UnownedMemory cuda.MemoryPointer cuda.PinnedMemory cuda.PinnedMemoryPointer".split()
    },
    "cupy.RawModule": FAKE.module,
    "cupy.RawModule.get_function": FAKE.module.get_function,
    "cupy.cuda.Graph.launch": ["stream"],
    "cupy.cuda.Graph.upload": ["stream"],
    **{f"nccl.NcclCommunicator.{name}": words.split() for name, words in NCCL_CALLS.items()},
    "nccl.NcclCommunicator": ["size", "name", "rank"],
    "nccl.NcclCommunicator.destroy": [],
    **dict.fromkeys(
        (f"nccl.{x}" for x in "groupStart groupEnd get_unique_id get_version".split()), []
    ),
}
del FUNCTIONS["cublas.cublasGemmEx"]  # of the library; its parameters are those of CuPy's gemmEx
#: Names of CuPy's parameters that have another name in the fake.
NAMES = {
    "target": "dst recvbuf recvbuff ptr",
    "source": "src sendbuf sendbuff",
    "target_stride": "dpitch",
    "source_stride": "spitch",
    "address": "ptr devPtr",
    "attribute": "attrib",
    "index": "device",
    "name": "pci_bus_id commId",
    "peer": "peerDevice",
    "earlier": "start",
    "later": "end",
    "kind": "datatype",
    "count": "recvcount",
    "operation": "op",
    "size": "ndev",
    "memory": "mem",
    "block": "mem",
    "array": "a",
}
#: Numbers of CuPy: those of drbench.
NUMBERS = {
    "runtime.memcpyDefault": cuda._MEMCPY_DEFAULT,
    "runtime.cudaDevAttrComputeMode": gpu_report._COMPUTE_MODE,
    "runtime.hostAllocPortable | runtime.hostAllocMapped": cuda._PORTABLE_AND_MAPPED,
    "runtime.CUDA_R_32F": cuda_gemm._DATA_TYPES["float32"],
    "runtime.CUDA_R_64F": cuda_gemm._DATA_TYPES["float64"],
    "runtime.CUDA_R_16BF": cuda_gemm._DATA_TYPES["bfloat16"],
    "cublas.CUBLAS_COMPUTE_32F": cuda_gemm._COMPUTE_TYPES["bfloat16", "float32"][0],
    "cublas.CUBLAS_COMPUTE_64F": cuda_gemm._COMPUTE_TYPES["float64", "float64"][0],
    "cublas.CUBLAS_COMPUTE_32F_FAST_TF32": cuda_gemm._TF32,
    "cublas.CUBLAS_GEMM_DEFAULT": cuda_gemm._DEFAULT_ALGORITHM,
    "cublas.CUBLAS_OP_N": cuda_gemm._NO_TRANS,
    "cublas.CUBLAS_OP_T": cuda_gemm._TRANS,
    "nccl.NCCL_FLOAT32": nccl._DATA_TYPES["float32"],
    "nccl.NCCL_FLOAT64": nccl._DATA_TYPES["float64"],
    "nccl.NCCL_BFLOAT16": nccl._DATA_TYPES["bfloat16"],
    "nccl.NCCL_SUM": nccl._SUM,
}
#: Errors of CUDA and cuBLAS.
ERRORS = {
    **STATUS,
    cuda._ERROR_OUT_OF_MEMORY: "cudaErrorMemoryAllocation",
    cuda._ERROR_INSUFFICIENT_DRIVER: "cudaErrorInsufficientDriver",
    cuda_stream._ERROR_NOT_READY: "cudaErrorNotReady",
}
TEXTS = {f"str(runtime.CUDARuntimeError({number}))": name for number, name in ERRORS.items()}
TEXTS[f"str(cublas.CUBLASError({cuda_gemm._ALLOC_FAILED}))"] = "CUBLAS_STATUS_ALLOC_FAILED"


@pytest.fixture(scope="module")
def cupy(tmp_path_factory):
    """Of CuPy's wheel: parameters of functions, numbers, and texts of errors."""
    folder = tmp_path_factory.mktemp("libraries")
    for name, text in LIBRARIES.items():
        (folder / "versions").write_text(f"{name} {{ global: *; }};" if "cublas" in name else "")
        script = [f"-Wl,--version-script,{folder}/versions"] if "cublas" in name else []
        subprocess.run(
            ["g++", "-x", "c", "-shared", "-fPIC", f"-Wl,-soname,{name}", *script]
            + ["-o", folder / name, "-"],
            input=text,
            text=True,
            check=True,
            timeout=300,
        )
    names = [*FUNCTIONS, "cublas.gemmEx", *NUMBERS, *TEXTS, "nccl.available"]
    command = [sys.executable, "-c", ASK, json.dumps(names), *(folder / x for x in LIBRARIES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_cupy_has_each_function_of_the_fake_with_these_parameters_in_this_order(cupy, function):
    """Positional ones first, in CuPy's order; keywords by CuPy's names; no required one missing."""
    real, fake, keywords = cupy[function], FUNCTIONS[function], set()
    if callable(fake):
        given = inspect.signature(fake).parameters
        keywords = {name for name, each in given.items() if each.kind is each.KEYWORD_ONLY}
        fake = [name for name in given if name != "self" and name not in keywords]
    assert keywords <= {name for _, name, _ in real}
    assert not {name for _, name, required in real[len(fake) :] if required} - keywords
    assert len(fake) <= len(real)
    for mine, (_, name, _) in zip(fake, real):
        assert name == mine or name in NAMES.get(mine, "").split()


@pytest.mark.parametrize("number", NUMBERS)
def test_each_number_is_that_of_cuda_cublas_and_nccl(cupy, number):
    assert cupy[number] == NUMBERS[number]


def test_each_error_has_its_name_and_nccl_is_found(cupy):
    assert {text: cupy[text].partition(":")[0] for text in TEXTS} == TEXTS
    assert cupy["nccl.available"] is True


def test_arguments_of_cublas_gemm_ex_have_the_types_and_the_order_of_cupy(cupy):
    """CuPy passes its arguments to ``cublasGemmEx`` in the order of that function."""
    pointers = {"intptr_t": "*", "size_t": "*", "int": ""}
    real = cupy["cublas.gemmEx"]
    assert [f"{name}{pointers[kind]}" for kind, name, _ in real] == GEMM_ARGUMENTS.split()


class Recorder:
    """A driver that notes the bytes of each argument."""

    def __init__(self):
        self.sizes = {}

    def __getattr__(self, name):
        def called(*words):
            self.sizes[name] = [*map(bytes_of, words)]
            return 0

        return called


def bytes_of(word) -> int:
    """Bytes of an argument of a function that is called by ctypes; arrays are pointers."""
    if isinstance(word, int):
        return ctypes.sizeof(ctypes.c_int)
    return ctypes.sizeof(word if isinstance(word, ctypes._SimpleCData) else ctypes.c_void_p)


HEADER = """
#include <cuda.h>
#include <cstdio>
template <class R, class... A> void show(const char *name, R (*)(A...)) {
    std::printf("%s", name);
    (std::printf(" %d", int(sizeof(A))), ...);
    std::printf("\\n");
}
#define TEXT(x) #x
#define NAME(x) TEXT(x)
#define FUNCTION(f) show(NAME(f), (decltype(&f))nullptr)
#define NUMBER(x) std::printf(#x " %d\\n", int(x))
int main() {
    FUNCTION(cuLaunchKernel);
    FUNCTION(cuDeviceGetAttribute);
    FUNCTION(cuStreamWriteValue32);
    FUNCTION(cuStreamWaitValue32);
    NUMBER(CU_STREAM_WAIT_VALUE_GEQ);
    NUMBER(CU_STREAM_WAIT_VALUE_FLUSH);
    NUMBER(CU_STREAM_WRITE_VALUE_DEFAULT);
    NUMBER(CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES);
}
"""


def test_functions_of_the_driver_have_the_names_and_arguments_of_its_header(tmp_path):
    """Today's ``cuStreamWaitValue32`` is the one with ``_v2``."""
    (tmp_path / "header.cpp").write_text(HEADER)
    command = ["g++", "-std=c++17", "-I", INCLUDE, tmp_path / "header.cpp", "-o", tmp_path / "a"]
    subprocess.run(command, check=True, timeout=300)
    lines = subprocess.run([tmp_path / "a"], capture_output=True, text=True, check=True)
    real = {name: [*map(int, rest)] for name, *rest in map(str.split, lines.stdout.splitlines())}
    driver = Recorder()
    values = stream_values.StreamValues(driver, 0)
    values.write(64, 1, 5)
    values.wait(64, 1, 5)
    launch = Launch("zero_b4", (1, 1, 1), (32, 1, 1), (np.int64(64), np.int64(4)))
    KernelLauncher(driver, {"zero_b4": 7}).ready(launch)(5)
    assert driver.sizes == {name: sizes for name, sizes in real.items() if name in driver.sizes}
    assert len(driver.sizes) == 4 and values.why_not is None
    numbers = {name: rest[0] for name, rest in real.items() if name not in driver.sizes}
    assert numbers == {
        "CU_STREAM_WAIT_VALUE_GEQ": stream_values._WAIT_CYCLIC,
        "CU_STREAM_WAIT_VALUE_FLUSH": stream_values._FLUSH,
        "CU_STREAM_WRITE_VALUE_DEFAULT": 0,
        "CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES": stream_values._CAN_FLUSH_REMOTE_WRITES,
    }
