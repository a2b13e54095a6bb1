"""Programs with signals and their options, and whether faults on purpose are noticed."""

from drbench.plan.signals import InboxPlan, plan_inbox
from drbench.program.signal_steps import Await

OVERLAP = (
    [("ag_gemm", {"variant": variant}) for variant in ("pull", "push", "ring")]
    + [("ag_gemm", {"variant": variant, "buffer": "symmetric"}) for variant in ("pull", "push")]
    + [("gemm_rs", {"variant": variant}) for variant in ("write", "reduce", "pull", "ring")]
    + [("gemm_rs", {"variant": how, "additions": "end"}) for how in ("write", "pull", "ring")]
    + [(name, {"dataflow": flow}) for name in ("te_chunks", "async_tp") for flow in ("AG", "RS")]
    + [("gemm_ar", {}), ("ag2", {"protocol": "ll", "inside": "ring"}), ("ag2", {"protocol": "ll"})]
    + [(name, {"inside": inside}) for name in ("ag2", "rs2") for inside in ("direct", "ring")]
)
WHOLE_EXPERTS, EXCHANGES = ("dispatch_moe", "moe_combine"), ("push", "pull", "separate")
EXPERTS = (
    [("ag_moe", {"variant": variant}) for variant in ("pull", "push", "ring")]
    + [("moe_rs", {"variant": variant}) for variant in ("write", "reduce", "pull", "ring")]
    + [("ag2_moe", {})]
    + [("moe_rs2", {"phases": phases}) for phases in ("overlapped", "separate")]
    + [(name, {"variant": variant}) for name in WHOLE_EXPERTS for variant in EXCHANGES]
)
#: Programs without overlap, for comparison.
COLLECTIVE = [("moe_collective", {"dataflow": flow}) for flow in ("AG", "RS")]


def unnoticed(run, cases, tries=4):
    """Cases for which ``run(cases)`` reports no wrong result. They are tried again: on a busy
    machine ranks may by chance run in the right order even without the waits."""
    for _ in range(tries):
        if cases:
            cases = [case for case, out in zip(cases, run(cases)) if not sum(out["wrong"])]
    return cases


def overlapping_slots(found, widths):
    """The plan of an inbox, with each slot given to two Awaits."""
    plan = plan_inbox(found, widths)
    waits = [t for t in plan.offsets if isinstance(found.steps[t], Await)]
    shared = {two: plan.offsets[one] for one, two in zip(waits[::2], waits[1::2])}
    return InboxPlan(plan.offsets | shared, plan.nbytes, plan.words)
