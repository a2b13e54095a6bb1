"""Colours as people see them."""

#: Colours as seen without long-wave, and without middle-wave, cones (Viénot,
#: Brettel and Mollon, 1999), on linear RGB.
BLIND = {
    "protan": ((0.11238, 0.88762, 0), (0.11238, 0.88762, 0), (0.00401, -0.00401, 1)),
    "deutan": ((0.29275, 0.70725, 0), (0.29275, 0.70725, 0), (-0.02234, 0.02234, 1)),
    "all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
}


def seen_by(kind: str, colour: str) -> list[float]:
    """Linear RGB of ``#rrggbb`` as seen by the given type of eye."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return [sum(w * x for w, x in zip(row, linear)) for row in BLIND[kind]]
