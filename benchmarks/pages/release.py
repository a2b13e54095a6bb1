"""The address of the repository, which pyproject.toml has, and the release, in pages."""

import re
import tomllib

from .records import ROOT

ADDRESS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"][
    "Repository"
]


def compare_links() -> str:
    """The changes from one release of the changelog to the next, as targets of its headings."""
    releases = re.findall(r"^## \[(.+)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
    pairs = zip(releases, releases[1:])
    return "".join(f"[{new}]: {ADDRESS}/compare/v{old}...v{new}\n" for new, old in pairs)


def bibtex() -> str:
    """An entry of BibTeX for drbench, of CITATION.cff."""
    fields = dict(re.findall(r"^([\w-]+): (.+)", (ROOT / "CITATION.cff").read_text("utf-8"), re.M))
    return f"""```bibtex
@software{{drbench,
  author = {{{{drbench developers}}}},
  title = {{drbench: {fields["abstract"].rstrip(".")}}},
  version = {{{fields["version"]}}},
  year = {{{fields["date-released"][:4]}}},
  url = {{{ADDRESS}}}
}}
```
"""
