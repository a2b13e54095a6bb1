"""The look of the figures: a line has the same colour and marker in every figure.

The hues are those of Okabe and Ito (2008), told apart with every common colour blindness; markers and
dashes tell the lines apart in grey print too. Peers are grey and dashed.
"""

from typing import NamedTuple


class LineStyle(NamedTuple):
    """Colour of line and marker edge, a darker one for small text, marker and dash pattern."""

    color: str
    text: str
    marker: str
    dashes: str | tuple  # as matplotlib takes it


STYLES = {
    "UA - Row": LineStyle("#D55E00", "#B04E00", "s", "-"),
    "UA - Column": LineStyle("#0072B2", "#00609A", "o", "-"),
    "UA - Block": LineStyle("#009E73", "#007A59", "D", "-"),
    "UA - Inner Prod.": LineStyle("#56B4E9", "#1F7FB5", "^", "-"),
    "UA - Outer Prod.": LineStyle("#CC79A7", "#A8457D", "v", "-"),
    "UA - Traditional": LineStyle("#E69F00", "#9A6A00", "P", "-"),
    "DT - Row": LineStyle("#000000", "#000000", "X", (0, (4, 1.6))),
    "DT - Column": LineStyle("#555555", "#555555", "p", (0, (1.2, 1.2))),
    "COSMA-NCCL": LineStyle("#8C8C8C", "#6E6E6E", "h", (0, (4, 1.4, 1.2, 1.4))),
}

FONT_PT = 7.5
SMALL_PT = 6.0
FACTOR_PT = 6.0

# Type 42 keeps the text of the PDF text (searchable, editable), and every setting here is also fixed so
# that a user's matplotlibrc changes no figure
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
    "text.usetex": False,
    "savefig.bbox": None,
    "savefig.dpi": "figure",
    "savefig.facecolor": "auto",
}
