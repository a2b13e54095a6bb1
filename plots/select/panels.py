"""Which cases share a panel of the MLP figures: those of one layer and source, with the peers of
the same problem."""

from collections.abc import Sequence

from pandas import DataFrame, concat

from drbench.measure.record import MODES

from .cases import LAYERS, UNIVERSAL, SelectionError, check_layer, rising
from .records import Records, frame
from .selection import Line, groups, select


def select_panels(records: Records, layers: Sequence[str] | None = None) -> dict[str, list[Line]]:
    """Select the lines of every panel: measured, simulated and published ones side by side.

    Universal cases of one mode, machine, number of ranks, dtype and problem make a panel. The
    peers' lines in it are those of the same source, or if there are none, those of another source
    for the same problem (the published ones before others). Peers that found no panel have one of
    their own.

    Parameters
    ----------
    records : DataFrame, or iterable of Record
    layers : sequence of str, optional
        ``"mlp1"``, ``"mlp2"`` or both; by default those that the records hold.

    Returns
    -------
    dict
        Name of the panel (the layer, and its source where a layer has several) -> its lines.

    Raises
    ------
    SelectionError
        If no record is of a layer, or a layer is unknown.
    """
    found = frame(records)
    for layer in layers or ():
        check_layer(layer)
    wanted = [layer for layer in layers or LAYERS if (found.layer == layer).any()]
    if not wanted:
        asked = "MLP layer" if layers is None or len(layers) > 1 else f"case of {layers[0]}"
        shape = (
            {"mlp1": "n = 4k", "mlp2": "k = 4n"}.get(layers[0])
            if layers and len(layers) == 1
            else "n = 4k or k = 4n"
        )
        raise SelectionError(
            f"no {asked} in {len(found)} records: none has {shape}. Give it the records of an "
            "MLP sweep."
        )
    panels = [
        (layer, *panel) for layer in wanted for panel in _of_layer(found[found.layer == layer])
    ]
    panels.sort(key=lambda panel: (panel[1], wanted.index(panel[0])))
    several = {layer: sum(panel[0] == layer for panel in panels) > 1 for layer in wanted}
    named: dict[str, list[Line]] = {}
    for layer, _key, inside in panels:
        case = inside.iloc[0]
        problem = f", h = {min(case.n, case.k)}"
        name = f"{layer} ({case.source.text}{problem})" if several[layer] else layer
        named[name] = select(inside, layer)
    return named


def _of_layer(found: DataFrame) -> list[tuple[tuple, DataFrame]]:
    """The cases of each panel of a layer, each with a key that sorts panels."""
    # another algorithm's cases are no line here, and another problem's source no panel
    universal = found.algorithm == UNIVERSAL
    own = groups(found[universal], ["source", "k"])
    peers = dict(groups(found[~universal & found.line.notna()], ["source", "k"]))
    used, panels = set(), []
    for key, inside in own:
        # threads are ours to choose: a peer of the same machine may say none
        here = [other for other in peers if _place(other) == _place(key)]
        elsewhere = [
            other
            for other in peers
            if (other[0].dtype, other[1]) == (key[0].dtype, key[1]) and other not in here
        ]
        elsewhere.sort(key=lambda other: (other[0].mode != "published", rising(other)))
        chosen = here[:1] or elsewhere[:1]
        used.update(chosen)
        panels.append((_order(key), concat([inside, *(peers[other] for other in chosen)])))
    panels += [(_order(key), inside) for key, inside in peers.items() if key not in used]
    # no line at all is a panel too: it says why
    return panels or [((0,), found)]


def _place(key: tuple) -> tuple:
    source, k = key
    return source._replace(nodes=source.nodes or 1, threads=None), k


def _order(key: tuple) -> tuple:
    source, _ = key
    return (
        MODES.index(source.mode),
        *rising((source.machine, source.ranks, source.nodes or 1, source.threads or 1)),
    )
