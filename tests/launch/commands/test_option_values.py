"""Values of options as users type them."""

import shlex
from ast import literal_eval

import click
import pytest

from drbench.launch.cases.case import FIELDS
from drbench.launch.commands.options import BYTES, RANK, Value
from drbench.launch.libraries import known_options

KINDS = {
    "size": Value(FIELDS["m"]),
    "bytes": BYTES,
    "chunk": Value(known_options()["chunk"]["universal"]),
    "rank": RANK,
    "transport": Value(FIELDS["transport"]),
}
#: Values, and what they are read as.
READ = """
size       1=1  4096=4096  48Ki=49152  48ki=49152  1.5Ki=1536  2Mi=2097152  1Gi=1073741824
bytes      0=0  64MiB=67108864  64Mi=67108864  100=100  100B=100  2GiB=2147483648  0.5KiB=512
chunk      auto='auto'  none='none'  256=256  1Ki=1024
rank       all='all'  0=0  17=17
transport  auto='auto'  direct='direct'  rma='rma'  throttled:0.5,0='throttled:0.5,0'
"""
REFUSED = """
size       '' 0 -1 x 1.3 1e3 '4 096' 4,096 0.1Ki 4KiB Ki nan inf 0x10 ²
bytes      '' -1 x '64 mebibytes' 1.0001 GiB 64MB
chunk      '' 0 -1 some
rank       '' -1 first 1.0 ²
transport  '' tcp throttled throttled: throttled:1 throttled:0,1 throttled:1,-1 throttled:a,b
transport  throttled:1,2,3 throttled:nan,1 throttled:1,nan throttled:1,inf
"""


def cases(table):
    lines = map(shlex.split, table.strip().splitlines())
    return [(kind, text) for kind, *texts in lines for text in texts]


@pytest.mark.parametrize("kind, text", cases(READ.replace("'", "\\'")))
def test_a_value_is_read(kind, text):
    given, _, value = text.partition("=")
    assert KINDS[kind].convert(given, None, None) == literal_eval(value)


def test_spaces_and_numbers_are_read():
    assert KINDS["size"].convert(" 7 ", None, None) == 7
    assert BYTES.convert("1 TiB", None, None) == 1 << 40
    assert (KINDS["size"].convert(12, None, None), RANK.convert(3, None, None)) == (12, 3)


@pytest.mark.parametrize("kind, text", cases(REFUSED))
def test_an_invalid_value_is_refused(kind, text):
    """A rank of ``²``, and a latency of ``inf`` (such a transfer never completes), too."""
    with pytest.raises(click.BadParameter) as refusal:
        KINDS[kind].convert(text, None, None)
    assert repr(text) in str(refusal.value) and "\n" not in str(refusal.value)
