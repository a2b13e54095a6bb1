"""The handshake at the start of each collective operation of a context: one Allgather of the
location of each rank's arrays, the operation it is about to start, and whether it cannot.

It is also the barrier after which operands are ready. All ranks see the same data, so that either
all of them continue, or none.
"""

import struct
from hashlib import blake2b

import numpy as np
from mpi4py import MPI

from drbench.errors import DrbenchError, UsageError
from drbench.host.matrix import Location

#: A record: three locations, the number of the operation, whether this rank cannot; alpha and beta,
#: and a number for the matrices.
_NUMBER, _REFUSED, _FACTORS, WIDTH = 9, 10, 11, 16
_LOCATIONS = [struct.Struct(f"={3 * n}q") for n in (0, 1, 2, 3)]
_LAST = struct.Struct("=?7xddddq")


def number_of(what: str) -> int:
    """A number for an operation; the same on every rank for the same words.

    Examples
    --------
    >>> number_of("close") == number_of("close") != number_of("multiply")
    True
    """
    return int.from_bytes(blake2b(what.encode(), digest_size=8).digest(), "little") >> 1


class Exchange:
    """The records of one collective operation.

    Parameters
    ----------
    comm : MPI.Comm
        The context's own.
    what : str
        The operation in words, the same on every rank.
    """

    def __init__(self, comm: MPI.Comm, what: str):
        self.comm, self.what = comm, what
        mine, self._all = np.zeros(WIDTH, np.int64), np.zeros((comm.size, WIDTH), np.int64)
        mine[_NUMBER] = self._number = number_of(what)
        self._mine = mine.data.cast("B")
        self._send, self._receive = [mine, MPI.INT64_T], [self._all, MPI.INT64_T]
        self._fixed, self._factors = self._all[:, :_FACTORS], self._all[:, _FACTORS:]

    def handshake(
        self,
        locations: tuple[int, ...] = (),
        fault: DrbenchError | None = None,
        serials: tuple[int, ...] = (),
        alpha: complex = 1.0,
        beta: complex = 0.0,
    ) -> bytes:
        """Exchange the locations of all ranks' arrays (collective).

        Returns
        -------
        bytes
            All records without alpha, beta and serials; equal for the same locations.

        Raises
        ------
        UsageError
            On every rank, if alpha, beta or the serials of the matrices differ between ranks of the
            same operation.
        """
        mine = self._mine
        if locations:
            _LOCATIONS[len(locations) // 3].pack_into(mine, 0, *locations)
        # -0.0 + 0.0 is 0.0: the bytes of equal factors are equal
        given = [part + 0.0 for x in (alpha, beta) for part in (x.real, x.imag)]
        _LAST.pack_into(mine, 8 * _REFUSED, fault is not None, *given, hash(serials))
        self.comm.Allgather(self._send, self._receive)
        factors = self._factors.tobytes()
        # ranks in different operations have different factors, too
        if factors != factors[: 8 * (WIDTH - _FACTORS)] * self.comm.size and self._all_start:
            numbers = ", ".join(str(serial or "new") for serial in serials)
            texts = (
                f"alpha={alpha + 0.0} beta={beta + 0.0}",
                f"matrices no. {numbers} in the order of making",
            )
            self._check_same(*texts)
        return self._fixed.tobytes()

    def _check_same(self, *mine: str) -> None:
        """Raise, on every rank, the first of these texts that differs between ranks."""
        for texts in zip(*self.comm.allgather(mine)):
            other = next((rank for rank, text in enumerate(texts) if text != texts[0]), 0)
            if other:
                raise UsageError(
                    f"ranks differ: rank 0 has {texts[0]}, rank {other} {texts[other]}, in "
                    f"{self.what}. Give the same on every rank."
                )

    def check(self, fault: DrbenchError | None = None) -> None:
        """Raise on every rank the error of the first that cannot start, or that starts another
        operation (collective, if so)."""
        if self._all_start:
            return
        heard = self.comm.allgather((self.what, fault))
        for rank, (_, first) in enumerate(heard):
            if first is not None:
                text = str(first)
                raise type(first)(text if text.startswith("rank ") else f"rank {rank}: {text}")
        other = next(rank for rank, call in enumerate(heard) if call != heard[0])
        raise UsageError(
            f"ranks call in different order: rank 0 {heard[0][0]}, rank {other} {heard[other][0]}. "
            "Make the same calls in the same order on every rank."
        )

    @property
    def _all_start(self) -> bool:
        return self.agreed and not self._all[:, _REFUSED].any()

    @property
    def agreed(self) -> bool:
        """Whether all ranks start the same operation."""
        return bool((self._all[:, _NUMBER] == self._number).all())

    def locations(self, x: int) -> list[Location]:
        """The locations of array ``x`` on every rank, by the last handshake."""
        return [Location(*row) for row in self._all[:, 3 * x : 3 * x + 3].tolist()]
