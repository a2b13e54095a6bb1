"""Reduce and broadcast replicas that are pulled in many panels; answer whether every rank's tiles
came out right."""

import numpy as np
from harness import answer, matrix, ranks


def main() -> None:
    with ranks() as comm, matrix(comm, "tiles:700x1500@1x2/c2", (900, 2000), "float32") as c:
        pattern = np.add.outer(np.arange(900) * 3, np.arange(2000)) % 1009
        own = [
            (tile, pattern[block.row0 : block.row1, block.col0 : block.col1])
            for block, tile in c.own_blocks()
        ]
        for tile, values in own:
            tile[...] = values * (c.replica + 1)
        c.reduce_replicas(1)
        reduced = all((tile == values * (3 if c.replica == 1 else 1)).all() for tile, values in own)
        c.broadcast_replica(1)
        broadcast = all((tile == values * 3).all() for tile, values in own)
        answer(
            comm,
            {
                name: all(comm.allgather(bool(value)))
                for name, value in (("reduced", reduced), ("broadcast", broadcast))
            },
        )
        del own, tile


if __name__ == "__main__":
    main()
