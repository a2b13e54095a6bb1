"""Programs as Chakra execution traces, which ASTRA-sim replays: a file a rank, of messages of
Protocol Buffers, each after its length (MLCommons Chakra, ``schema/protobuf/et_def.proto``).

What is written are the operations of :mod:`.goal`: what takes time is a computation of so many
microseconds, what moves a send and a receive, what waits for what a data dependency.
"""

from collections.abc import Iterator, Sequence

from .goal import Op

#: Of the schema: the version that its own generator writes; kinds of nodes.
_VERSION = "0.0.4"
_KINDS = {"calc": 4, "send": 5, "recv": 6}
#: Numbers of the fields that are used.
_ID, _NAME, _TYPE, _DATA_DEPS, _DURATION, _ATTR = 1, 2, 3, 5, 7, 10
_INT32, _INT64, _BOOL = 7, 9, 27


def write_chakra(ops: Sequence[Sequence[Op]]) -> list[bytes]:
    """The file of each rank. Times are whole microseconds; what is rounded off is made up for by
    the next, so that the sums of a rank are right.

    Examples
    --------
    >>> ops = [[Op("send", 8, 1, 0)], [Op("recv", 8, 0, 0), Op("calc", 5400, after=(0,))]]
    >>> read_chakra(write_chakra(ops))[1]
    [Op(kind='recv', size=8, peer=0, tag=0, after=()), Op(kind='calc', size=5000, peer=-1, tag=-1, \
after=(0,))]
    """
    return [_file(rank, its) for rank, its in enumerate(ops)]


def _file(rank: int, ops: Sequence[Op]) -> bytes:
    out = bytearray(_delimited(_field(1, _VERSION.encode())))
    nanoseconds = 0
    for label, op in enumerate(ops):
        node = _field(_ID, label) + _field(_NAME, f"{op.kind} {label}".encode())
        node += _field(_TYPE, _KINDS[op.kind])
        if op.after:
            node += _field(_DATA_DEPS, b"".join(map(_varint, op.after)))
        attributes = {"is_cpu_op": (_BOOL, 0)}
        if op.kind == "calc":
            before, nanoseconds = nanoseconds, nanoseconds + op.size
            node += _field(_DURATION, round(nanoseconds / 1000) - round(before / 1000))
        else:
            ends = (rank, op.peer) if op.kind == "send" else (op.peer, rank)
            attributes["comm_size"] = _INT64, op.size
            for name, value in zip(("comm_src", "comm_dst", "comm_tag"), (*ends, op.tag)):
                attributes[name] = _INT32, value
        for name, (number, value) in attributes.items():
            node += _field(_ATTR, _field(1, name.encode()) + _field(number, value))
        out += _delimited(node)
    return bytes(out)


def read_chakra(files: Sequence[bytes]) -> list[list[Op]]:
    """The operations that :func:`write_chakra` wrote, times in nanoseconds."""
    return [[_op(node) for node in list(_messages(file))[1:]] for file in files]


def _op(node: bytes) -> Op:
    found = dict(_fields(node))
    names = {number: kind for kind, number in _KINDS.items()}
    kind, after = names[found[_TYPE]], tuple(_varints(found.get(_DATA_DEPS, b"")))
    if kind == "calc":
        return Op(kind, 1000 * found.get(_DURATION, 0), after=after)
    told = {}
    for number, value in _fields(node):
        if number == _ATTR:
            (_, name), (_, it) = _fields(value)
            told[name.decode()] = it
    peer = told["comm_dst" if kind == "send" else "comm_src"]
    return Op(kind, told["comm_size"], peer, told["comm_tag"], after)


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; all but the last have the highest bit set."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _delimited(message: bytes) -> bytes:
    return _varint(len(message)) + message


def _field(number: int, value: int | bytes) -> bytes:
    """A field of a message: its number and how it is written, then its value."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _delimited(value)


def _read(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins there, and where it ends."""
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at


def _varints(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _read(data, at)
        yield value


def _messages(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size, at = _read(data, at)
        yield data[at : at + size]
        at += size


def _fields(message: bytes) -> Iterator[tuple]:
    """(number, value) of the fields of a message."""
    at = 0
    while at < len(message):
        key, at = _read(message, at)
        value, at = _read(message, at)
        if key & 7:  # that was the length
            yield key >> 3, message[at : at + value]
            at += value
        else:
            yield key >> 3, value
