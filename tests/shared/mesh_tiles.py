"""A matrix on a mesh of ranks, and collectives along its dimensions, on one array for each rank.

Each dimension of the mesh divides what the outer ones left, as PyTorch does: in parts of the
rounded-up size, of which the last may be short or empty.
"""

import itertools

import numpy as np


def places(mesh):
    """The coordinates of all ranks, in order."""
    return list(itertools.product(*map(range, mesh.extents)))


def chunk(part, parts, x):
    """Part ``x`` of a half-open range."""
    low, high = part
    size = -(-(high - low) // parts)
    return min(low + x * size, high), min(low + (x + 1) * size, high)


def held(mesh, shape, layout, place):
    """The half-open ranges of rows and of columns that a rank holds."""
    part = [(0, size) for size in shape]
    for x, parts, one in zip(place, mesh.extents, layout):
        if one.startswith("S"):
            side = int(one[2])
            part[side] = chunk(part[side], parts, x)
    return tuple(part)


def within(whole, part):
    return whole[slice(*part[0]), slice(*part[1])]


class Tiles:
    """What each rank holds: (ranges, array), by its coordinates.

    Attributes
    ----------
    received : int
        Elements that all ranks have received from others.
    """

    def __init__(self, mesh, tiles):
        self.mesh, self.tiles, self.received = mesh, tiles, 0

    @classmethod
    def of(cls, mesh, whole, layout, rng):
        """The tiles of a matrix; where the layout has P, random parts of the sum."""
        tiles, parts = {}, {}
        pending = [d for d, one in enumerate(layout) if one == "P"]
        for place in places(mesh):
            key = tuple(place[d] for d in pending)
            last = all(place[d] == mesh.extents[d] - 1 for d in pending)
            if key not in parts:
                parts[key] = rng.integers(-99, 99, whole.shape)
                if last:
                    parts[key] = whole - sum(each for x, each in parts.items() if x != key)
            part = held(mesh, whole.shape, layout, place)
            tiles[place] = part, within(parts[key], part)
        return cls(mesh, tiles)

    def apply(self, kind, dims, old, new):
        """A collective of all ranks along neighbouring dimensions, from one layout to another."""
        after = {}
        for place in places(self.mesh):
            others = itertools.product(
                *(range(n) if d in dims else (place[d],) for d, n in enumerate(self.mesh.extents))
            )
            group = [self.tiles[each] for each in others]
            mine, value = self.tiles[place]
            elements, others = value.size, len(group) - 1
            if kind in ("reduce", "scatter"):  # in rings: to one part each, then to all
                assert all(part == mine for part, _ in group), "sums of the same elements"
                value = sum(each for _, each in group)
                rings = 2 if kind == "reduce" else 1
                self.received += rings * others * elements / len(group)
            if kind in ("gather", "exchange"):
                mine, value = self._joined(group, int(old[dims[0]][2]))
            if kind in ("cut", "scatter", "exchange"):
                before, mine = mine, list(mine)
                for d in dims:
                    side = int(new[d][2])
                    mine[side] = chunk(mine[side], self.mesh.extents[d], place[d])
                value = value[tuple(slice(a - o[0], b - o[0]) for (a, b), o in zip(mine, before))]
            if kind == "gather":
                self.received += value.size - elements
            elif kind == "exchange":
                self.received += value.size - elements / len(group)
            after[place] = tuple(mine), value
        self.tiles = after

    @staticmethod
    def _joined(group, side):
        """The tiles of a group one after another, which must be one range."""
        parts = [part for part, each in group if each.size]
        if not parts:
            return group[0]
        assert all(part[1 - side] == parts[0][1 - side] for part in parts), "equal other sides"
        ends = [part[side] for part in parts]
        assert all(a[1] == b[0] for a, b in itertools.pairwise(ends)), "one range, in order"
        mine = [parts[0][1 - side]] * 2
        mine[side] = ends[0][0], ends[-1][1]
        return tuple(mine), np.concatenate([each for _, each in group if each.size], side)

    def move(self, steps, old, new):
        for kind, dims in steps:
            self.apply(kind, dims, old, new)

    def check(self, whole, layout):
        """Every rank holds its tile of the matrix in this layout."""
        for place, (part, value) in self.tiles.items():
            wanted = held(self.mesh, whole.shape, layout, place)
            assert np.array_equal(value, within(whole, wanted)), (place, part, wanted)
