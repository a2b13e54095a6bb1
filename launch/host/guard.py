"""``python guard.py TOKEN SINCE``: ends what a process started that has itself been killed.

Its standard input ends when that process ends, however that comes; a byte before says that nothing
is left to do. The launcher has been told by the kernel then, and may tell ranks on other hosts:
what is still there a little later is killed, and what it leaves is removed. Ranks that the launcher
killed first are not seen to hold a file of shared memory: those written since then (s since the
epoch) that nobody holds are removed too.
"""

import os
import signal
import sys

#: How long what was told to end may take.
_PATIENCE_S = 2.0


def main(token: str, since: str) -> None:
    """Wait, and clear up if need be."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    os.chdir("/")  # holds no folder
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if os.read(0, 1):
        return
    sys.path.insert(0, root)
    from launch.host.leftovers import end_family, remove_files

    remove_files(end_family(token, _PATIENCE_S), float(since))


if __name__ == "__main__":
    main(*sys.argv[1:])
