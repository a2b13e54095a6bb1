"""The version of drbench, and its commit: that of a checkout, or of the one from which its wheel
was built.

``setup.py`` runs this file alone, so it imports nothing of drbench.
"""

import functools
import json
import subprocess
from pathlib import Path

__version__ = "0.2.0.dev0"
#: ``setup.py`` writes it into wheels and source distributions.
BUILT = Path(__file__).with_name("commit.json")


@functools.cache
def git_state(root: Path = BUILT.parents[1]) -> dict:
    """The commit of a checkout, and whether files other than records and pages, which programs
    write, differ from it; without a checkout or git that of the build, if it is known."""
    git = ["git", "-C", str(root)]
    changes = "status --porcelain --untracked-files=no -- . :!results :!docs".split()
    pipes = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    try:
        if not (root / ".git").exists():
            return json.loads(BUILT.read_text(encoding="utf-8"))
        commit, changed = (
            subprocess.run([*git, *args], timeout=20, check=True, **pipes).stdout.strip()
            for args in (["rev-parse", "HEAD"], changes)
        )
    except (OSError, subprocess.SubprocessError):
        return {"commit": None}
    return {"commit": commit, "dirty": bool(changed)}
