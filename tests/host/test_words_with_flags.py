"""A flagged value has arrived when each of its words has the flag of the run, in whatever order the
words are stored; no rank is started."""

import random
from types import SimpleNamespace

import numpy as np
import pytest

from drbench.host.inbox import Inbox, Route


def an_inbox(elements, dtype, epoch):
    """An inbox that waits for one flagged value, as step 7, in the run of that number."""
    inbox = object.__new__(Inbox)
    nbytes = elements * np.dtype(dtype).itemsize
    place, words = np.zeros(nbytes, np.uint8), np.zeros(nbytes // 4, np.uint64)
    inbox.flags, inbox.dues = np.zeros(1, np.int64), np.zeros(1)
    route = Route(1, 0, True, inbox.flags, inbox.dues, place, 0, 0, words)
    inbox.window = SimpleNamespace(sync=lambda: None)
    inbox.epoch, inbox.steps, inbox.routes = epoch, {0: 7}, {7: route}
    inbox._flagged, inbox._watched = {0: route}, np.ones(1, bool)
    inbox._staged = np.empty_like(words)
    return inbox, route


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("epoch", [1, 5, 2**32 + 2])
def test_a_value_arrives_with_its_last_word_whatever_the_order(dtype, epoch):
    chance = random.Random(f"{dtype} {epoch}")
    value = np.array([chance.random() for _ in range(5)]).astype(dtype)
    inbox, route = an_inbox(5, dtype, epoch)
    inbox.store_words(route, value, 0.25)
    stored, route.words[:] = route.words.copy(), 0
    order = chance.sample(range(stored.size), stored.size)
    for word in order:
        assert inbox.arrived() == [] and not inbox.flags.any()
        route.words[word] = stored[word]
    assert inbox.arrived() == [7] and inbox.dues[0] == 0.25
    assert (route.place.view(dtype) == value).all()
    assert inbox.arrived() == []  # once


def test_words_of_an_earlier_run_do_not_count():
    inbox, route = an_inbox(3, "float64", 4)
    inbox.store_words(route, np.arange(3.0), 0.0)
    inbox.epoch = 5
    assert inbox.arrived() == []
    inbox.store_words(route, np.ones(3), 0.0)
    assert inbox.arrived() == [7] and (route.place.view(float) == 1).all()
