"""Fake GPUs in every Python process of a test (:func:`fake_cuda.shared_cupy`). Copied as
``sitecustomize.py`` to a folder on the path of processes, so that plain ``drbench`` and its ranks
find them.

``DRBENCH_TEST_GPUS``: the number of GPUs, the library of their kernels, and options of the fake in
JSON. Calibration measures small matrices and transfers.
"""

import json
import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from fake_cuda import shared_cupy

_SIZES = [1 << 12, 1 << 17, 1 << 22]
_gpus, _library, _how = os.environ["DRBENCH_TEST_GPUS"].split(" ", 2)
_context = shared_cupy(_library, devices=int(_gpus), **json.loads(_how))
_context.__enter__()  # kept: its end removes the GPUs
sys.modules["cupy"] = cupy = ModuleType("cupy")
cupy.__spec__ = ModuleSpec("cupy", None)  # it is installed


class _Smaller:
    """Changes a module when it is loaded."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in [
            f"drbench.launch.calibration.{each}" for each in ("devices", "programs", "speed")
        ]:
            return None
        spec = PathFinder.find_spec(name, path)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            if name.endswith("speed"):
                module._TIMES = 1
                return
            if name.endswith("programs"):
                whole = module.MEASURED["programs"]["cases"]
                whole[:] = [([m // 8, n // 8, k // 8], *rest) for (m, n, k), *rest in whole[::3]]
                return
            module._SHAPES = [tuple(each // 16 for each in shape) for shape in module._SHAPES]
            module._SIZES, module._REPEATS = _SIZES, 2

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, _Smaller)
