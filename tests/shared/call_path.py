"""The files and functions on the call path of one GEMM, from ``drbench run`` to BLAS, in the order
in which a rank enters them, a line a file. Importing a module is not a step of the path."""

import os
import sys
from pathlib import Path

from launch.host.files import ROOT

#: One rank, which is this process: it has all cores, so that ``drbench run`` starts no other.
COMMAND = (
    "run -m 64 -n 64 -k 64 --preset column --stationary C --iters 1 -o gemm_only=false".split()
    + ["--threads", str(len(os.sched_getaffinity(0)))]
)
#: Variables that make ``drbench run`` restart in a process that is not watched.
PINS = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
#: The functions of ``drbench/host/blas.py`` that call BLAS: that of a GEMM whose arrays were
#: prepared, and NumPy's.
CALLS = ("call_gemm", "_by_numpy")


class Found(BaseException):
    """The first GEMM is about to run."""


def walk() -> dict[str, list[str]]:
    """Map each file of the repository to the functions entered in it, both in the order of the call
    path.

    Raises
    ------
    RuntimeError
        If the command ends without a GEMM.
    """
    for name in PINS:
        os.environ.pop(name, None)
    files: dict[str, list[str]] = {}

    def enter(frame, event, _):
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(f"{ROOT}{os.sep}"):
            return
        if code.co_name.startswith("<") or not code.co_flags & 0x2:  # no function, or a class body
            return
        caller = frame.f_back
        while caller is not None and caller.f_code.co_name != "<module>":
            caller = caller.f_back
        if caller is not None and caller.f_globals.get("__name__") != "__main__":
            return  # a decorator or a table, while a module is imported
        path = Path(code.co_filename).relative_to(ROOT).as_posix()
        if path.startswith("tests/") or "site-packages" in path:
            return
        names = files.setdefault(path, [])
        if code.co_name not in names:
            names.append(code.co_name)
        if path.endswith("host/blas.py") and code.co_name in CALLS:
            sys.setprofile(None)
            raise Found

    from drbench.__main__ import main

    sys.argv = ["drbench", *COMMAND]
    sys.setprofile(enter)
    try:
        main()
    except Found:
        return files
    finally:
        sys.setprofile(None)
    raise RuntimeError(f"{' '.join(COMMAND)}: BLAS was never called")


if __name__ == "__main__":
    found = walk()
    for path, names in found.items():
        print(f"{path}  {', '.join(names)}")
    sys.stdout.flush()
    os._exit(0)  # the run ends here, without cleanup
