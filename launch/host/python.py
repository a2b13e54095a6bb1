"""How to start Python for a program of ours."""

import os
import sys
from pathlib import Path

#: Without ``-P`` files of the working folder would be imported in place of modules with the same
#: names. Text is UTF-8, whatever the locale.
PYTHON = (sys.executable, "-P", "-X", "utf8")
_ROOT = Path(__file__).parents[3].resolve()


def importable(environ) -> dict[str, str]:
    """The environment in which :data:`PYTHON` imports the packages that this process has imported,
    also if it was started in a checkout that is not installed."""
    environ = dict(environ)
    if Path(sys.path[0]).resolve() == _ROOT:  # by the working folder, or by a script
        environ["PYTHONPATH"] = os.pathsep.join(
            filter(None, (str(_ROOT), environ.get("PYTHONPATH")))
        )
    return environ
