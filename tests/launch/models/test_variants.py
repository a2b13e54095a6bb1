"""Cases on several models of a machine at once have the records of separate predictions."""

from dataclasses import replace

import pytest

from drbench.launch.cases.case import Case
from drbench.launch.cases.machine_models import find_machine
from drbench.launch.models.predict import predict
from drbench.launch.models.simulate_sweeps import legend_cases, predict_on

CASES = list(legend_cases("mlp2", 8, batches=(1024,)))[::97] + [
    case for case in legend_cases("mlp1", 8, batches=(1024,)) if case.algorithm != "universal"
]


def test_every_record_is_that_of_its_case_on_its_machine():
    machine = find_machine("h100x8")
    machines = [
        machine,
        machine.vary("links.nvlink.bandwidth_bytes_per_s", 0.1),
        machine.vary("accumulate_efficiency", 0.1).vary("compute.launch_s", 20),
    ]
    for changed, records in zip(machines, found := predict_on(machines, CASES, 8)):
        alone = [predict(case, changed, 8) for case in CASES]
        assert [replace(r, plan_s=None) for r in records] == [
            replace(r, plan_s=None) for r in alone
        ]
    times = {tuple(record.best_s for record in records) for records in found}
    assert len(times) == len(machines)


@pytest.mark.parametrize("transpose, more", [("", 0), ("a", 1), ("b", 2), ("ab", 3)])
def test_a_model_with_times_of_transposed_operands_uses_them_in_times_and_roofs(transpose, more):
    machine = find_machine("lumic")
    known = machine.with_value("compute.transposed_element_s", (1e-9, 2e-9))
    case = Case(256, 256, 256, transpose=transpose or None)
    plain, slower = predict(case, machine, 1), predict(case, known, 1)
    for column in ("best_s", "local_gemm_s"):
        longer = getattr(slower, column) - getattr(plain, column)
        assert longer == pytest.approx(256 * 256 * 1e-9 * more, rel=1e-6, abs=1e-15), column
