"""Seconds of the experts of a mixture-of-experts layer on GPUs: their GEMMs, and the all-to-all
that brings tokens to the experts (dispatch) and results back (combine)."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, hypot, log2, prod

from . import DataSheet, Fitted

#: On every machine that was measured, the GEMMs of an expert with any rows take as long as if there
#: were so many more; and each multiprocessor computes at the end as many rows of so many columns.
_MORE_ROWS, _LAST_COLUMNS = 48, 128
#: Bytes of each element of a pair that are gathered, activated and scattered.
_PAIR_BYTES = 9


@dataclass(frozen=True)
class ExpertGemms(Fitted):
    """Grouped GEMMs of the experts of one GPU: tiles at the end of an expert are partly empty, and
    so are multiprocessors at the end of a GEMM.

    Attributes
    ----------
    launch_s : float
        Start of all kernels of a layer of experts: routing, two GEMMs, and the weighted sum.
    flops_share : float
        Share of the peak that full tiles reach.
    memory_share : float
        Share of the memory bandwidth at which weights are read.
    k_ramp : float
        Added to k: the start and end of a tile.
    token_bytes : float
        Moved for each element of a token by routing, quantisation and the sum.
    """

    launch_s: float
    flops_share: float
    memory_share: float
    k_ramp: float
    token_bytes: float

    def gemm_s(
        self,
        sheet: DataSheet,
        rows: Sequence[float],
        n: int,
        k: int,
        itemsize: int,
        results: bool = False,
    ) -> float:
        """Seconds of the GEMMs of experts, each of some rows times n×k weights, without a launch.

        Parameters
        ----------
        sheet : DataSheet
        rows : sequence of float
            Rows of each expert; below 1 the chance of a row.
        results : bool
            The results are written, too, as large as weights: gradients of weights.
        """
        used, every = sum(min(1.0, row) for row in rows), sum(rows)
        cells = (every + _MORE_ROWS * used) * n + sheet.units * _MORE_ROWS * _LAST_COLUMNS
        moved = used * n * k + every * n * results
        return hypot(
            2 * cells * (k + self.k_ramp) / (sheet.peak_flops * self.flops_share),
            moved * itemsize / (sheet.memory_bytes_per_s * self.memory_share),
        )

    def route_s(self, sheet: DataSheet, tokens: int, pairs: float, width: int) -> float:
        """Seconds of all kernels but the GEMMs, with the launches of all: routing, the gather of
        tokens, the function between the GEMMs, the scatter and the sum."""
        moved = width * (self.token_bytes * tokens + _PAIR_BYTES * pairs)
        return self.launch_s + moved / sheet.memory_bytes_per_s

    def seconds(
        self,
        sheet: DataSheet,
        rows: Sequence[float],
        tokens: int,
        width: int,
        inner: int,
        itemsize: int,
        gated: bool = True,
    ) -> float:
        """Seconds of a layer of experts on one GPU: width → inner (twice if gated) → width.

        Examples
        --------
        >>> from drbench.model.gemm import Compute
        >>> sheet = Compute(1e15, units=132, memory_bytes_per_s=3e12)
        >>> experts = ExpertGemms(2e-5, 0.8, 0.9, 500.0, 4.0)
        >>> few, many = (experts.seconds(sheet, [m] * 8, 8 * m, 4096, 1024, 2) for m in (1, 4096))
        >>> f"{1e6 * few:.0f} {1e6 * many:.0f}"
        '100 1914'
        """
        shapes = (inner * (1 + gated), width), (width, inner)
        seconds = self.route_s(sheet, tokens, sum(rows), width)
        seconds += sum(self.gemm_s(sheet, rows, n, k, itemsize) for n, k in shapes)
        return self.at_end(seconds, "any", tokens)


def count_groups(topk: int, experts: int, groups: int) -> float:
    """The expected number of different groups among the ``topk`` different experts of a token, all
    groups of one size.

    Examples
    --------
    >>> [round(count_groups(8, 256, groups), 3) for groups in (1, 8, 256)]
    [1.0, 5.295, 8.0]
    """
    groups, topk = min(groups, experts), min(topk, experts)
    others = experts - experts / groups
    return groups * (1 - prod(max(0, others - x) / (experts - x) for x in range(topk)))


@dataclass(frozen=True)
class ExpertExchange(Fitted):
    """One of DeepEP's kernels, dispatch in fp8 or combine in bfloat16, for throughput or for low
    latency; each GPU has its own tokens. The slowest of multiprocessors, NVLink and network counts,
    as a norm.

    Attributes
    ----------
    itemsize : int
        Bytes of an element on the way.
    launch_s : float
        Start.
    node_s : float
        Added for more than one node, for throughput for each doubling of nodes.
    copy_s : float
        Time of a multiprocessor for each copy of a token, without its bytes.
    unit_bytes_per_s : float
        Rate at which one multiprocessor copies.
    between_bytes_per_s : float
        Rate of a GPU between nodes.
    link_share : float
        Share of NVLink that is reached.
    own_copies : float
        For throughput: copies of a token here, and at each node that it visits.
    fill_tokens : float
        For throughput: a multiprocessor starts as if it had so many more tokens.
    most_nodes : float
        For throughput: with more nodes the rate between them falls.
    expert_s : float
        For low latency: added for each expert.
    """

    itemsize: int
    launch_s: float
    node_s: float
    copy_s: float
    unit_bytes_per_s: float
    between_bytes_per_s: float
    link_share: float = 1.0
    own_copies: float = 0.0
    fill_tokens: float = 0.0
    most_nodes: float = 1.0
    expert_s: float = 0.0

    def throughput_s(
        self,
        link_bytes_per_s: float,
        tokens: int,
        width: int,
        topk: int,
        experts: int,
        ranks: int,
        nodes: int,
        units: int,
    ) -> float:
        """Seconds for ``tokens`` of each rank, by ``units`` multiprocessors: a token goes once to
        each node of its experts, there over NVLink to each rank."""
        copies, visits = (count_groups(topk, experts, groups) for groups in (ranks, nodes))
        every = copies + self.own_copies * (1 + (nodes > 1) * visits)
        by_unit = (tokens / units + self.fill_tokens) * every
        remote = tokens * visits * (1 - 1 / nodes) * max(1.0, nodes / self.most_nodes)
        start_s = self.launch_s + self.node_s * log2(nodes)
        moved = by_unit, tokens * copies * (1 - nodes / ranks), remote
        return self._seconds(link_bytes_per_s, width, start_s, moved, nodes, tokens)

    def low_latency_s(
        self,
        link_bytes_per_s: float,
        tokens: int,
        width: int,
        topk: int,
        experts: int,
        ranks: int,
        nodes: int,
        units: int,
    ) -> float:
        """Seconds for ``tokens`` of each rank: a token goes to each of its experts directly, and a
        multiprocessor serves the same experts always. Dispatch prepares a token once."""
        pairs, used = tokens * topk, experts / ceil(experts / units)
        by_unit = (tokens if self.itemsize == 1 else pairs) / used
        start_s = self.launch_s + self.expert_s * experts + self.node_s * (nodes > 1)
        moved = by_unit, pairs / nodes * (1 - nodes / ranks), pairs * (1 - 1 / nodes)
        return self._seconds(link_bytes_per_s, width, start_s, moved, nodes, tokens)

    def _seconds(self, link, width: int, start_s: float, moved, nodes: int, tokens: int) -> float:
        """``moved``: copies by each multiprocessor, and tokens over NVLink and network."""
        copies, near, far = moved
        size = width * self.itemsize
        parts = (
            copies * (self.copy_s + size / self.unit_bytes_per_s),
            near * size / (link * self.link_share),
            far * size / self.between_bytes_per_s,
        )
        seconds = start_s + sum(part**3 for part in parts) ** (1 / 3)
        return self.at_end(seconds, str(nodes), tokens)
