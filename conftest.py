"""What holds for every run of pytest here. Examples of hypothesis are the same in each run, so that
a change is not refused for a case it has nothing to do with; ``--hypothesis-profile=explore`` draws
new ones. Left out: doctests of ``drbench.torch`` where torch is not here, which
``make test-torch`` brings."""

from importlib.util import find_spec

from hypothesis import settings

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.load_profile("repeatable")

collect_ignore_glob = [] if find_spec("torch") else ["drbench/torch", "drbench/torch/*"]
