"""The version of drbench, and its commit: that of a checkout, or of the one from which its wheel or
its archive was made.

``setup.py`` runs this file alone, so it imports nothing of drbench.
"""

import functools
import json
import re
import subprocess
from pathlib import Path

#: The release that this source is, or becomes.
RELEASE = "0.2.0"
#: What git writes here in an archive, such as those that hosts of repositories offer.
ARCHIVED = "$Format:%H %(describe:tags,match=v[0-9]*)$"
#: ``setup.py`` writes it into wheels and source distributions.
BUILT = Path(__file__).with_name("version.json")


def name_version(described: str, changed: bool = False) -> dict:
    """The version, the commit, and whether files differ from it, of a commit and the last tag
    before it, as git's format in ``ARCHIVED`` describes them. A tag names its own commit; others
    are on the way to ``RELEASE``.

    Examples
    --------
    >>> commit = "0123456789" * 4
    >>> for tag in ("v0.1.0", "v0.1.0-12-g0123456", ""):
    ...     print(name_version(f"{commit} {tag}")["version"])
    0.1.0
    0.2.0.dev12+g01234567
    0.2.0.dev0+g01234567
    """
    parts = re.match(r"([0-9a-f]{40,})(?: v(\S+?)(?:-(\d+)-g[0-9a-f]+)?$)?", described.strip())
    commit, tag, later = parts.groups() if parts else (None, None, None)
    version = f"{RELEASE}.dev{later or 0}" + (f"+g{commit[:8]}" if commit else "")
    if tag and not (later or changed):
        version = tag
    return {"version": version, "commit": commit, "dirty": changed}


@functools.cache
def read_version(root: Path = BUILT.parents[1]) -> dict:
    """The :func:`name_version` of a checkout, whose files other than records and pages, which
    programs write, count as changes; without a checkout or git that of the build or archive, as
    far as it is known."""
    git = ["git", "-C", str(root)]
    changes = "status --porcelain --untracked-files=no -- . :!results :!docs"
    # describe fails without a tag
    asked = [("rev-parse HEAD", True), ("describe --tags --match v[0-9]*", False), (changes, True)]
    pipes = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    try:
        if not (root / ".git").exists():
            return json.loads(BUILT.read_text(encoding="utf-8"))
        commit, tag, changed = (
            subprocess.run([*git, *words.split()], timeout=20, check=must, **pipes).stdout
            for words, must in asked
        )
        described = f"{commit.strip()} {tag}"
    except (OSError, subprocess.SubprocessError):
        described, changed = ARCHIVED, ""
    return name_version(described, bool(changed))
