"""Panels of the MLP figures: the cases of one layer and source, with the baselines of the same
problem."""

from pandas import DataFrame

from drbench.measure.record import MODES

from .cases import LAYERS, UNIVERSAL, SelectionError, rising
from .records import Records, frame
from .selection import Line, select


def select_panels(
    records: Records, layer: str | None = None, quantity: str = "auto"
) -> dict[str, list[Line]]:
    """Select the lines of every panel: measured, simulated and published ones next to each other.

    Universal cases of one mode, label, number of ranks, dtype and problem make a panel. The
    baselines' lines in it are those of the same source, else those of another source of the same
    label for the same problem (the published ones before others). Baselines without such a panel
    have a separate one.

    Parameters
    ----------
    records : DataFrame, or iterable of Record
    layer : str, optional
        ``"mlp1"`` or ``"mlp2"``; by default those that the records hold.
    quantity : str
        ``peak``, ``gemm_only`` or ``auto``.

    Returns
    -------
    dict
        Name of the panel (the layer, and its source where a layer has several) -> its lines.

    Raises
    ------
    SelectionError
        If no record is of a layer.
    """
    table = frame(records)
    wanted = [name for name in ([layer] if layer else LAYERS) if (table.layer == name).any()]
    if not wanted:
        asked = f"case of {layer}" if layer else "MLP layer"
        shape = {"mlp1": "n = 4k", "mlp2": "k = 4n"}.get(layer, "n = 4k or k = 4n")
        raise SelectionError(
            f"no {asked} in {len(table)} records: none has {shape}. Give it the records of an "
            "MLP sweep."
        )
    panels = [
        (layer, *panel) for layer in wanted for panel in _of_layer(table[table.layer == layer])
    ]
    panels.sort(key=lambda panel: (panel[1], wanted.index(panel[0])))
    several = {layer: sum(panel[0] == layer for panel in panels) > 1 for layer in wanted}
    named: dict[str, list[Line]] = {}
    for layer, _key, inside in panels:
        case = inside.iloc[0]
        problem = f", h = {min(case.n, case.k)}"
        name = f"{layer} ({case.source.text}{problem})" if several[layer] else layer
        named[name] = select(inside, layer, quantity)
    return named


def _of_layer(table: DataFrame) -> list[tuple[tuple, DataFrame]]:
    """The cases of each panel of a layer, each with a key that sorts panels."""
    # cases of other algorithms have no line, sources of other problems no panel
    universal = table.algorithm == UNIVERSAL
    by, used, panels = ["source", "k"], set(), []
    own, baselines = (
        sorted(table.loc[those, by].groupby(by).groups.items(), key=lambda group: rising(group[0]))
        for those in (universal, ~universal & table.line.notna())
    )
    for key, inside in own:
        source, k = key
        # only our cases choose threads: a baseline of the same label may have none
        closeness = lambda group: (
            _place(group[0]) != _place(key),
            group[0][0].mode != "published",
            rising(group[0]),
        )
        same = lambda source, k: (source.family, source.dtype, k)
        rivals = [group for group in baselines if same(*group[0]) == same(source, k)]
        for other, theirs in sorted(rivals, key=closeness)[:1]:
            used.add(other)
            inside = inside.append(theirs)
        panels.append((_order(key), table.loc[inside]))
    panels += [(_order(key), table.loc[inside]) for key, inside in baselines if key not in used]
    # a panel without lines gives the reasons
    return panels or [((0,), table)]


def _place(key: tuple) -> tuple:
    source, k = key
    return source.on_known_nodes()._replace(threads=None), k


def _order(key: tuple) -> tuple:
    source, _ = key
    return (
        MODES.index(source.mode),
        *rising(
            (source.label, source.machine, source.ranks, source.nodes or 1, source.threads or 1)
        ),
    )
