"""The simulator's rules once more, implemented slowly: at every instant all ranks, all steps and
all transfers are checked.

Knows DESIGN's rules 3 and 11 from the steps themselves: no scheduler, no queues, no events.
Machines are plain dictionaries of functions.
"""

from fractions import Fraction
from itertools import accumulate

from drbench.program.signal_steps import Await, Offer, Push, Take
from drbench.program.steps import Accumulate, Add, Copy, Fence, Gemm, Get, Part, Zero

LATE = 1e-12


def slow_simulate(
    traces,
    depth,
    gemm_s,
    memory_s,
    fence_s,
    send_s,
    latency_s,
    links_of,
    order=None,
    lane_of=lambda rank, step: None,
    signal_s=0.0,
    fair=False,
):
    """The time of the end.

    ``gemm_s(m, n, k)``, ``memory_s(bytes)``; ``send_s(source, target, bytes, adds)`` and
    ``latency_s(source, target)`` of a transfer, ``links_of(source, target)`` the set of its
    links. ``order`` of ranks decides which is first where several start a step at the same
    instant. Transfers with the same ``lane_of(rank, step)`` keep their order; ``signal_s`` is the
    time of a signal. If ``fair``, transfers share their links max-min fairly, in bytes.
    """
    item = traces[0].problem.itemsize
    steps = {(trace.rank, step.index): step for trace in traces for step in trace.steps}
    state = dict.fromkeys(steps, "waits")
    ends, leaves, links, asked = {}, {}, {}, []
    fenced = {trace.rank: trace.fences for trace in traces}
    rest, full = {}, {}  # of a transfer: seconds alone that are left; bytes a second alone
    seen, awaiting, summing = {}, [], []  # signals: when; who waits for one; sums
    queued, held = [], {}  # transfers in their lanes; until when a lane writes a signal

    def remote(rank, step):
        return step.signals or (step.block is not None and step.block.owner != rank)

    def value_of(rank, step):
        return (rank, step.peer, step.key) if step.sends else (step.peer, rank, step.key)

    def exposed(rank, step):
        if not step.computes:
            return False
        if depth == 0 or (type(step) is Gemm and step.block is None):
            return True
        operands = [value.location()[0] for value in step.inputs]
        return any(value.computes or remote(rank, value) for value in operands)

    # of each rank: which of its steps are exposed, how many of them come before each; its fences
    shown = {t.rank: {s.index for s in t.steps if exposed(t.rank, s)} for t in traces}
    counts = {t.rank: [0, *accumulate(exposed(t.rank, s) for s in t.steps)] for t in traces}
    fences = {t.rank: [(t.rank, s.index) for s in t.steps if type(s) is Fence] for t in traces}

    def touches(step):
        return type(step) is Fence or (step.block is not None and step.block.matrix == "C")

    def may_start(rank, step, earlier):
        """Whether a step may start: ``earlier`` are the steps before it that are not done."""
        if any(state[rank, value.index] != "done" for value in step.inputs):
            return False
        if fenced[rank] and touches(step):
            fence = type(step) is Fence
            if any(touches(s) if fence else type(s) is Fence for s in earlier):
                return False
        if type(step) is Await:
            return True
        if not step.computes:
            return sum(s.index in shown[rank] for s in earlier) <= depth
        for s in earlier:
            back = counts[rank][step.index] - counts[rank][s.index]
            if s.computes or back > depth or depth == 0:
                return False
        return True

    for (rank, t), step in steps.items():
        if isinstance(step, Get) and not remote(rank, step):
            state[rank, t] = "done"
    now, last = 0.0, 0.0
    while True:
        changed = True
        while changed:  # everything that can happen at this instant
            changed = False
            for key in sorted(leaves, key=lambda key: (leaves[key], key)):
                if leaves[key] <= now + LATE:
                    rank, t = key
                    source, target = ends_of(rank, steps[key])
                    left = leaves.pop(key)
                    ends[key] = left + latency_s(source, target)
                    del links[key]
                    changed = True
                    lane = lane_of(rank, steps[key])
                    if type(steps[key]) is Push:
                        seen[value_of(rank, steps[key])] = ends[key] + signal_s
                        left += signal_s
                    held[lane] = left
            for key in sorted(ends):
                if ends[key] <= now + LATE:
                    state[key], last, changed = "done", max(last, ends.pop(key)), True
            for trace in [traces[r] for r in order or range(len(traces))]:
                rank = trace.rank
                computing = any(state[rank, s.index] == "runs" for s in trace.steps if s.computes)
                left = [s for s in trace.steps if state[rank, s.index] != "done"]
                for at, step in enumerate(left):
                    key = rank, step.index
                    if state[key] != "waits" or (step.computes and computing):
                        continue
                    if not may_start(rank, step, left[:at]):
                        continue
                    computing = computing or step.computes
                    state[key], changed = "runs", True
                    if type(step) is Gemm:
                        (m, k), n = step.inputs[0].shape, step.inputs[1].shape[1]
                        ends[key] = now + gemm_s(m, n, k)
                    elif step.computes:
                        ends[key] = now + memory_s(_passes(step) * step.block.size * item)
                    elif type(step) is Fence:
                        state[key] = "fence"
                    elif type(step) is Part:
                        ends[key] = now
                    elif type(step) in (Await, Take):
                        awaiting.append(key)
                    elif type(step) is Offer:
                        ends[key], seen[value_of(rank, step)] = now, now + signal_s
                    elif type(step) is Push:
                        queued.append(key)
                    elif step.concurrent:
                        summing.append(key)
                    elif not remote(rank, step):
                        ends[key] = now + memory_s(
                            (3 if isinstance(step, Accumulate) else 2) * step.block.size * item
                        )
                    else:
                        queued.append(key)
            number = {
                rank: sum(state[key] in ("fence", "leaving", "done") for key in keys)
                for rank, keys in fences.items()
            }
            waiting = [key for keys in fences.values() for key in keys if state[key] == "fence"]
            if len(waiting) == len(traces) and len(set(number.values())) == 1:
                for key in waiting:
                    state[key], ends[key], changed = "leaving", now + fence_s, True
            for key in list(awaiting):
                if seen.get(value_of(key[0], steps[key]), now + 1) <= now + LATE:
                    awaiting.remove(key)
                    changed = True
                    if type(steps[key]) is Take:
                        queued.append(key)
                    else:
                        ends[key] = now
            for key in list(summing):  # one after another on each rank
                if not any(r == key[0] and steps[r, t].concurrent for r, t in ends):
                    summing.remove(key)
                    nbytes = _passes(steps[key]) * steps[key].block.size * item
                    ends[key], changed = now + memory_s(nbytes), True
            for key in list(queued):  # asked for when those before it in its lane are through
                lane = lane_of(key[0], steps[key])
                of_lane = (lane_of(r, steps[r, t]) == lane for r, t in [*asked, *leaves])
                if lane is None or not (any(of_lane) or held.get(lane, 0.0) > now + LATE):
                    queued.remove(key)
                    asked.append(key)
                    changed = True
            for key in list(asked):  # in the order they were asked for
                rank, step = key[0], steps[key]
                source, target = ends_of(rank, step)
                needs = links_of(source, target)
                if fair or not any(needs & taken for taken in links.values()):
                    asked.remove(key)
                    links[key] = needs
                    nbytes = size(step) * item
                    rest[key] = send_s(source, target, nbytes, isinstance(step, Accumulate))
                    full[key] = nbytes / rest[key]
                    leaves[key] = now + rest[key]
                    changed = True
        speed = {}
        if fair:
            going = list(leaves)
            speed = dict(zip(going, filled([(full[x], dict.fromkeys(links[x], 1)) for x in going])))
            leaves.update((key, now + rest[key] / float(speed[key])) for key in going)
        coming = [*ends.values(), *leaves.values()]
        coming += [when for when in (*seen.values(), *held.values()) if when > now + LATE]
        if not coming:
            break
        for key in speed:
            rest[key] -= float(speed[key]) * (min(coming) - now)
        now = min(coming)
    assert all(each == "done" for each in state.values()), "steps are left"
    return last


