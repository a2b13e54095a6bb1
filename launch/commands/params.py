"""Values of command-line options, checked where they are read."""

from __future__ import annotations

import re

import click

from drbench.common import parse_transport
from drbench.errors import DrbenchError

__all__ = ["BYTES", "CHUNK", "FILE", "RANK", "SIZE", "TEXT", "TRANSPORT"]

_BINARY = {"": 1, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}


def _scaled(text: str, suffix: str = "") -> int | None:
    """A whole number with an optional binary prefix.

    Examples
    --------
    >>> _scaled("4096"), _scaled("48Ki"), _scaled("1.5Ki"), _scaled("2GiB", "b"), _scaled("-1")
    (4096, 49152, 1536, 2147483648, None)
    """
    found = re.fullmatch(
        r"(\d+(?:\.\d+)?)\s*(ki|mi|gi|ti)?" + (f"{suffix}?" if suffix else ""), text.strip().lower()
    )
    if not found:
        return None
    value = float(found[1]) * _BINARY[found[2] or ""]
    return int(value) if value == int(value) else None


class _Size(click.ParamType):
    name = "size"

    def convert(self, value, param, ctx):
        size = value if isinstance(value, int) else _scaled(value)
        if size is None or size < 1:
            self.fail(
                f"{value!r} is not an extent. Use a whole number of at least 1, such as 4096 or "
                "48Ki.",
                param,
                ctx,
            )
        return size


class _Bytes(click.ParamType):
    name = "bytes"

    def convert(self, value, param, ctx):
        size = value if isinstance(value, int) else _scaled(value, "b")
        if size is None:
            self.fail(f"{value!r} is not a number of bytes. Use for example 64MiB.", param, ctx)
        return size


class _Transport(click.ParamType):
    name = "auto|direct|rma|throttled:GBps,us"

    def convert(self, value, param, ctx):
        try:
            return str(parse_transport(value))
        except DrbenchError as error:
            self.fail(str(error), param, ctx)


class _Rank(click.ParamType):
    name = "rank|all"

    def convert(self, value, param, ctx):
        if value == "all" or isinstance(value, int):
            return value
        if not (value.isascii() and value.isdigit()):
            self.fail(f"{value!r} is not a rank. Use a number from 0 on, or all.", param, ctx)
        return int(value)


class _Chunk(click.ParamType):
    name = "size|auto|none"

    def convert(self, value, param, ctx):
        if value in ("auto", "none"):
            return value
        return SIZE.convert(value, param, ctx)


class _Text(click.ParamType):
    name = "text"

    def convert(self, value, param, ctx):
        if not value.strip():  # "$A" of a shell where A is not set
            self.fail("the text is empty. Leave the option out for its default.", param, ctx)
        return value


class _File(click.Path):
    def convert(self, value, param, ctx):
        return super().convert(TEXT.convert(str(value), param, ctx), param, ctx)


TEXT, FILE = _Text(), _File(dir_okay=False)
SIZE, BYTES, TRANSPORT, RANK, CHUNK = _Size(), _Bytes(), _Transport(), _Rank(), _Chunk()
