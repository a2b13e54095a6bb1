"""The one exception of the package, and an error that two of its modules raise."""


class LayoutError(ValueError):
    """A layout that cannot exist, or an index outside one.

    The message is one line: what was asked, what it got, and the way out. It is
    fit to be printed as it is, without a traceback.

    Examples
    --------
    >>> from drbench.partitions import partition
    >>> partition("block:2x2", (8, 8), 3)
    Traceback (most recent call last):
    drbench.partitions.errors.LayoutError: block:2x2 is for 4 ranks, got 3. Use block:1x3 or \
block:3x1.
    """


def needs_role(text: str, role: str | None) -> LayoutError:
    """The error of a layout that differs for A, B and C, where it is not known which it is for.

    Examples
    --------
    >>> raise needs_role("grid:2x2x1", None)
    Traceback (most recent call last):
    drbench.partitions.errors.LayoutError: grid:2x2x1 divides A, B and C differently, got role \
None. Make the layout by drbench.partitions.partition('grid:2x2x1', shape, ranks, role='A').
    """
    return LayoutError(
        f"{text} divides A, B and C differently, got role {role!r}. Make the layout by "
        f"drbench.partitions.partition({text!r}, shape, ranks, role='A')."
    )
