"""How Sphinx builds the site: ``make site``. The source folder is the root of the checkout, so that
README is the home page, and links between pages work on both the site and GitHub."""

import html
import json
import re
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.figures import committed, explain  # noqa: E402
from drbench import __version__  # noqa: E402
from drbench.launch.cases.case import FIELDS  # noqa: E402
from drbench.plots.report.explained import explained_page  # noqa: E402

project = "drbench"
author = "drbench developers"
copyright = author
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_click",
    "sphinx_copybutton",
]
root_doc = "README"
include_patterns = ["*.md", "docs/**"]
exclude_patterns = ["build", "docs/images"]
myst_heading_anchors = 4
myst_disable_syntax = ["myst_line_comment"]  # a line of a paragraph may begin with %
autodoc_mock_imports = ["torch"]
autodoc_typehints = "none"  # the descriptions have the types
autodoc_member_order = "bysource"
autosummary_generate = False
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
copybutton_prompt_text = r"\$ |>>> |\.\.\. "  # what follows them is copied, not the output
copybutton_prompt_is_regexp = True
copybutton_line_continuation_character = "\\"
copybutton_selector = ", ".join(
    f"div.highlight-{language} pre" for language in ("console", "sh", "python", "toml")
)

html_theme = "furo"
html_title = f"drbench {release}"
html_favicon = "_static/favicon.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_search_scorer = str(ROOT / "docs/search.js")
smartquotes = False  # of --option
highlight_language = "text"

#: The navigation: captions, and their pages in the order in which readers need them.
SECTIONS = {
    "Begin": [
        "/docs/tutorials/first-multiplication",
        "/docs/tutorials/predict-and-choose",
        "/docs/tutorials/sweep-and-report",
    ],
    "Do": [
        "Install </docs/how-to/install-and-clusters>",
        "Choose a layout </docs/how-to/choose-a-layout>",
        "Shard a transformer layer </docs/how-to/layer-chains>",
        "Run sweeps </docs/how-to/run-sweeps>",
        "Use the Python library </docs/how-to/use-the-python-library>",
        "Use GPUs </docs/how-to/gpus>",
    ],
    "Look up": [
        "/docs/reference/cli",
        "/docs/reference/python-api",
        "/docs/reference/layouts-and-presets",
        "/docs/reference/algorithms",
        "/docs/reference/glossary",
    ],
    "Know more": [
        "Layouts and algorithms </docs/explanation/layouts-and-algorithms>",
        "/docs/explanation/how-it-works",
        "Results </docs/results/index>",
        "The papers </ARTIFACT>",
        "For developers </CONTRIBUTING>",
    ],
}
#: Pages that are folded below another one.
FOLDED = {
    "docs/how-to/install-and-clusters": ["/docs/how-to/troubleshooting"],
    "docs/how-to/choose-a-layout": [
        "/docs/how-to/calibrate-a-machine",
        "/docs/reference/machine-files",
    ],
    "docs/how-to/layer-chains": [
        "/docs/how-to/whole-models",
        "/docs/how-to/experts-and-decode",
        "/docs/reference/words-of-ml",
    ],
    "docs/how-to/run-sweeps": [
        "/docs/how-to/read-reports-and-compare-runs",
        "/docs/how-to/compare-libraries",
        "/docs/reference/sweep-files",
        "/docs/reference/records",
        "/docs/reference/figures",
    ],
    "docs/how-to/use-the-python-library": ["/docs/how-to/dtensor"],
    "docs/reference/cli": ["/docs/reference/exit-codes-and-environment"],
    "docs/explanation/how-it-works": [
        "/docs/explanation/one-sided-and-overlap",
        "/docs/explanation/how-times-are-measured",
        "/docs/explanation/intervals",
        "/docs/explanation/simulator",
        "/docs/explanation/gpu-execution",
        "/docs/how-to/which-tool",
    ],
    "docs/results/index": [
        "/docs/results/gallery",
        "/docs/results/libraries",
        "/docs/results/model-accuracy",
        "/docs/results/gpu-accuracy",
        "/docs/results/layer-accuracy",
        "/docs/results/gpu",
    ],
    "ARTIFACT": [
        "/docs/results/slicing",
        "/docs/results/meshslice",
        "/docs/results/flux",
        "/docs/results/triton-distributed",
    ],
    "CONTRIBUTING": [
        "/docs/how-to/extend-drbench",
        "/docs/explanation/internals",
        "/docs/results/core",
        "/CHANGELOG",
    ],
}
#: Added to README, after its picture: the page of ``drbench explain`` of the same two runs.
LIVE = """
The same two runs, live: move through time with the slider or the arrow keys, press a tile to see
who uses it. `drbench explain` writes such a page, one file that loads nothing.

```{raw} html
<iframe class="explain" src="explain.html" title="Two runs, moment by moment"></iframe>
<p><a href="explain.html">Open it alone</a></p>
```
"""


