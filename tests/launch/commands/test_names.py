"""One name, one meaning, in every command."""

import pytest

from drbench.errors import UsageError
from launch.cases.sweep_values import scale_of


@pytest.mark.parametrize("text", ["16", "2", "1e3", "16.0", 16])
def test_a_bare_whole_number_is_no_scale(text):
    with pytest.raises(UsageError, match=r"write 1/\d+ .* or \d+/1"):
        scale_of(text)


@pytest.mark.parametrize(
    "command",
    [["sweep", "mlp1", "--dry-run"], ["sweep", "mlp"], ["sweep", "libraries"]],
    ids=["mlp1", "mlp", "libraries"],
)
@pytest.mark.parametrize("scale, says", [("16", "16/1"), ("x", "1/16"), ("-1/2", "1/16")])
def test_scale_means_one_thing(say, command, scale, says):
    assert says in say(*command, "--scale", scale).refusal()
