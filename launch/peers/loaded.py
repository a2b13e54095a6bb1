"""What a loaded shared library is really bound to: its call slots, read from the file and from
memory (x86-64 and AArch64 ELF)."""

import ctypes
import os
import struct
from pathlib import Path

_RELA, _DYNSYM, _DYNAMIC = 4, 11, 6
#: Relocation types of a function slot: JUMP_SLOT and GLOB_DAT of x86-64, then of AArch64.
_SLOTS = {62: (7, 6), 183: (1026, 1025)}
_NEEDED = 1


def _sections(data: bytes) -> list[tuple]:
    """Section headers: (type, offset, size, link, entry size)."""
    if data[:5] != b"\x7fELF\x02":
        raise ValueError("no 64-bit ELF file")
    (start,) = struct.unpack_from("<Q", data, 40)
    entry, count = struct.unpack_from("<HH", data, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, start + i * entry) for i in range(count)]
    return [(h[1], h[4], h[5], h[6], h[9]) for h in headers]


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode()


def call_slots(path: str) -> dict[str, int]:
    """Address offsets of the slots through which a library calls other functions, by the function's
    name."""
    data = Path(path).read_bytes()
    sections, machine = _sections(data), struct.unpack_from("<H", data, 18)[0]
    kinds, slots = _SLOTS.get(machine, ()), {}
    for kind, offset, size, link, _ in sections:
        if kind != _RELA or sections[link][0] != _DYNSYM:
            continue
        symbols, names = sections[link], sections[sections[link][3]]
        for at in range(offset, offset + size, 24):
            where, info, _ = struct.unpack_from("<QQq", data, at)
            if info & 0xFFFFFFFF in kinds:
                (name,) = struct.unpack_from("<I", data, symbols[1] + 24 * (info >> 32))
                slots[_text(data, names[1] + name)] = where
    return slots


def needed(path: str) -> list[str]:
    """Names of the libraries that a library says it needs.

    Examples
    --------
    >>> import _ctypes
    >>> any(name.startswith("libc.") for name in needed(_ctypes.__file__))
    True
    """
    data = Path(path).read_bytes()
    sections = _sections(data)
    found = []
    for kind, offset, size, link, _ in sections:
        if kind == _DYNAMIC:
            for at in range(offset, offset + size, 16):
                tag, value = struct.unpack_from("<QQ", data, at)
                if tag == _NEEDED:
                    found.append(_text(data, sections[link][1] + value))
    return found


def _mappings():
    """(start, stop, file offset, path) of this process's file mappings."""
    with open("/proc/self/maps") as file:
        for line in file:
            words = line.split(None, 5)
            if len(words) == 6 and words[5].startswith("/"):
                start, stop = (int(part, 16) for part in words[0].split("-"))
                yield start, stop, int(words[2], 16), words[5].rstrip("\n")


def loaded_file(name: str) -> tuple[str, int] | None:
    """Path and load address of a library of this process whose file name starts with ``name``."""
    for start, _, offset, path in _mappings():
        if offset == 0 and os.path.basename(path).startswith(name):
            return path, start
    return None


def library_at(address: int) -> str | None:
    """The file that an address of this process belongs to."""
    return next((path for start, stop, _, path in _mappings() if start <= address < stop), None)


def slot_target(base: int, offset: int) -> ctypes.c_void_p:
    """The slot at an offset of a library loaded at ``base``: its ``value`` is where calls go, and
    can be set."""
    return ctypes.c_void_p.from_address(base + offset)
