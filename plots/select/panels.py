"""Which cases share a panel of the MLP figures: those of one layer and source, with the peers of
the same problem."""

from collections.abc import Iterable, Sequence

from drbench.measure.record import MODES, Record

from .cases import groups, rising, source_of
from .selection import LAYERS, UNIVERSAL, Line, SelectionError, layer_of, peer_name, select


def select_panels(
    records: Iterable[Record], layers: Sequence[str] | None = None
) -> dict[str, list[Line]]:
    """Select the lines of every panel: measured, simulated and published ones side by side.

    Universal cases of one mode, machine, number of ranks, dtype and problem make a panel. The
    peers' lines in it are those of the same source, or if there are none, those of another source
    for the same problem (the published ones before others). Peers that found no panel have one of
    their own.

    Parameters
    ----------
    records : iterable of Record
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
    records = list(records)
    for layer in layers or ():
        if layer not in LAYERS:
            raise SelectionError(
                f"layer must be one of {', '.join(LAYERS)}; got {layer!r}. Choose one."
            )
    found = {layer_of(record) for record in records}
    wanted = [layer for layer in layers or LAYERS if layer in found]
    if not wanted:
        asked = "MLP layer" if layers is None or len(layers) > 1 else f"case of {layers[0]}"
        shape = (
            {"mlp1": "n = 4k", "mlp2": "k = 4n"}.get(layers[0])
            if layers and len(layers) == 1
            else "n = 4k or k = 4n"
        )
        raise SelectionError(
            f"no {asked} in {len(records)} records: none has {shape}. Give it the records of an "
            "MLP sweep."
        )
    panels = [
        (layer, *panel)
        for layer in wanted
        for panel in _of_layer([r for r in records if layer_of(r) == layer], layer)
    ]
    panels.sort(key=lambda panel: (panel[1], wanted.index(panel[0])))
    several = {layer: sum(panel[0] == layer for panel in panels) > 1 for layer in wanted}
    named: dict[str, list[Line]] = {}
    for layer, _key, inside in panels:
        problem = f", h = {min(inside[0].n, inside[0].k)}"
        name = f"{layer} ({source_of(inside[0]).text}{problem})" if several[layer] else layer
        named[name] = select(inside, layer)
    return named


def _of_layer(records: list[Record], layer: str) -> list[tuple[tuple, list[Record]]]:
    """The records of each panel of a layer, each with a key that sorts panels: (key, records)."""
    # another algorithm's cases are no line here, and another problem's source no panel
    own = groups((r for r in records if r.algorithm == UNIVERSAL), _key)
    peers = groups((r for r in records if peer_name(r)), _key)
    used, panels = set(), []
    for key, inside in own.items():
        # threads are ours to choose: a peer of the same machine may say none
        here = [other for other in peers if _place(other) == _place(key)]
        elsewhere = [other for other in peers if other[-2:] == key[-2:] and other not in here]
        elsewhere.sort(key=lambda other: (other[0] != "published", rising(other)))
        chosen = here[:1] or elsewhere[:1]
        used.update(chosen)
        panels.append(
            (_order(key), inside + [record for other in chosen for record in peers[other]])
        )
    panels += [(_order(key), inside) for key, inside in peers.items() if key not in used]
    # no line at all is a panel too: it says why
    return panels or [((0,), records)]


def _key(record: Record) -> tuple:
    source = source_of(record)
    return (*source[:-1], record.k, source.dtype)


def _place(key: tuple) -> tuple:
    mode, machine, ranks, nodes, _, k, dtype = key
    return mode, machine, ranks, nodes or 1, k, dtype


def _order(key: tuple) -> tuple:
    mode = MODES.index(key[0])
    return (mode, *rising((key[1], key[2], key[3] or 1, key[4] or 1)))
