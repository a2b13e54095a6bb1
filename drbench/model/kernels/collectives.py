"""Seconds of NCCL's collectives, and of the all-reduce kernels of inference engines."""

from dataclasses import dataclass
from math import inf, log2

from . import Fitted

#: What NCCL counts with when it chooses among LL, LL128 and Simple (src/graph/tuning.cc of
#: github.com/NVIDIA/nccl): seconds of the start, of a hop in a node, of a hop between nodes.
_COUNTED = (6.6e-6, 0.6e-6, 2.7e-6), (14e-6, 1.9e-6, 4e-6), (8.4e-6, 3.4e-6, 14e-6)
#: The same source: shares of the link for LL128 and Simple.
_COUNTED_SHARES = 0.736, 0.8
#: Of every machine that was measured: bytes per second of one channel with LL; the time of a rank's
#: own part, which it copies, to that of another's; a hop of Simple and a peer of an exchange, in
#: hops of LL; the share of its bytes that an exchange sends more slowly until it is in full flow.
_LL_BYTES_PER_S, _OWN_SHARE, _SIMPLE_HOPS, _PEER_HOPS, _SLOW_SHARE = 6.4e9, 0.45, 3.5, 0.4, 0.5
#: NCCL does not use the switch for so few ranks.
_MOST_IN_RINGS = 4


