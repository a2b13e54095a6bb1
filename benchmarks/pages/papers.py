"""Tables of the papers' claims, and what their verdicts depend on."""

import re
from functools import cache

from drbench.launch.papers import papers

from .records import RESULTS, records, rows, where
from .tables import block, table


@cache
def verdicts(paper: str) -> list:
    """Verdicts of ``slicing``, ``meshslice`` or ``overlap`` on the committed records."""
    return papers()[paper].verdicts(RESULTS)


#: Most columns of a row of a table.
_WIDTH = 120


def _cut(text: str, width: int) -> str:
    """A text shortened to a width between phrases, or else numbers, and outside of parentheses.

    Examples
    --------
    >>> _cut("Column 80.8, Row 53.2", 30), _cut("Column 80.8, Row 53.2", 18), _cut("spread", 3)
    ('Column 80.8, Row 53.2', 'Column 80.8 …', '…')
    """
    if len(text) <= width:
        return text
    best = ""
    for ends in (r"[,;] |(?<=[%)]) ", r"(?<=\d) "):
        heads = [text[: found.start()] for found in re.finditer(ends, text[: width - 1])]
        heads = [head for head in heads if head.count("(") == head.count(")")]
        if heads and len(best) < width / 2:
            best = max(best, heads[-1], key=len)
    return f"{best} …".strip()


@block
def claims(paper: str) -> str:
    """Each claim of ``slicing``, ``meshslice`` or ``overlap`` with its verdict and our number, cut
    where a row would be too wide; a claim that is not reproduced has a link to the reason."""
    lines = []
    for each in verdicts(paper):
        claim = each.claim
        anchor = claim.see.partition("#")[2]
        verdict = {"PASS": "yes", "KNOWN": f"[no](#{anchor})"}.get(each.word, each.word)
        cells = claim.name, verdict, claim.text
        width = _WIDTH - len("|  |  |  |  |") - sum(map(len, cells))
        lines.append((*cells, _cut(each.ours.replace("|", "/"), width)))
    return table(["claim", "reproduced", "what the paper states", "our number"], lines)


def _sensitivity():
    """The changes of machines, with changed verdicts only of claims whose verdict is the committed
    one before the change: fewer cases are simulated here than for the committed verdicts."""
    found = rows("simulated/readings/sensitivity.csv").fillna("")
    committed = dict(zip(*(rows("claims.csv")[name] for name in ("claim", "verdict"))))
    words = {"PASS": "holds", "KNOWN": "does not hold"}
    pairs = (
        each.split(" ", 1)
        for text in found[found.change == ""].changed_claims
        for each in text.split("; ")
    )
    known = {name for name, word in pairs if words.get(committed[name]) == word}
    kept = lambda text: "; ".join(each for each in text.split("; ") if each.split(" ")[0] in known)
    return found.assign(changed_claims=found.changed_claims.map(kept))


#: Claims by the first letter of their names: whose they are, and the page with the reasons.
_WHOSE = {
    "P": ("*Slicing Is All You Need*", "slicing"),
    "M": ("MeshSlice", "meshslice"),
    "F": ("FLUX", "flux-and-triton"),
    "T": ("Triton-distributed", "flux-and-triton"),
    "S": ("drbench's own bars", "core"),
    "A": ("accuracy of predictions", "model-accuracy"),
}


@block
def claim_counts(folder: str) -> str:
    """How many claims of each paper pass; ``folder`` is where the results pages are."""
    found = rows("claims.csv")
    lines = []
    for letter, (whose, page) in _WHOSE.items():
        mine = found[found.claim.str.startswith(letter)]
        counts = [(mine.verdict == word).sum() for word in ("PASS", "KNOWN")]
        sources = " and ".join(dict.fromkeys(mine.source))
        lines.append((letter, whose, sources, *counts, f"[{page}.md]({folder}/{page}.md)"))
    return table(["", "claims of", "our numbers", "PASS", "not reproduced", "page"], lines)


#: Readings of MLP-2 on pvc12, as results/simulated/readings has them, in the page's words.
_READINGS = {
    ("paper", "as it is"): "the paper's (whole tiles, C pushed)",
    ("slices, pulled", "as it is"): "drbench's default (slices, C pulled)",
    ("paper", "one Xe Link a tile"): "the paper's, one Xe Link a tile",
}


