"""Names, options and descriptions in the registry of algorithms."""

import pytest

from drbench.algorithms import algorithms, get_algorithm, registry
from drbench.errors import UnsupportedError, UsageError
from drbench.options import Option
from drbench.program.problem import Problem


@pytest.mark.parametrize("each", algorithms().values(), ids=lambda each: each.name)
def test_the_description_of_an_algorithm_is_whole_sentences_on_one_line(each):
    assert each.description.endswith(".") and "\n" not in each.description


@pytest.fixture
def known(monkeypatch):
    """The registry, restored after the test."""
    algorithms()
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))


def empty(problem, rank, **options):
    """A program without steps."""
    yield from ()


def test_options_without_a_value_have_their_default(known):
    options = Option("first", ("A", "B"), "B"), Option("width", int)
    registry.algorithm("empty", options=options)(empty)
    assert get_algorithm("empty").resolve(Problem(8, 8, 8, 2), width=3) == {
        "first": "B",
        "width": 3,
    }


def test_a_second_program_of_a_name_is_refused(known):
    with pytest.raises(UsageError, match=r"registers 'fsdp', which drbench.algorithms.fsdp has"):
        registry.algorithm("fsdp")(empty)


@pytest.mark.parametrize("name", ["a", "b"])
def test_an_algorithm_that_refuses_nothing_gets_no_pending_sum(known, name):
    """It would use one term as the whole matrix."""
    registry.algorithm("empty")(empty)
    with pytest.raises(UnsupportedError, match="Partial: its sum is pending"):
        get_algorithm("empty").resolve(Problem(8, 8, 8, 2, **{name: "P"}))
