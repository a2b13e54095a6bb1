"""The functions that a loaded shared library is bound to: its call slots, read from the file and
from memory (x86-64 and AArch64 ELF)."""

import ctypes
import struct
from pathlib import Path

_RELA, _DYNSYM = 4, 11
#: Relocation types of a function slot: JUMP_SLOT and GLOB_DAT of x86-64, then of AArch64.
_SLOTS = {62: (7, 6), 183: (1026, 1025)}


def call_slots(path: str) -> dict[str, int]:
    """Address offsets of the slots through which a library calls other functions, by the function's
    name."""
    data = Path(path).read_bytes()
    kinds = _SLOTS.get(struct.unpack_from("<H", data, 18)[0], ())
    start, entry, count = *struct.unpack_from("<Q", data, 40), *struct.unpack_from("<HH", data, 58)
    # type, offset, size and link of each section
    sections = [struct.unpack_from("<4xI16xQQI", data, start + i * entry) for i in range(count)]
    slots = {}
    for kind, offset, size, link in sections:
        if kind != _RELA or sections[link][0] != _DYNSYM:
            continue
        _, symbols, _, names = sections[link]
        for place, relocation, symbol in struct.iter_unpack("<QII8x", data[offset : offset + size]):
            if relocation in kinds:
                (name,) = struct.unpack_from("<I", data, symbols + 24 * symbol)
                at = sections[names][1] + name
                slots[data[at : data.index(b"\0", at)].decode()] = place
    return slots


def _mappings():
    """(start, stop, path) of this process's file mappings, in rising order: the first of a file is
    its load address."""
    for line in Path("/proc/self/maps").read_text("utf-8", "replace").splitlines():
        addresses, *_, path = line.split(None, 5)
        if path.startswith("/"):
            yield *(int(address, 16) for address in addresses.split("-")), path


def loaded_file(name: str) -> tuple[str, int] | None:
    """Path and load address of a library of this process whose file name starts with ``name``."""
    matches = ((path, start) for start, _, path in _mappings() if Path(path).name.startswith(name))
    return next(matches, None)


def library_at(address: int) -> str | None:
    """The mapped file of an address in this process."""
    return next((path for start, stop, path in _mappings() if start <= address < stop), None)


def slot_target(base: int, offset: int) -> ctypes.c_void_p:
    """The slot at an offset of a library loaded at ``base``: its ``value`` is where calls go, and
    can be set."""
    return ctypes.c_void_p.from_address(base + offset)
