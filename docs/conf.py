"""How Sphinx builds the site: ``make site``. The source folder is the root of the checkout, so that
README, ARTIFACT and CONTRIBUTING are pages of the site and links between pages work on both."""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from drbench import __version__  # noqa: E402
from plots.committed import committed, explain  # noqa: E402
from plots.report.explained import explained_page  # noqa: E402

project = "drbench"
author = "drbench developers"
copyright = author
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_click"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**"]
exclude_patterns = ["build", "docs/images"]
myst_heading_anchors = 4
autodoc_mock_imports = ["torch"]
autodoc_typehints = "description"
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"drbench {release}"
html_copy_source = False
html_show_sphinx = False
html_show_search_summary = False  # it would load pages, which file: does not allow
smartquotes = False  # of --option
highlight_language = "text"
html_additional_pages = {"index": "redirect.html"}
templates_path = ["templates"]


def show_examples_as_code(app, context, lines):
    """Make blocks of code of the lines that help texts keep as they are (after ``\\b``)."""
    before = ""
    for at, line in enumerate(list(lines)):
        if line.startswith("| "):
            lines[at] = ("" if before.startswith("| ") else "::\n\n") + "    " + line[2:]
        before = line
    lines[:] = "\n".join(lines).split("\n")


def write_explain_page(app, error):
    """Add the page of ``drbench explain`` that docs/explain-demo.md shows, of the two runs of the
    figure in README."""
    if error is None and app.builder.format == "html":
        (options,) = next(each.explain for each in committed() if each.figure == "layouts")
        with TemporaryDirectory() as folder:
            explain(options, Path(folder, "runs.json"))
            cases = json.loads(Path(folder, "runs.json").read_text("utf-8"))["cases"]
        page = explained_page(cases, release, f"drbench explain {options} --save page.html")
        (Path(app.outdir) / "docs" / "explain.html").write_text(page, encoding="utf-8")


def setup(app):
    """Called by Sphinx."""
    app.connect("build-finished", write_explain_page)
    app.connect("sphinx-click-process-description", show_examples_as_code)
