"""``python -m benchmarks NAME [ARGUMENTS]``, from the root of a checkout: run a benchmark; without
NAME they are listed."""

import runpy
import sys
from pathlib import Path

HERE = Path(__file__).parent
#: These run on so many ranks of one thread each, and are started on them.
ON_RANKS = {"signals": 2, "small": 2, "sockets": 2, "dtensor": 2, "library": 2}


def list_benchmarks() -> dict[str, str]:
    """What each is, its first line, by name."""
    found = {}
    for path in sorted(HERE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        parts = path.relative_to(HERE).with_suffix("").parts
        if "__name__ ==" in text and parts != ("__main__",):
            name = ".".join(parts).removesuffix(".__main__")
            found[name] = text.removeprefix('"""').partition("\n")[0].rstrip('."')
    return found


def main(words: list[str]) -> int:
    """Run one; the exit code."""
    known = list_benchmarks()
    if not words or words[0] not in known:
        print(__doc__, *(f"{name:24} {what}" for name, what in known.items()), sep="\n")
        return 2 if words else 0
    if words[0] in ON_RANKS:
        from launch.host.mpi import launched

        if launched() is None:
            from benchmarks.ranks import start

            return start(ON_RANKS[words[0]], *words).returncode
    sys.argv = [f"python -m benchmarks {words[0]}", *words[1:]]
    runpy.run_module(f"benchmarks.{words[0]}", run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
