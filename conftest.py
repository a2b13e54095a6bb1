"""What holds for every run of pytest here. Examples of hypothesis are the same in each run, so that
a change is not refused for a case it has nothing to do with; ``--hypothesis-profile=explore`` draws
new ones. Left out: doctests of ``drbench.torch`` where torch is not here, which
``make test-torch`` brings."""

from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("hypothesis"):  # launch/gpu_check.sh needs none
    from hypothesis import settings

    settings.register_profile("repeatable", deadline=None, derandomize=True)
    settings.register_profile("explore", deadline=None)
    settings.load_profile("repeatable")

TORCH = Path(__file__).with_name("drbench") / "torch"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Doctests of ``drbench.torch`` are tests that need torch."""
    for item in items:
        if item.path.is_relative_to(TORCH):
            item.add_marker("torch")


collect_ignore_glob = [] if find_spec("torch") else ["drbench/torch", "drbench/torch/*"]