@dataclass(frozen=True)
class Nccl(Fitted):
    """NCCL on a machine: rings in the protocol that it chooses, sums in the switch (NVLS) where
    that is faster, and direct sends.

    There are no measurements of broadcast, reduce and shift, which are modelled as rings and sends
    of as many bytes on each link; nor of several nodes: their hops are those that NCCL counts with,
    and each GPU has a card.

    Attributes
    ----------
    link_bytes_per_s : float
        NVLink of a GPU in one direction, by its data sheet.
    counted_ll_bytes_per_s : float
        The rate of LL that NCCL counts with (its llMaxBws).
    launch_s : float
        Start and end of a ring.
    hop_s : float
        From one rank to the next, protocols LL and LL128.
    wide_s : float
        LL on many channels, or LL128, takes so much longer to start than LL on one.
    wide_bytes_per_s : float
        The rate of their buffer.
    simple_s : float
        Simple takes so much longer to start than LL on one channel.
    link_share : float
        Share of the link that rings reach with Simple.
    exchange_launch_s : float
        Start of an all-to-all or a shift.
    exchange_simple_s : float
        Simple takes so much longer to start than LL, in an exchange.
    exchange_link_share : float
        Share of the link that exchanges reach.
    switch_s : float
        An all-reduce in the switch takes so much longer to start than LL.
    switch_link_share : float
        The rate of its buffer over that of the link; 0: the switch cannot add.
    network_bytes_per_s : float
        Of the network card of one GPU; inf: there is one node.

    Examples
    --------
    >>> nccl = Nccl(4.5e11, 1.4e11, 4e-6, 8e-7, 1e-6, 2.5e11, 1e-5, 0.8, 6e-6, 5e-6, 0.8)
    >>> for operation in ("allgather", "allreduce", "alltoall"):
    ...     print(operation, *(f"{1e6 * nccl.seconds(operation, x, 8):.3g}" for x in (1e3, 1e9)))
    allgather 9.74 2.62e+03
    allreduce 15.3 5.07e+03
    alltoall 8.26 2.61e+03
    """

    link_bytes_per_s: float
    counted_ll_bytes_per_s: float
    launch_s: float
    hop_s: float
    wide_s: float
    wide_bytes_per_s: float
    simple_s: float
    link_share: float
    exchange_launch_s: float
    exchange_simple_s: float
    exchange_link_share: float
    switch_s: float = 0.0
    switch_link_share: float = 0.0
    network_bytes_per_s: float = inf

    def seconds(
        self,
        operation: str,
        nbytes: float,
        ranks: int,
        nodes: int = 1,
        itemsize: int = 2,
        cards: int = 0,
    ) -> float:
        """Seconds of an operation of ``ranks`` GPUs on ``nodes`` nodes.

        Parameters
        ----------
        operation : str
            allgather, reducescatter, allreduce, broadcast, reduce, alltoall or shift.
        nbytes : float
            Of a rank's whole buffer: the result of allgather, the input of reducescatter, all that
            a rank has before alltoall or sends in shift.
        itemsize : int
            Of the elements: the switch adds none of one byte.
        cards : int
            The fewest ranks on a node, each with its card; 0: as many on each node.
        """
        if ranks == 1:
            return 0.0
        cards = cards or ranks // nodes
        if operation in ("alltoall", "shift"):
            seconds = self._exchange_s(operation, nbytes, ranks, nodes, cards)
        else:
            seconds = self._ring_s(operation, nbytes, ranks, nodes, cards)
            adds = operation == "allreduce" and itemsize > 1 and ranks > _MOST_IN_RINGS
            if adds and nodes == 1 and self.switch_link_share:
                rate = self.switch_link_share * self.link_bytes_per_s
                seconds = min(seconds, self.launch_s + self.switch_s + nbytes / rate)
        return self.at_end(seconds, operation, nbytes)

    def _ring_s(self, operation: str, nbytes: float, ranks: int, nodes: int, cards: int) -> float:
        """Seconds of a ring in the protocol that NCCL chooses."""
        part, link = nbytes / ranks, self.link_bytes_per_s
        passes, near, far = 1, ranks - nodes, float(nodes - 1)
        if operation == "allreduce":  # up and down a tree of chains
            passes, near, far = 2, 2 * (-(-ranks // nodes) - 1), 2 * log2(nodes)
        whole = operation in ("broadcast", "reduce")  # each link moves all
        steps, own = (ranks, 0.0) if whole else (passes * (ranks - 1), _OWN_SHARE)
        far_s = part * steps / (cards * self.network_bytes_per_s) if nodes > 1 else 0.0
        rates = self.counted_ll_bytes_per_s, *(share * link for share in _COUNTED_SHARES)
        counted_s = [
            start + near * hop + far * far_hop + max(part * steps / rate, far_s)
            for (start, hop, far_hop), rate in zip(_COUNTED, rates)
        ]
        chosen = counted_s.index(min(counted_s))
        one_s = part * (ranks - 1) / _LL_BYTES_PER_S
        wide_s = self.wide_s + nbytes * passes / self.wide_bytes_per_s
        low_s = max(min(one_s, wide_s), far_s) + near * self.hop_s + far * _COUNTED[chosen > 0][2]
        simple_s = max(part * (steps + own) / (self.link_share * link), far_s)
        simple_s += self.simple_s + near * _SIMPLE_HOPS * self.hop_s + far * _COUNTED[2][2]
        return self.launch_s + (low_s, min(low_s, simple_s), simple_s)[chosen]

    def _exchange_s(
        self, operation: str, nbytes: float, ranks: int, nodes: int, cards: int
    ) -> float:
        """Seconds of sending directly to all others, or to a neighbour."""
        peers, far, own, part = ranks - 1, ranks - cards, _OWN_SHARE, nbytes / ranks
        if operation == "shift":
            peers, far, own, part = 1, int(nodes > 1), 0.0, nbytes
        sent_s = part * (peers + own) / (self.exchange_link_share * self.link_bytes_per_s)
        near_s = sent_s + min(part / _LL_BYTES_PER_S, self.exchange_simple_s)
        near_s += min(_SLOW_SHARE * sent_s, self.simple_s)
        far_s = (nodes > 1) * _COUNTED[2][2] + far * part / self.network_bytes_per_s
        return self.exchange_launch_s + peers * _PEER_HOPS * self.hop_s + max(near_s, far_s)


@dataclass(frozen=True)
class AllReduceKernel(Fitted):
    """The all-reduce kernel of an inference engine on one node: every rank reads all buffers (one
    shot), or reduces a part and gathers (two shots); large sums are NCCL's.

    Attributes
    ----------
    link_bytes_per_s : float
        NVLink of a GPU in one direction, by its data sheet.
    launch_s : float
        Start, replayed in a CUDA graph.
    link_share : float
        Share of the link that reads reach.
    most_bytes : float
        Larger sums are NCCL's.
    two_shot_s : float
        Two shots take so much longer to start than one; inf: always one shot.
    least_ranks : int
        Fewer ranks use the kernel for sums of any size.
    host_s : float
        Least time between two calls without a graph; 0: no such calls were measured.
    copy_bytes_per_s : float
        Rate at which a call without a graph copies its input, and its result.
    """

    link_bytes_per_s: float
    launch_s: float
    link_share: float
    most_bytes: float
    two_shot_s: float = inf
    least_ranks: int = 2
    host_s: float = 0.0
    copy_bytes_per_s: float = inf

    def seconds(self, nbytes: float, ranks: int, nccl_s: float, eager: bool = False) -> float:
        """Seconds of an all-reduce of ``nbytes`` that takes NCCL ``nccl_s``; ``eager``: called from
        the host each time, not in a graph."""
        part_s = nbytes / (self.link_share * self.link_bytes_per_s)
        two_s = self.two_shot_s + 2 * (1 - 1 / ranks) * part_s
        own_s = self.launch_s + min((ranks - 1) * part_s, two_s)
        if eager:
            copy_s = 2 * nbytes / self.copy_bytes_per_s
            own_s, nccl_s = (max(self.host_s, taken + copy_s) for taken in (own_s, nccl_s))
        own_s = self.at_end(own_s, "eager" if eager else "graph", nbytes)
        if ranks < self.least_ranks:
            return own_s
        return nccl_s if nbytes >= self.most_bytes else min(own_s, nccl_s)
