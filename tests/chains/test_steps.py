"""Published training steps are predicted as well as the page says."""

import pandas as pd
import pytest
from starting import ROOT

import drbench
from benchmarks.model.steps import FILE, PUBLISHED, PublishedStep, predict, predict_quantity

ROWS = pd.read_csv(ROOT / "results/simulated/readings/steps.csv")
OFF = (ROWS.predicted / ROWS.published - 1).abs()
IS_TIME = ROWS.quantity.isin(("tokens/s", "s"))


def test_steps_are_within_the_bars_but_the_first_to_which_a_constant_is_fitted():
    fitted, *_ = OFF[IS_TIME]
    steps = OFF[IS_TIME].iloc[1:]
    assert fitted <= 0.001
    assert len(steps) == 17 and (steps <= 0.3).all() and (steps <= 0.15).mean() >= 0.8
    assert OFF[~IS_TIME].max() <= 0.12


def test_the_predictions_of_the_page_are_those_of_the_model():
    published = pd.read_csv(PUBLISHED)
    assert ROWS[published.columns].equals(published)
    for row in ROWS[ROWS.mesh == "dp=8"].iloc[-2:].itertuples():
        step = PublishedStep(*(getattr(row, name) for name in PublishedStep._fields))
        assert predict_quantity(step, row.quantity) == pytest.approx(row.predicted, rel=1e-3)


@pytest.mark.parametrize(
    "index, words",
    [
        (0, {"mesh": "dp=8", "tokens": 8 * 2 * 8192, "recompute": "selective"}),
        (8, {"mesh": "dp=32,tp=8", "tokens": 32 * 16 * 8192, "dtype": "float8"}),
    ],
)
def test_a_user_who_asks_for_the_same_step_gets_the_same_answer(index, words):
    row = pd.read_csv(PUBLISHED).iloc[index]
    step = PublishedStep(*row[[*PublishedStep._fields]])
    choice = drbench.chain(
        f"{step.model}:model",
        f"{FILE['machines'][step.machine]},memory_bytes=1e15",
        **{"backward": True, "gradients": "float32", "recompute": "full", "effort": 0} | words,
    )
    solution, predicted = choice.row(step.scheme).solution, predict(step)
    assert solution.total_s == pytest.approx(predicted.time_s, rel=0.01)
    assert solution.memory_bytes == pytest.approx(sum(predicted.memory.values()), rel=0.01)
