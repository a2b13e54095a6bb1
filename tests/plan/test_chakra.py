"""Programs as Chakra traces: Protocol Buffers' own library reads what is written, and they are
those in GOAL."""

import json
import struct

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, unknown_fields
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithms import get_algorithm
from drbench.plan.chakra import read_chakra, write_chakra
from drbench.plan.goal import Op, goal_ops, read_goal
from drbench.program.problem import Problem
from launch.commands.cli import main

#: The fields of the schema of MLCommons Chakra that its reader for ASTRA-sim looks at: number,
#: type, and whether there may be several.
NODE = {
    "id": (1, "UINT64", False),
    "name": (2, "STRING", False),
    "type": (3, "INT32", False),  # an enumeration, written alike
    "data_deps": (5, "UINT64", True),
    "duration_micros": (7, "UINT64", False),
    "attr": (10, "MESSAGE", True),
}
ATTRIBUTE = {
    "name": (1, "STRING", False),
    "int32_val": (7, "INT32", False),
    "int64_val": (9, "INT64", False),
    "bool_val": (27, "BOOL", False),
}
METADATA = {"version": (1, "STRING", False)}


@pytest.fixture(scope="module")
def schema():
    """The classes of the messages by name."""
    file = descriptor_pb2.FileDescriptorProto(name="et.proto", package="et", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    described = {"Node": NODE, "AttributeProto": ATTRIBUTE, "GlobalMetadata": METADATA}
    for message, fields in described.items():
        made = file.message_type.add(name=message)
        for name, (number, kind, several) in fields.items():
            field = made.field.add(name=name, number=number, type=getattr(kinds, f"TYPE_{kind}"))
            field.label = kinds.LABEL_REPEATED if several else kinds.LABEL_OPTIONAL
            if kind == "MESSAGE":
                field.type_name = ".et.AttributeProto"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"et.{name}"))
        for name in described
    }


def messages(data):
    """What lies in a file, message by message, each after its length."""
    at = 0
    while at < len(data):
        size = shift = 0
        while True:
            (byte,) = struct.unpack_from("B", data, at)
            size, at, shift = size | (byte & 127) << shift, at + 1, shift + 7
            if byte < 128:
                break
        yield data[at : at + size]
        at += size


def told(schema, data):
    """(operations, names of their ranks' ends) of a file, as the library reads it."""
    first, *nodes = messages(data)
    assert schema["GlobalMetadata"].FromString(first).version == "0.0.4"
    found = []
    for label, each in enumerate(nodes):
        node = schema["Node"].FromString(each)
        assert node.id == label and not len(unknown_fields.UnknownFieldSet(node))
        attributes = {it.name: it for it in node.attr}
        assert not attributes.pop("is_cpu_op").bool_val
        values = {
            name: it.int64_val if name == "comm_size" else it.int32_val
            for name, it in attributes.items()
        }
        found.append((node.type, node.duration_micros, tuple(node.data_deps), values))
    return found


numbers = st.integers(0, 2**31 - 1)
ways = st.builds(Op, st.sampled_from(["send", "recv"]), st.integers(1, 2**40), numbers, numbers)
its = st.lists(
    st.one_of(ways, st.integers(0, 10**9).map(lambda time: Op("calc", time))), max_size=12
)


@settings(max_examples=20)
@given(its, st.data())
def test_any_operations_are_read_by_the_library_and_back(schema, ops, data):
    ops = [
        op._replace(after=tuple(sorted(data.draw(st.sets(st.integers(0, x - 1)))) if x else ()))
        for x, op in enumerate(ops)
    ]
    (file,) = write_chakra([ops])
    seen = told(schema, file)
    again = read_chakra([file])[0]
    assert len(seen) == len(again) == len(ops)
    micros = 0
    for op, back, (kind, duration, after, values) in zip(ops, again, seen):
        assert (kind, after) == ({"calc": 4, "send": 5, "recv": 6}[op.kind], op.after)
        if op.kind == "calc":
            assert values == {} and abs(duration - op.size / 1000) <= 1
            assert back == op._replace(size=1000 * duration)
            micros += duration
            continue
        ends = {"comm_src": 0, "comm_dst": op.peer}
        if op.kind == "recv":
            ends = {"comm_src": op.peer, "comm_dst": 0}
        assert values == {"comm_size": op.size, "comm_tag": op.tag, **ends}
        assert back == op and not duration
    total = sum(op.size for op in ops if op.kind == "calc")
    assert abs(micros - total / 1000) <= 0.5  # what is rounded off does not add up


def test_the_program_is_that_in_goal(tmp_path, capsys):
    case = "simulate -m 512 -n 512 -k 512 -p 4 --machine h100x8 --preset row --stationary B"
    files = ["--goal", str(tmp_path / "p.goal"), "--chakra", str(tmp_path / "p")]
    assert main([*case.split(), "--json", *files]) == 0
    record = json.loads(capsys.readouterr().out)
    ops = read_goal((tmp_path / "p.goal").read_text())
    found = read_chakra([(tmp_path / f"p.{rank}.et").read_bytes() for rank in range(4)])
    assert not (tmp_path / "p.4.et").exists()
    for mine, theirs in zip(ops, found, strict=True):
        assert [op._replace(size=0) if op.kind == "calc" else op for op in mine] == [
            op._replace(size=0) if op.kind == "calc" else op for op in theirs
        ]
        seconds = [sum(op.size for op in its if op.kind == "calc") for its in (mine, theirs)]
        assert abs(seconds[0] - seconds[1]) <= 500
    received = sum(op.size for its in found for op in its if op.kind == "recv" and op.size > 1)
    assert received == record["get_bytes"] + record["accumulate_bytes"]


def test_a_file_that_cannot_be_made_and_a_program_with_collectives_are_said_in_one_line(
    tmp_path, capsys
):
    case = "simulate -m 64 -n 64 -k 64 -p 4 --machine h100x8".split()
    assert main([*case, "--chakra", "/no/such/folder/p"]) == 2
    said = capsys.readouterr().err
    assert "--chakra" in said and said.count("\n") == 1
    prefix = tmp_path / "p"
    for words in (["--algorithm", "collective"], ["--signals", "always", "--stationary", "B"]):
        assert main([*case, *words, "--chakra", str(prefix)]) == 3
        said = capsys.readouterr().err
        assert "one-sided programs only" in said and said.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_trace_by_hand():
    """A computation of 5 us: the number of the field times eight, then its value."""
    problem = Problem(8, 8, 8, 2, a="column", b="column", c="column")
    traces = [get_algorithm("universal").trace(problem, rank) for rank in range(2)]
    ops = goal_ops(traces, lambda rank, step: 5000 * step.computes)
    assert [op for op in ops[0] if op.kind == "calc" and op.size]
    (file,) = write_chakra([[Op("calc", 5000)]])
    version = b"\x0a\x050.0.4"
    is_cpu_op = b"\x0a\x09is_cpu_op\xd8\x01\x00"
    node = b"\x08\x00\x12\x06calc 0\x18\x04\x38\x05\x52" + bytes([len(is_cpu_op)]) + is_cpu_op
    assert file == bytes([len(version)]) + version + bytes([len(node)]) + node
