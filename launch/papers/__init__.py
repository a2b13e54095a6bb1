"""The papers that drbench reproduces: their claims as data, the studies that reproduce them, and
the sensitivity of both to assumed constants.

Each module here with a ``PAPER`` (:class:`~drbench.launch.papers.claims.Paper`) is a paper, which
``drbench artifact`` finds.
"""

import importlib
import pkgutil

from drbench.plots.summaries import add_figures

add_figures(__name__)


def papers() -> dict:
    """All papers by the name of their module, the paper of drbench itself first.

    Examples
    --------
    >>> [*papers()]
    ['slicing', 'overlap', 'meshslice', 'measured', 'ledger']
    """
    names = sorted((info.name for info in pkgutil.iter_modules(__path__)), reverse=True)
    modules = {name: importlib.import_module(f"{__name__}.{name}") for name in names}
    return {name: module.PAPER for name, module in modules.items() if hasattr(module, "PAPER")}