def _passes(step):
    """Return the reads and writes of each element of a block."""
    return len(step.terms) + 2 if type(step) is Add else {Copy: 2, Zero: 1}[type(step)]


def slow_on(machine, traces, depth, order=None, *lanes):
    """:func:`slow_simulate` of programs on a machine with a near and a far link."""
    link, links_of = ways(*machine.links)
    return slow_simulate(
        traces,
        depth,
        lambda m, n, k: machine.compute.gemm_s(m, n, k, traces[0].problem.itemsize),
        machine.compute.memory_s,
        machine.fence_s,
        lambda a, b, nbytes, adds: (
            nbytes
            / link(a, b).bandwidth_bytes_per_s
            / (machine.accumulate_efficiency if adds else 1)
        ),
        lambda a, b: link(a, b).latency_s,
        links_of,
        order,
        *lanes,
        fair=machine.arbitration == "fair",
    )


def filled(flows):
    """Progressive filling in fractions: all flows rise together, byte for byte, until one is at its
    full rate or a link is full; those are then fixed, and the others rise further.

    ``flows``: (bytes a second alone, {link: part of it used then}); the results are parts of the
    full rate.
    """
    full = [Fraction(rate) for rate, _ in flows]
    takes = [
        {link: Fraction(share) / rate for link, share in uses.items()}
        for rate, (_, uses) in zip(full, flows)
    ]
    found, rising = [Fraction(0)] * len(flows), set(range(len(flows)))
    while rising:
        used = lambda link, of: sum(takes[f].get(link, 0) * found[f] for f in of)
        slope = lambda link: sum(takes[f].get(link, 0) for f in rising)
        everyone = range(len(flows))
        crossed = {link for f in rising for link in takes[f]}
        more = min(
            [full[f] - found[f] for f in rising]
            + [(1 - used(link, everyone)) / slope(link) for link in crossed]
        )
        for f in rising:
            found[f] += more
        at_end = {link for link in crossed if used(link, everyone) == 1}
        rising = {f for f in rising if found[f] < full[f] and not at_end & takes[f].keys()}
    return [rate / most for rate, most in zip(found, full)]


def size(step):
    """Elements that a step moves."""
    if step.block is not None:
        return step.block.size
    rows, cols = (step.inputs[0] if step.sends else step).shape
    return rows * cols


def ends_of(rank, step):
    if step.signals:
        return (rank, step.peer) if step.sends else (step.peer, rank)
    return (step.block.owner, rank) if isinstance(step, Get) else (rank, step.block.owner)


def ways(near, far):
    """``link(a, b)`` and ``links_of(source, target)`` of pairs of ranks joined by one link class,
    and of all others by another."""

    def link(a, b):
        return near if a // 2 == b // 2 else far

    def links_of(source, target):
        kind = link(source, target)
        if kind.shared == "pair":
            return {(kind.name, source, target)}
        per = kind.node if kind.shared == "node" else 1
        return {(kind.name, "out", source // per), (kind.name, "in", target // per)}

    return link, links_of
