"""The look of the figures: a line of one name has the same colour and marker in every figure.

The hues are those of Okabe and Ito (2008), distinguishable with every common colour blindness;
markers and dashes distinguish the lines in grey print too. Libraries are grey and dashed.
"""

from typing import NamedTuple
from zlib import crc32


class LineStyle(NamedTuple):
    """Colour of line and marker edge, marker, dash pattern, and a darker colour for small text."""

    color: str
    marker: str
    dashes: str | tuple = (0, (6, 1.2))  # in matplotlib's format
    text: str = ""


class FillStyle(NamedTuple):
    """The fill of a bar: its name in the legend, its colour and hatch."""

    name: str
    color: str
    hatch: str = ""


_DASHED, _DOTTED, _BROKEN = (0, (4, 1.6)), (0, (1.2, 1.2)), (0, (4, 1.4, 1.2, 1.4))

STYLES = {
    "UA - Row": LineStyle("#D55E00", "s", "-", "#B04E00"),
    "UA - Column": LineStyle("#0072B2", "o", "-", "#00609A"),
    "UA - Block": LineStyle("#009E73", "D", "-", "#007A59"),
    "UA - Inner Prod.": LineStyle("#56B4E9", "^", "-", "#1F7FB5"),
    "UA - Outer Prod.": LineStyle("#CC79A7", "v", "-", "#A8457D"),
    "UA - Traditional": LineStyle("#E69F00", "P", "-", "#9A6A00"),
    "DT - Row": LineStyle("#000000", "X", _DASHED, "#000000"),
    "DT - Column": LineStyle("#555555", "p", _DOTTED, "#555555"),
    "COSMA-NCCL": LineStyle("#8C8C8C", "h", _BROKEN, "#6E6E6E"),
}

#: Algorithms and libraries by their names in records; a figure may distinguish partitionings of
#: universal.
ALGORITHMS = {
    "universal": LineStyle("#0072B2", "o", "-"),
    "cannon": LineStyle("#E69F00", "s"),
    "summa": LineStyle("#009E73", "D"),
    "summa2.5d": LineStyle("#7F7F00", "d"),
    "collective": LineStyle("#D55E00", "^"),
    "wang": LineStyle("#CC79A7", "v"),
    "meshslice": LineStyle("#56B4E9", "P"),
    "tensor_parallel_1d": LineStyle("#8B5A2B", "<"),
    "fsdp": LineStyle("#5B3A8C", ">"),
    "dtensor": LineStyle("#000000", "X", _DASHED),
    "dtensor+drbench": LineStyle("#1F7FB5", "X", "-"),
    "scalapack": LineStyle("#555555", "p", _DOTTED),
    "cosma": LineStyle("#8C8C8C", "h", _BROKEN),
    "heat": LineStyle("#B2182B", "*", _DASHED),
    "pylops": LineStyle("#2F6F6F", "d", _DOTTED),
    "jax": LineStyle("#7A4988", "P", _BROKEN),
    "symm_mem": LineStyle("#A63603", "H", _DASHED),
    "cublasmp": LineStyle("#4D7C0F", "8", _DASHED),
}
#: Those of them that are other people's libraries.
LIBRARIES = ("dtensor", "scalapack", "cosma", "pylops", "heat", "jax", "symm_mem", "cublasmp")
#: drbench under another library, with that one's BLAS.
ON_DRBENCH = ("dtensor+drbench",)

#: The matrix that does not move.
STATIONARY = {
    "A": LineStyle("#D55E00", "^", "-"),
    "B": LineStyle("#009E73", "s", "-"),
    "C": LineStyle("#0072B2", "o", "-"),
}

#: Where the time of a case goes: field of the record -> its part of a bar, in the order bars
#: are stacked.
PHASES = {
    "phase_gemm_s": FillStyle("gemm", "#0072B2"),
    "phase_get_wait_s": FillStyle("get wait", "#E69F00", "////"),
    "phase_collective_wait_s": FillStyle("collective wait", "#D55E00", "xxxx"),
    "phase_accumulate_s": FillStyle("accumulate", "#CC79A7", "...."),
    "phase_fence_s": FillStyle("fence", "#56B4E9", "----"),
    "phase_pack_s": FillStyle("pack", "#009E73", "oo"),
}
OTHER = FillStyle("unattributed", "#BBBBBB")

_HUES = "#0072B2 #D55E00 #009E73 #CC79A7 #E69F00 #56B4E9 #5B3A8C #8B5A2B #333333".split()
_HUES += ["#7F7F00", "#8C8C8C"]
_MARKERS = "os^DvPX<>phd*"


def style_of(name: str) -> LineStyle:
    """The look of a line by its name, the same in every figure and every run, also for unlisted
    names.

    Examples
    --------
    >>> style_of("UA - Row") == STYLES["UA - Row"], style_of("mine") == style_of("mine")
    (True, True)
    """
    known = {**STATIONARY, **ALGORITHMS, **STYLES}.get(name)
    if known:
        return known
    number = crc32(name.encode("utf-8", "backslashreplace"))
    hue, marker = _HUES[number % len(_HUES)], _MARKERS[number // len(_HUES) % len(_MARKERS)]
    return LineStyle(hue, marker, (0, (3, 1)))


FONT_PT = 7.5
SMALL_PT = 6.5  # the smallest text

# Type 42 keeps the text of the PDF text (searchable, editable), and every setting here is also
# fixed so that a user's matplotlibrc changes no figure
RC = {
    "font.family": "DejaVu Sans",
    "font.size": FONT_PT,
    "pdf.fonttype": 42,
    "pdf.compression": 6,
    "pdf.use14corefonts": False,
    "axes.linewidth": 0.7,
    "axes.labelpad": 3.0,
    "xtick.labelsize": FONT_PT - 0.5,
    "ytick.labelsize": FONT_PT - 0.5,
    "axes.unicode_minus": True,
    "svg.fonttype": "none",
    "svg.hashsalt": "drbench",
    "text.usetex": False,
    "text.parse_math": False,  # a machine's name may hold a dollar
    "hatch.linewidth": 0.5,
    "savefig.bbox": None,
    "savefig.dpi": "figure",
    "savefig.facecolor": "auto",
}
