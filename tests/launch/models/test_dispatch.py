"""Programs of a library that Python dispatches include the time of the host."""

import pytest

from drbench.launch.cases.case import Case
from drbench.launch.models.intervals import vary_assumed
from drbench.launch.models.predict import predict, with_interval
from drbench.model.machine import Machine

SECTION = {
    "compute": {"peak_flops": 1e12, "launch_s": 1e-6},
    "links": {"wire": {"bandwidth_bytes_per_s": 1e10}},
}
EXPERTS = {"experts": 6, "topk": 2}


def seconds(case, dispatch_s):
    return predict(case, Machine.from_dict(SECTION | {"dispatch_s": dispatch_s}), 4).best_s


@pytest.mark.parametrize(
    "times, algorithm, options",
    [
        (1, "dtensor_mm", {}),
        (6, "moe_collective", EXPERTS | {"dataflow": "AG", "kernel": "parts"}),
        (6, "moe_collective", EXPERTS | {"dataflow": "RS", "kernel": "parts"}),
        (0, "moe_collective", EXPERTS | {"dataflow": "AG", "kernel": "fused"}),
        (0, "ag_moe", EXPERTS),
        (0, "collective", {}),
        (0, "universal", {}),
    ],
)
def test_the_device_waits_for_the_host_once_a_call_and_once_an_expert_of_a_loop(
    times, algorithm, options
):
    case = Case(128, 64, 96, algorithm=algorithm, options=options)
    assert seconds(case, 0.5) - seconds(case, 0.0) == pytest.approx(times * 0.5)


def test_the_interval_includes_an_assumed_host_time():
    case = Case(128, 64, 96, algorithm="dtensor_mm")
    section = SECTION | {"dispatch_s": 0.5, "assumed": ["dispatch_s"]}
    machine = Machine.from_dict(section | {"residuals": {"any": [1.0, 1.0, 1.0]}})
    found = with_interval(predict(case, machine, 4), case, machine, 4)
    faster, slower = (predict(case, end, 4).best_s for end in vary_assumed(machine))
    assert slower - faster == pytest.approx(0.75)
    assert (found.median_low_s, found.median_high_s) == pytest.approx((faster, slower))
