"""``python -m drbench`` and the console script ``drbench``: a shim into
:mod:`launch.commands.cli`."""

import importlib.util
import os
import signal
import sys
from pathlib import Path

_PACKAGES = ("partitions", "drbench", "algorithms", "launch", "plots")
_INTERRUPTED = 130


def checkouts() -> dict[str, Path | None]:
    """The folder that each of the packages would be imported from."""
    specs = {name: importlib.util.find_spec(name) for name in _PACKAGES}
    return {
        name: Path(spec.origin).resolve().parent.parent if spec and spec.origin else None
        for name, spec in specs.items()
    }


def main() -> None:
    """Run the command line. One Ctrl-C ends it, also before the command line is imported; further
    ones are ignored."""
    try:
        code = _run()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.stderr.write("drbench: interrupted\n")
        code = _INTERRUPTED
    if code == _INTERRUPTED:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Python dies by SIGINT in the end if Ctrl-C came in a text that it executed (a NamedTuple being
    # made), even where a command has handled it; the next such text makes it forget that.
    exec("")
    sys.exit(code)


def _run() -> int:
    """Refuse if the packages come from different checkouts."""
    places = checkouts()
    if len(set(places.values())) != 1:
        if any(
            os.environ.get(name, "0") != "0"
            for name in ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
        ):
            return 3  # rank 0 reports it
        where = ", ".join(f"{name} from {place or 'nowhere'}" for name, place in places.items())
        sys.stderr.write(
            f"drbench: its packages come from different places: {where}. Install one checkout, "
            "or leave PYTHONPATH alone.\n"
        )
        return 3
    from launch.commands.cli import main as run

    return run()


if __name__ == "__main__":
    if not (
        sys.flags.safe_path or Path(__file__).resolve().parents[1].samefile(sys.path[0] or ".")
    ):
        del sys.path[0]  # the working folder of ``python -m``, whose files are not to be imported
    main()