@block
def highest_lines() -> str:
    """The two highest lines of MLP-2 on pvc12, with the matrix that stays, by program and by the
    most replicas of A and B; in bold where P7 holds."""
    found = where(rows("simulated/readings/lines.csv"), machine="pvc12", layer="mlp2", drawn=True)
    held = where(rows("simulated/readings/verdicts.csv"), machine="pvc12", claim="P7")
    most, lines = (12, 6, 4, 1), []
    for (program, reading), words in _READINGS.items():
        each = where(found, program=program, reading=reading)
        judged = where(held, program=program, reading=reading).set_index("most_replicas").holds
        cells = []
        for count in most:
            means = each[each.most_replicas == count].groupby(["line", "stationary"])
            best = means.percent_of_peak.mean().sort_values(ascending=False, kind="stable").index
            text = ", ".join(f"{line.removesuffix(' Prod.')} S-{kept}" for line, kept in best[:2])
            cells.append(f"**{text}**" if judged.get(count) else text or "not simulated")
        lines.append((words, *cells))
    return table(["program", *(f"at most {count}" for count in most)], lines)


@block
def turns_by_factor(paper: str) -> str:
    """Which verdicts change when one constant of a paper's machines is multiplied by a factor: +P5
    holds then, −P5 does not."""
    found = _sensitivity()
    found = found[(found.paper == paper) & found.change.str.contains(" x ")].copy()
    found[["constant", "factor"]] = found.change.str.split(" x ", expand=True)
    by = sorted({*found.factor}, key=float)
    lines, none = [], 0
    for (machine, constant), each in found.groupby(["machine", "constant"], sort=False):
        cells = dict(zip(each.factor, map(_signed_claims, each.changed_claims)))
        text = [cells.get(factor, "n/a") for factor in by]
        if {*text} <= {"", "n/a"}:
            none += 1
        else:
            lines.append((machine, f"`{constant}`", *text))
    lines.append((", ".join(found.machine.unique()), f"{none} others", *["none"] * len(by)))
    return table(["machine", "constant", *(f"× {factor}" for factor in by)], lines)


def _signed_claims(claims_: str) -> str:
    """The claims whose verdict a change changes, each with a sign."""
    signs = {"holds": "+", "does": "−", "undecided": "?"}
    words = [each.split() for each in claims_.split("; ") if each]
    return ", ".join(f"{signs[word[1]]}{word[0]}" for word in words)


@block
def dtensor_points() -> str:
    """Errors of the published DTensor points, percent, by line and batch size."""
    lines: dict[tuple, list[str]] = {}
    for row in where(rows("ledger.csv"), group="dtensor-h100").itertuples():
        layer, line = row.what.rpartition(" ")[0].split(" ", 1)
        error = f"{100 * (row.predicted / row.value - 1):+.1f}".replace("-", "\N{MINUS SIGN}")
        lines.setdefault((layer.upper().replace("P", "P-"), line), []).append(error)
    header = ["layer", "line", *(f"m = {m}" for m in (1024, 2048, 4096, 8192))]
    return table(header, [(*name, *cells) for name, cells in lines.items()])


#: What the sweep optimisations switches off, and the options of its records.
_SWITCHED_OFF = {
    "iteration offset": ("offset=off", 1),
    "its part over the whole axis": ("offset=interval", 1),
    "prefetch": ("", 0),
}


@block
def optimisations(*machines: str) -> str:
    """How many times as long the cases of the sweep take without one optimisation: the median, and
    the case with the most."""
    keys = ["n", "a", "b", "c", "stationary"]
    lines = []
    for machine in machines:
        found = records(f"simulated/optimisations/{machine}.csv")
        options = found.options.fillna("")
        for layer, n in (("MLP-1", 49152), ("MLP-2", 12288)):

            def times(option: str, prefetch: int):
                switched = options.str.contains(option or "offset=")
                chosen = (switched == bool(option)) & (found.prefetch == prefetch) & (found.n == n)
                return found[chosen].set_index(keys).best_s

            cells = []
            for option, prefetch in _SWITCHED_OFF.values():
                ratio = (times(option, prefetch) / times("", 1)).dropna()
                *texts, stationary = ratio.idxmax()[1:]
                most = f"{' · '.join(dict.fromkeys(texts))} S-{stationary}"
                cells.append(f"{ratio.median():.2f}, {ratio.max():.2f} ({most})")
            lines.append((f"{machine}, {found.ranks.iloc[0]} ranks", layer, *cells))
    header = ["machine", "layer", *(f"without {name}" for name in _SWITCHED_OFF)]
    return table(header, lines)
