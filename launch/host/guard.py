"""``python guard.py TOKEN SINCE``: ends the processes that a killed process has started.

Its standard input closes when that process ends for any reason; a byte before means that nothing is
left to do. The kernel signals the launcher, which may signal ranks on other hosts: processes that
still run a little later are killed, and their leftovers removed. If the launcher kills ranks first,
their files of shared memory are unknown: unused ones written since SINCE (s since the epoch) are
removed too.
"""

import os
import signal
import sys

#: Seconds that processes have to end after the signal.
_PATIENCE_S = 2.0


def main(token: str, since: str) -> None:
    """Wait, and clean up if needed."""
    root = os.path.abspath(__file__).rsplit(os.sep, 4)[0]
    os.chdir("/")  # keeps no folder in use
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if os.read(0, 1):
        return
    sys.path.insert(0, root)
    from drbench.launch.host.leftovers import end_family, remove_files

    remove_files(end_family(token, _PATIENCE_S), float(since))


if __name__ == "__main__":
    main(*sys.argv[1:])
