"""How many files a reader walks through from ``drbench run`` to the first product on one rank.

Counts the distinct files of the repository in which a function is entered on the rank, in the order
in which they are met, until the first call of BLAS. Functions alone count: importing a module is
not a step of the walk.

    python benchmarks/walk.py [--checkout DIR] [--functions]
"""

import argparse
import os
import sys
from pathlib import Path

COMMAND = "run -m 64 -n 64 -k 64 --preset column --stationary C --iters 1 --no-roof".split()


class Found(BaseException):
    """The first product is about to run."""


def walk(root: Path, arguments=COMMAND) -> dict[str, list[str]]:
    """File below ``root`` -> the functions entered in it, both in the order of the walk."""
    sys.path.insert(0, str(root))
    files: dict[str, list[str]] = {}

    def enter(frame, event, _):
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(f"{root}{os.sep}"):
            return
        if code.co_name.startswith("<") or not code.co_flags & 0x2:  # no function, or a class body
            return
        caller = frame.f_back
        while caller is not None and caller.f_code.co_name != "<module>":
            caller = caller.f_back
        if caller is not None and caller.f_globals.get("__name__") != "__main__":
            return  # a decorator or a table, while a module is imported
        path = Path(code.co_filename).relative_to(root).as_posix()
        if path.startswith("benchmarks/"):
            return
        names = files.setdefault(path, [])
        if code.co_name not in names:
            names.append(code.co_name)
        if path.endswith("/blas.py") and code.co_name == "gemm":
            sys.setprofile(None)
            raise Found

    from drbench.__main__ import main

    sys.argv = ["drbench", *arguments]
    sys.setprofile(enter)
    try:
        main()
    except Found:
        pass
    finally:
        sys.setprofile(None)
    return files


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkout", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--functions", action="store_true", help="name the functions too")
    given = parser.parse_args()
    found = walk(given.checkout.resolve())
    for path, names in found.items():
        print(path, *(["  " + ", ".join(names)] if given.functions else []))
    print(f"{len(found)} files, {sum(map(len, found.values()))} functions")
    sys.stdout.flush()
    os._exit(0)  # the run was cut off in its middle: nothing of it is to be put in order
