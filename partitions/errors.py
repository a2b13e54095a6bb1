"""The one exception of the package."""


class LayoutError(ValueError):
    """A layout that cannot exist, or an index outside one.

    The message is one line: what was asked, what it got, and the way out. It is
    fit to be printed as it is, without a traceback.

    Examples
    --------
    >>> from drbench.partitions import partition
    >>> partition("block:2x2", (8, 8), 3)
    Traceback (most recent call last):
    drbench.partitions.errors.LayoutError: block:2x2 needs 4 ranks a replica; 3 ranks in 1 replica \
give 3. Use block:1x3 or block:3x1, or 4 ranks.
    """
