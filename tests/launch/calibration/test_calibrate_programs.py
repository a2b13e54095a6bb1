"""Whole programs of a calibration, on a made-up machine: a temporary disturbance does not change
the residuals."""

import pytest

from drbench.launch.calibration.programs import in_rounds
from drbench.launch.calibration.speed import SpeedNormalisation
from drbench.measure.noise import Timed

#: Seconds that programs take on the undisturbed machine.
TIMES = [0.02, 0.05, 0.01, 0.03, 0.04, 0.06]


class Made:
    """A machine that is slower by a factor between two times; each program starts after a tenth of
    a second of setup."""

    def __init__(self, slow: float, start: float, stop: float):
        self.now, self.slow, self.between, self.ran = 0.0, slow, (start, stop), []

    def _pass(self, seconds: float) -> float:
        low, high = self.between
        seconds *= self.slow if low <= self.now < high else 1.0
        self.now += seconds
        return seconds

    def run(self, seconds: float) -> float:
        self._pass(0.1)
        self.ran.append(seconds)
        return self._pass(seconds)

    def reference_s(self) -> Timed:
        return Timed(self._pass(0.01), 0.0)


def residuals(made: Made, rounds: int = 5) -> list[float]:
    found = in_rounds(TIMES, rounds, made.run, SpeedNormalisation(made.reference_s))
    return [took / time for took, time in zip(found, TIMES)]


def test_seconds_in_which_the_machine_is_half_as_fast_change_no_residual():
    for start, stop in ((0.0, 1.0), (1.3, 2.0), (3.0, 9.0)):
        found = residuals(Made(2.0, start, stop))
        assert max(abs(each - 1) for each in found) < 1e-9, (start, stop)


def test_a_disturbance_of_programs_alone_stays_in_the_residuals():
    made = Made(1.0, 0, 0)
    run = lambda seconds: made.run(seconds) * (1.5 if seconds == 0.05 else 1.0)
    found = in_rounds(TIMES, 3, run, SpeedNormalisation(made.reference_s))
    assert found == pytest.approx([0.02, 1.5 * 0.05, *TIMES[2:]])


def test_a_disturbance_that_the_reference_gemm_does_not_see_is_outvoted():
    made, times = Made(1.0, 0, 0), iter(range(100))
    run = lambda seconds: made.run(seconds) * (3.0 if next(times) < 10 else 1.0)
    found = in_rounds(TIMES, 5, run, SpeedNormalisation(made.reference_s))
    # 10 of 30 runs, two of the five of a program at most
    assert found == pytest.approx(TIMES)


def test_programs_run_in_another_order_each_round():
    made = Made(1.0, 0, 0)
    in_rounds(TIMES, 4, made.run, SpeedNormalisation(made.reference_s))
    rounds = [made.ran[at : at + 6] for at in range(0, 24, 6)]
    assert all(sorted(each) == sorted(rounds[0]) for each in rounds)
    assert len({tuple(each) for each in rounds}) > 1


def test_a_refused_program_is_not_tried_again_and_has_no_time():
    made = Made(1.0, 0, 0)
    asked = []

    def run(seconds):
        asked.append(seconds)
        return None if seconds == 0.01 else made.run(seconds)

    found = in_rounds(TIMES, 3, run, SpeedNormalisation(made.reference_s))
    assert found[2] is None and asked.count(0.01) == 1
    assert found[3:] == pytest.approx(TIMES[3:])


def test_gemms_and_programs_are_normalised_alike_whenever_the_machine_became_faster():
    """GEMMs that were measured while the machine was slow do not make predictions slow."""
    for until in (0.0, 2.0, 5.0, 100.0):
        made = Made(1.6, 0.0, until)
        speed = SpeedNormalisation(made.reference_s)
        speed.begin()
        gemms = [speed.around(lambda: made._pass(0.3)) for _ in range(9)]
        multiplication_s = speed.median(gemms)
        found = in_rounds(TIMES, 5, made.run, speed)
        ratios = [took / multiplication_s for took in found]
        assert ratios == pytest.approx([time / 0.3 for time in TIMES], rel=1e-6), until


def test_the_usual_speed_is_the_median_until_it_is_first_requested():
    times = iter([1.0, 2.0, 4.0, 8.0, 8.0, 8.0])
    speed = SpeedNormalisation(lambda: Timed(next(times), 0.0))
    for _ in range(3):
        speed.begin()
    assert speed.usual == 2.0
    for _ in range(3):
        speed.begin()
    assert speed.usual == 2.0 and speed.median([(8.0, 8.0)]) == 2.0
