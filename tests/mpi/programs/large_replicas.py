"""Reduce and broadcast replicas that are pulled in many panels; answer whether every rank's tiles
are right."""

import numpy as np
from harness import answer, matrix, ranks


def main() -> None:
    with ranks() as comm, matrix(comm, "tiles:700x1500@1x2/c2", (900, 2000), "float32") as c:
        pattern = np.add.outer(np.arange(900) * 3, np.arange(2000)) % 1009
        replica = c.placed.replica
        own = pattern[np.ix_(c.rows, c.columns)]
        c.local[...] = own * (replica + 1)
        c.reduce_replicas(1)
        reduced = (c.local == own * (3 if replica == 1 else 1)).all()
        c.broadcast_replica(1)
        broadcast = (c.local == own * 3).all()
        answer(
            comm,
            {
                name: all(comm.allgather(bool(value)))
                for name, value in (("reduced", reduced), ("broadcast", broadcast))
            },
        )


if __name__ == "__main__":
    main()
