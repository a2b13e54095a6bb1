"""What the registry tells of the algorithms."""

import pytest

from algorithms import algorithms


@pytest.mark.parametrize("each", algorithms().values(), ids=lambda each: each.name)
def test_what_list_says_of_an_algorithm_is_whole_sentences_on_one_line(each):
    assert each.about.endswith(".") and "\n" not in each.about
