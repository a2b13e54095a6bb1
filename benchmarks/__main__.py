"""``python -m benchmarks NAME [ARGUMENTS]``, from the root of a checkout: run a benchmark; without
NAME they are listed."""

import argparse
import re
import runpy
import subprocess
import sys
import textwrap
from pathlib import Path

HERE = Path(__file__).parent
#: These run on two ranks of one thread each, and are started on them.
ON_RANKS = {"signals", "dtensor"}


def list_benchmarks() -> dict[str, str]:
    """The first sentence of each, by name."""
    sentences = {}
    for path in sorted(HERE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        parts = path.relative_to(HERE).with_suffix("").parts
        if "__name__ ==" in text and parts != ("__main__",):
            sentence = re.split(r"[.:](?=\s|\")", text.removeprefix('"""'), maxsplit=1)[0]
            sentences[".".join(parts).removesuffix(".__main__")] = " ".join(sentence.split())
    return sentences


def parser_of(summary_line: str) -> argparse.ArgumentParser:
    """A parser of a benchmark's arguments, which prints its help unformatted."""
    return argparse.ArgumentParser(
        description=summary_line, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def start(*words: str, env=None, **how) -> subprocess.CompletedProcess:
    """``python -m benchmarks WORDS`` on two ranks."""
    from drbench.launch.host.kernels import ONE_THREAD, without_pins
    from drbench.launch.host.mpi import mpiexec_command

    environ = without_pins() | ONE_THREAD | (env or {})
    python = [sys.executable, "-m", "mpi4py", "-m", "benchmarks", *words]
    return subprocess.run([*mpiexec_command(2), *python], env=environ, **how)


def main(words: list[str]) -> int:
    """Run one; the exit code."""
    known = list_benchmarks()
    if not words:
        for name, sentence in known.items():
            print(f"{name:20} {textwrap.shorten(sentence, 58, placeholder=' …')}")
        return 0
    if ".".join(words[:2]) in known:  # as in: model tables
        words = [".".join(words[:2]), *words[2:]]
    if words[0] not in known:
        print(f"no benchmark {words[0]!r}. There are {', '.join(known)}.", file=sys.stderr)
        return 2
    if words[0] in ON_RANKS:
        from drbench.launch.host.mpi import launched

        if launched() is None:
            return start(*words).returncode
    sys.argv = [f"python -m benchmarks {words[0]}", *words[1:]]
    runpy.run_module(f"benchmarks.{words[0]}", run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
