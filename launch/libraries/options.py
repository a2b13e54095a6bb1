"""The options of each library, separate from its adapter, so that the command line is described
without importing the libraries."""

import re

from drbench.algorithms.mesh import MESH
from drbench.errors import UsageError
from drbench.options import Option, named

#: Default rows and columns of ScaLAPACK's block-cyclic tiles.
BLOCK = 64
_WIDTH = {"type": int, "least": 1, "unit": "elements"}
_FLOW = named(
    Option(
        "dataflow",
        ("AG", "RS"),
        help="AllGather, then GEMM (AG), or GEMM, then ReduceScatter (RS).",
        default_text="AG",
    )
)


def check_splits(text: str) -> str:
    """Check the splits of COSMA and return them.

    Raises
    ------
    UsageError
    """
    if not re.fullmatch(r"[sp][mnk]\d+(,[sp][mnk]\d+)*", text):
        raise UsageError(
            f"{text!r} is not a list of splits. Use s (sequential) or p (parallel), m, n or k, and "
            "a divisor: sm2,pk2."
        )
    return text


#: Libraries executed by drbench: shown with the others, but not compared as a library.
ON_DRBENCH = ("dtensor+drbench",)
#: Options of every library, by its name, which is that of its module up to a +.
LIBRARIES: dict[str, dict[str, Option]] = {
    "dtensor": named(
        Option("device", ("cpu", "cuda"), help="where the operands are.", default_text="cpu")
    ),
    "dtensor+drbench": {},
    "scalapack": named(
        Option(
            "block",
            **_WIDTH,
            help="rows and columns of a block-cyclic tile.",
            default_text=str(BLOCK),
        ),
        MESH,
        Option(
            "panel",
            **_WIDTH,
            help="width of the panels that p?gemm broadcasts.",
            default_text="as built",
        ),
    ),
    "cosma": named(
        Option(
            "variant",
            help="forced splits, such as sm2,pk2.",
            default_text="its own choice",
            check=check_splits,
        ),
        Option(
            "overlap",
            ("on", "off"),
            help="overlap communication with GEMMs.",
            default_text="its environment's",
        ),
    ),
    "pylops": {},
    "heat": {},
    "jax": {},
    "symm_mem": _FLOW,
    "cublasmp": _FLOW,
}