def complete_source(app, page, source):
    """Add the navigation to the text of a page, and the live page to README."""
    if page == root_doc:
        before, picture, after = source[0].partition("](docs/images/layouts.svg)")
        source[0] = before + picture + after.replace("\n## ", f"{LIVE}\n## ", 1)
    contents = SECTIONS.items() if page == root_doc else [("", FOLDED.get(page, ()))]
    for caption, pages in contents:
        options = f":caption: {caption}\n" * bool(caption) + ":hidden:\n"
        if pages:
            source[0] += "\n".join(["", "```{toctree}", options, *pages, "```", ""])


class GlossaryTerms(SphinxTransform):
    """Makes an index entry of each term of the glossary: the search shows these first."""

    default_priority = 800  # before index entries are collected

    def apply(self, **_):
        """Called by Sphinx for each page."""
        if self.env.docname != "docs/reference/glossary":
            return
        for body in self.document.findall(nodes.tbody):
            for row in body:
                terms = row[0].astext()
                row["ids"].append(nodes.make_id(f"term {terms}"))
                entries = [
                    ("single", term, row["ids"][0], "main", None) for term in terms.split(", ")
                ]
                self.document[0].append(addnodes.index(entries=entries))


def write_colons(app, doctree, page):
    """Write a colon between a parameter and its description, where Sphinx has two hyphens."""
    for text in list(doctree.findall(nodes.Text)):
        if text.startswith(" -- "):
            text.parent.replace(text, nodes.Text(text.replace(" -- ", ": ", 1)))


def describe_page(app, page, template, context, doctree):
    """Give a page a description, its first sentences; let linked files be shown, not saved."""
    if doctree is not None:
        context["body"] = context["body"].replace(' download=""', "")
        first = next((paragraph.astext() for paragraph in doctree.findall(nodes.paragraph)), "")
        text = html.escape(" ".join(first.split())[:300])
        context["metatags"] += f'<meta name="description" content="{text}">'
    if page == "search":
        app.add_js_file("texts.js", priority=100)


def show_examples_as_code(app, context, lines):
    """Make blocks of code of the lines that help texts keep as they are (after ``\\b``)."""
    before = ""
    for at, line in enumerate(list(lines)):
        if line.startswith("| "):
            lines[at] = ("" if before.startswith("| ") else "::\n\n") + "    " + line[2:]
        before = line
    lines[:] = "\n".join(lines).split("\n")


def describe_case(app, what, name, thing, options, lines):
    """Describe the parameters of a case as the command line does."""
    if name == "drbench.Case":
        lines[:] = [lines[0], ""]
        for field in FIELDS.values():
            default = f" Default: {field.default_text}." * bool(field.default_text)
            lines.append(f":param {field.name}: {field.help}{default}")
        lines.append(":param options: Options of the algorithm, such as ``stationary``, by name.")


def write_other_files(app, error):
    """Add the texts that the search shows, the live page, and index.html, which is README."""
    if error is None and app.builder.format == "html":
        out = Path(app.outdir)
        texts = {}
        for page in app.env.found_docs:
            built = (out / f"{page}.html").read_text("utf-8")
            texts[page] = re.search(r'<article role="main".*</article>', built, re.S)[0]
        (out / "_static/texts.js").write_text(f"const TEXTS = {json.dumps(texts)}", "utf-8")
        (options,) = next(figure.explain for figure in committed() if figure.figure == "layouts")
        with TemporaryDirectory() as folder:
            explain(options, Path(folder, "runs.json"))
            cases = json.loads(Path(folder, "runs.json").read_text("utf-8"))["cases"]
        live = explained_page(cases, release, f"drbench explain {options} --save page.html")
        (out / "explain.html").write_text(live, "utf-8")
        shutil.copy(out / "README.html", out / "index.html")


def setup(app):
    """Called by Sphinx."""
    app.add_transform(GlossaryTerms)
    app.connect("source-read", complete_source)
    app.connect("autodoc-process-docstring", describe_case)
    app.connect("doctree-resolved", write_colons)
    app.connect("html-page-context", describe_page)
    app.connect("build-finished", write_other_files)
    app.connect("sphinx-click-process-description", show_examples_as_code)
