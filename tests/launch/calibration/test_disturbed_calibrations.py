"""``drbench calibrate`` refuses to measure next to other work, and widens every interval where the
machine drifts."""

import statistics

import pytest
from busy import busy_cores

from drbench.errors import CaseFailed
from drbench.launch.calibration.here import widen_ratios
from drbench.launch.calibration.speed import DRIFT, SpeedNormalisation
from drbench.measure.noise import Timed
from drbench.model.fit import spread


def normalised(*took: Timed, due=1.0) -> SpeedNormalisation:
    """A speed normalisation after these measurements of the reference GEMM."""
    speed = SpeedNormalisation(iter(took).__next__, due)
    for _ in took:
        speed.begin()
    return speed


FINE, KEPT = Timed(1.0, 0.0, 1.0), Timed(2.5, 0.6, 1.0)


@pytest.mark.parametrize("kept, refused", [(0, False), (3, False), (6, True), (9, True)])
def test_disturbed_reference_gemms_are_refused_with_the_share_of_the_cores(kept, refused):
    speed = normalised(*[KEPT] * kept, *[FINE] * (9 - kept))
    if refused:
        with pytest.raises(CaseFailed, match=f"had 40 % of their cores, and {kept} of 9 "):
            speed.refuse_other_work()
    else:
        speed.refuse_other_work()


def test_ranks_that_share_cores_with_each_other_alone_are_calibrated():
    alone, shared = Timed(2.0, 0.5, 1.0), Timed(4.0, 0.75, 1.0)
    normalised(*[alone] * 9, due=0.5).refuse_other_work()
    normalised(*[shared] * 9, due=None).refuse_other_work()
    with pytest.raises(CaseFailed, match="had 50 % of their cores"):
        normalised(*[shared] * 9, due=0.5).refuse_other_work()
    SpeedNormalisation(lambda: FINE, 1.0).refuse_other_work()  # never measured


def test_intervals_of_a_machine_that_drifted_cover_both_speeds_and_steady_ones_do_not_change():
    residuals = [0.98, 1.0, 1.01, 1.03, 0.99]
    steady = normalised(*[FINE._replace(seconds=1 + DRIFT / 3 * (at % 2)) for at in range(20)])
    assert widen_ratios(residuals, steady.drift()) == residuals
    drifting = normalised(*[FINE._replace(seconds=1 + 0.4 * (at % 2)) for at in range(20)])
    low, high = drifting.drift()
    assert high / low == pytest.approx(1.4, rel=1e-6)
    wide = spread(widen_ratios(residuals, (low, high)))
    middle = statistics.median(residuals)
    assert wide[0] < low * middle and high * middle < wide[1]
    assert wide[1] / wide[0] > spread(residuals)[1] / spread(residuals)[0]


@pytest.mark.mpi
def test_next_to_busy_processes_calibrate_refuses_in_one_line_and_keeps_the_file(
    drbench, fault, tmp_path
):
    path = tmp_path / "mine.toml"
    path.write_text("[launch]\nranks = 2\n")
    words = [*"calibrate -p 2 --rounds 1 --save".split(), path]
    with busy_cores():
        line = drbench(*words, env=fault("fewest GEMMs"), timeout=150).refusal(5)
    # times of GEMMs that make no sense at all are refused before
    assert "of their cores, and" in line or "Measure when the machine is quiet" in line
    assert path.read_text() == "[launch]\nranks = 2\n"
