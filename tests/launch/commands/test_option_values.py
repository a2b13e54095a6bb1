"""Values of options as users type them."""

import click
import pytest

from launch.cases.case import FIELDS
from launch.commands.options import BYTES, RANK, Value
from launch.libraries import known_options

SIZE, TRANSPORT = Value(FIELDS["m"]), Value(FIELDS["transport"])
CHUNK = Value(known_options()["chunk"]["universal"])

KI, MI, GI, TI = 1 << 10, 1 << 20, 1 << 30, 1 << 40

READ = [
    (SIZE, "1", 1),
    (SIZE, "4096", 4096),
    (SIZE, "48Ki", 48 * KI),
    (SIZE, "48ki", 48 * KI),
    (SIZE, "1.5Ki", 1536),
    (SIZE, " 7 ", 7),
    (SIZE, "2Mi", 2 * MI),
    (SIZE, "1Gi", GI),
    (SIZE, 12, 12),
    (BYTES, "0", 0),
    (BYTES, "64MiB", 64 * MI),
    (BYTES, "64Mi", 64 * MI),
    (BYTES, "100", 100),
    (BYTES, "100B", 100),
    (BYTES, "2GiB", 2 * GI),
    (BYTES, "1 TiB", TI),
    (BYTES, "0.5KiB", 512),
    (CHUNK, "auto", "auto"),
    (CHUNK, "none", "none"),
    (CHUNK, "256", 256),
    (CHUNK, "1Ki", KI),
    (RANK, "all", "all"),
    (RANK, "0", 0),
    (RANK, "17", 17),
    (RANK, 3, 3),
    (TRANSPORT, "auto", "auto"),
    (TRANSPORT, "direct", "direct"),
    (TRANSPORT, "rma", "rma"),
    (TRANSPORT, "throttled:20,5", "throttled:20,5"),
    (TRANSPORT, "throttled:0.5,0", "throttled:0.5,0"),
]
REFUSED = [
    (
        SIZE,
        [
            "0",
            "-1",
            "",
            "x",
            "1.3",
            "1e3",
            "4 096",
            "4,096",
            "0.1Ki",
            "4KiB",
            "Ki",
            "nan",
            "inf",
            "0x10",
            "²",
        ],
    ),
    (BYTES, ["-1", "", "x", "64 mebibytes", "1.0001", "GiB", "64MB"]),
    (CHUNK, ["0", "-1", "some", ""]),
    (RANK, ["-1", "first", "", "1.0", "²"]),
    (
        TRANSPORT,
        [
            "",
            "tcp",
            "throttled",
            "throttled:",
            "throttled:1",
            "throttled:0,1",
            "throttled:1,-1",
            "throttled:a,b",
            "throttled:1,2,3",
            "throttled:nan,1",
            "throttled:1,nan",
            "throttled:1,inf",
        ],
    ),
]


@pytest.mark.parametrize(
    "kind, text, value", READ, ids=lambda value: getattr(value, "name", None) or repr(value)
)
def test_a_value_is_read(kind, text, value):
    assert kind.convert(text, None, None) == value


@pytest.mark.parametrize(
    "kind, text",
    [(kind, text) for kind, texts in REFUSED for text in texts],
    ids=lambda value: getattr(value, "name", None) or repr(value),
)
def test_an_invalid_value_is_refused(kind, text):
    """Refused: a rank of ``²`` and a latency of ``inf`` (such a transfer never completes)."""
    with pytest.raises(click.BadParameter) as refusal:
        kind.convert(text, None, None)
    assert repr(text) in str(refusal.value) and "\n" not in str(refusal.value)
