"""The steps of fused overlap: a value put into another rank's memory with a signal, and a value
stored for another rank, which pulls it after a signal.

============  ==================================================  =================================
step          meaning                                             in the papers
============  ==================================================  =================================
``Push``      put a token into a slot of a rank's inbox, and      putmem_signal; FLUX's Write
              signal it
``Await``     wait for that; the token is the value in the slot   signal_wait_until, consume_token
``Offer``     keep a token where a rank may read it, and signal   FLUX's pull on Hopper
              it
``Take``      wait for that, and read it                          getmem after a wait
============  ==================================================  =================================

Each Push has one Await and each Offer one Take, by the two ranks and the ``key``: Push(token, q, x)
of rank p matches Await(p, x, shape) of rank q. :mod:`drbench.plan.signals` matches them and
refuses programs whose ranks wait for each other in a circle.

Every slot is written once a run, so that no signal is needed to free it: the barrier between runs
does. (Liu et al., FLUX, 2024, §3 and §4; Zheng et al., Triton-distributed, 2025, §2 and §3.)

A *flagged* Push needs no signal after the value, but twice the bytes: every word of eight bytes has
four bytes of the value and the flag of this run, and is stored at once. The receiver waits until
every word has the flag (the LL protocol of NCCL; Triton-distributed, §3.4).
"""

from collections.abc import Hashable

from .steps import Block, Step


class Signal(Step):
    """The base class of the four.

    Attributes
    ----------
    peer : int
        Global rank at the other end.
    key : hashable
        Names the value between the two ranks; once a run.
    kind : str
        ``"push"`` (Push and Await) or ``"offer"`` (Offer and Take).
    sends : bool
        True at the end whose rank makes the value.
    """

    __slots__ = ("inputs", "peer", "key")
    peer: int
    key: Hashable
    kind: str
    sends: bool
    signals = True


class _Sent(Signal):
    """The end whose rank makes ``token``."""

    __slots__ = ()
    does = "send"
    sends = True

    def __init__(self, token: Step, to: int, key: Hashable):
        self.inputs, self.peer, self.key = (token,), to, key

    def __repr__(self):
        return f"{type(self).__name__}(%{self.inputs[0].index} to {self.peer}, {self.key!r})"


class _Received(Signal):
    """The end that receives the value. ``receives``: the block that arrives (the owner in the block
    is where it was stored at the start), or the shape of a GEMM's result."""

    __slots__ = ("shape", "like", "transposed")
    sends = False

    def __init__(self, source: int, key: Hashable, receives: Block | tuple[int, int]):
        self.inputs, self.peer, self.key = (), source, key
        if isinstance(receives, Block):
            self.shape, self.like, self.transposed = (
                receives.shape,
                receives.matrix,
                receives.transposed,
            )
        else:
            self.shape, self.like, self.transposed = receives, None, False

    def __repr__(self):
        rows, cols = self.shape
        return f"{type(self).__name__}(from {self.peer}, {self.key!r}, {rows}x{cols})"


class Push(_Sent):
    """Put a token into its slot of another rank's inbox and signal it; complete when the token's
    memory may be used again.

    ``again``: it follows a Push of the same token to another rank of the node; a switch that copies
    stores to all ranks needs to be given a flagged value only once.
    """

    __slots__ = ("flagged", "again")
    kind = "push"
    counter = "put_bytes"

    def __init__(
        self, token: Step, to: int, key: Hashable, flagged: bool = False, again: bool = False
    ):
        super().__init__(token, to, _named(key, flagged))
        self.flagged, self.again = flagged, again

    def moved(self, rank):
        rows, cols = self.inputs[0].shape
        return [(self.peer, rows * cols)]


class Await(_Received):
    """Wait until a Push has arrived; the token is the value in the slot, which is valid for the
    rest of the run.

    It may start at any time, and only steps that use its value wait for it: neither the look-ahead
    nor the queue of a group delays it.
    """

    __slots__ = ("flagged",)
    does = "wait"
    kind = "push"
    nonblocking = True

    def __init__(
        self,
        source: int,
        key: Hashable,
        receives: Block | tuple[int, int],
        flagged: bool = False,
    ):
        super().__init__(source, _named(key, flagged), receives)
        self.flagged = flagged

    def elements(self):
        return 0  # a slot is not in the arena


def _named(key: Hashable, flagged: bool) -> Hashable:
    """The name of a value, another one if it is flagged: both ends must be."""
    return (key, "flagged") if flagged else key


class Offer(_Sent):
    """Keep a computed token in memory that another rank reads, for the rest of the run, and signal
    it."""

    __slots__ = ()
    kind = "offer"


class Take(_Received):
    """Wait for an Offer, and read it: in place if its memory is mapped, else by a copy."""

    __slots__ = ()
    does = "fetch"
    kind = "offer"
    counter = "get_bytes"
    views = True

    @property
    def owner(self) -> int:
        """Global rank in whose memory the value is."""
        return self.peer

    def moved(self, rank):
        rows, cols = self.shape
        return [(self.peer, rows * cols)]
