"""What pytest leaves out of the packages: the doctests of ``drbench.torch``, where torch is not
here; ``make test-torch`` brings it."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("torch") else ["drbench/torch"]
