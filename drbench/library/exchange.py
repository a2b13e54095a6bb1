"""How the ranks of a context meet at the start of everything they do together: one Allgather says
where each rank's arrays lie, what each is about to do, and whether one of them cannot.

It is also the barrier that says "operands are ready". All ranks see the same, so that all of them
go on, or none does.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
from mpi4py import MPI

from drbench.errors import DrbenchError, UsageError
from drbench.host.placed import Place

#: A record: three places, the number of what is done, and whether this rank cannot.
_NUMBER, _VETO, WIDTH = 9, 10, 11


def number_of(what: str) -> int:
    """The same number on every rank for the same words.

    Examples
    --------
    >>> number_of("close") == number_of("close") != number_of("multiply")
    True
    """
    return int.from_bytes(blake2b(what.encode(), digest_size=8).digest(), "little") >> 1


class Exchange:
    """The records of one thing that ranks do together.

    Parameters
    ----------
    comm : MPI.Comm
        The context's own.
    what : str
        The thing in words, the same on every rank.
    """

    def __init__(self, comm: MPI.Comm, what: str):
        self.comm, self.what = comm, what
        self._mine = np.zeros(WIDTH, np.int64)
        self._all = np.zeros((comm.size, WIDTH), np.int64)
        self._mine[_NUMBER] = number_of(what)
        self._send, self._receive = [self._mine, MPI.INT64_T], [self._all, MPI.INT64_T]

    def meet(self, places: tuple = (), fault: DrbenchError | None = None) -> bytes:
        """Say where this rank's arrays lie, and hear where all others' do (collective).

        Returns
        -------
        bytes
            All that was heard; equal for the same places.
        """
        mine = self._mine
        if places:
            mine[: len(places)] = places
        mine[_VETO] = fault is not None
        self.comm.Allgather(self._send, self._receive)
        return self._all.tobytes()

    def check(self, fault: DrbenchError | None = None) -> None:
        """Raise on every rank the error of the first that cannot, or that does something else
        (collective, if so)."""
        if self.agreed and not self._all[:, _VETO].any():
            return
        heard = self.comm.allgather((self.what, fault))
        for rank, (_, first) in enumerate(heard):
            if first is not None:
                told = str(first)
                raise type(first)(told if told.startswith("rank ") else f"rank {rank}: {told}")
        other = next(rank for rank, each in enumerate(heard) if each != heard[0])
        raise UsageError(
            f"ranks call in different order: rank 0 {heard[0][0]}, rank {other} {heard[other][0]}. "
            "Make the same calls in the same order on every rank."
        )

    @property
    def agreed(self) -> bool:
        """Whether all ranks do the same."""
        return bool((self._all[:, _NUMBER] == self._mine[_NUMBER]).all())

    def places(self, x: int) -> list[Place]:
        """Of array ``x`` on every rank, as heard last."""
        return [Place(*row) for row in self._all[:, 3 * x : 3 * x + 3].tolist()]
