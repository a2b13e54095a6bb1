"""``python -m drbench`` and the console script ``drbench``: a shim into
:mod:`drbench.launch.commands.cli`."""

import signal
import sys
from pathlib import Path

_INTERRUPTED = 130


def main() -> None:
    """Run the command line. One Ctrl-C ends it, also before the command line is imported; further
    ones are ignored."""
    try:
        from drbench.launch.commands.cli import main as run

        code = run()
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


if __name__ == "__main__":
    if not (
        sys.flags.safe_path or Path(__file__).resolve().parents[1].samefile(sys.path[0] or ".")
    ):
        del sys.path[0]  # the working folder of ``python -m``, whose files are not to be imported
    main()
