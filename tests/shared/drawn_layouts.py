"""Partitions of every form, drawn by chance."""

from drbench.partitions import divisors

FORMS = (
    "row",
    "column",
    "block",
    "grid",
    "column-major",
    "traditional",
    "misaligned",
    "tiny",
    "large",
    "S",
    "R",
)


def layout(chance, form, shape, p):
    """A partition of that form, on any grid and with any replication factor that fits p ranks."""
    c = chance.choice(divisors(p))
    rows = chance.choice(divisors(p // c))
    grid, factor = f"{rows}x{p // c // rows}", f"/c{c}"
    if form in ("row", "column", "block"):
        return form + factor
    if form == "traditional":
        return f"traditional:{grid}{factor}"
    if form == "grid":
        return f"block:{grid}{factor}"
    if form == "column-major":
        return f"block:{grid}:col{factor}"
    if form == "S":
        return f"R,S({chance.randrange(2)})@{c}x{p // c}"
    if form == "R":
        return "R"
    if form == "misaligned":
        tile = [chance.randint(max(1, extent // 5), extent) for extent in shape]
    elif form == "tiny":
        tile = [chance.randint(1, 3) if max(shape) <= 7 else extent // 6 + 1 for extent in shape]
    else:
        tile = [extent + chance.randrange(9) for extent in shape]
    return f"tiles:{tile[0]}x{tile[1]}@{grid}{factor}"


def blocks(chance, p):
    """Tiles of any sizes from any process on, or on any process rows, on some or all of p ranks."""
    sides = ["+".join(str(chance.randint(1, 4)) for _ in range(chance.randint(1, 3))) for _ in "ij"]
    sizes = "x".join(side + "*" * ("+" in side) for side in sides)
    used = chance.randint(1, p)
    c = chance.choice(divisors(used))
    rows = chance.choice(divisors(used // c))
    grid = rows, used // c // rows
    at = "{}x{}".format(*grid)
    if chance.random() < 0.5:
        at += ":col" * chance.randint(0, 1) + ":from{}x{}".format(*map(chance.randrange, grid))
    elif max(grid) > 1:
        owners = [
            chance.sample(range(count), count) + [chance.randrange(count)] * (count == 1)
            for count in grid
        ]
        at = "x".join("+".join(map(str, side)) for side in owners)
    ranks = chance.sample(range(p), used)
    return f"tiles:{sizes}@{at}/c{c}/on{'+'.join(map(str, ranks))}"
