"""Tests that LiveCodeBench packs: base64 of zlib of a pickle that holds one JSON text.

Invariant: nothing of a pickle is run. Only instructions that put a text or bytes on the stack, remember it and stop are
known here; any other (a list, a class, a call) refuses the whole, and sizes are bounded before anything is unpacked.
"""

import base64
import pickletools
import zlib

MAX_BYTES = 256 << 20
"""The most that a row's tests may be, unpacked."""

_CONSTANTS = frozenset(
    f"{size}{kind}" for size in ("SHORT_BIN", "BIN", "") for kind in ("UNICODE", "UNICODE8", "BYTES", "BYTES8")
)
_SURROUNDINGS = frozenset(("PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP"))


def unpacked(text: str, problem: Exception | None = None) -> str:
    """The JSON text in `text`, which was tried as JSON and had that problem.

    Raises:
        ValueError: it is not packed in this way, is too large, or the pickle holds more than one text.
    """
    try:
        packed = base64.b64decode("".join(text.split()), validate=True)
        unzip = zlib.decompressobj()
        data = unzip.decompress(packed, MAX_BYTES)
    except (ValueError, zlib.error) as error:
        raise ValueError(f"is neither JSON ({problem}) nor base64 of compressed tests ({error})") from error
    if unzip.unconsumed_tail:
        raise ValueError(f"holds over {MAX_BYTES} bytes of tests")
    if not unzip.eof:
        raise ValueError("holds compressed tests that are cut off")
    return _text_of(data) if data[:1] == b"\x80" else data.decode()


def _text_of(pickled: bytes) -> str:
    found: list[str | bytes] = []
    for instruction, argument, _ in pickletools.genops(pickled):
        if instruction.name in _CONSTANTS and isinstance(argument, str | bytes):
            found.append(argument)
        elif instruction.name not in _SURROUNDINGS:
            raise ValueError(f"holds a pickle with the instruction {instruction.name}: only one text is read of it")
    if len(found) != 1:
        raise ValueError(f"holds a pickle of {len(found)} texts")
    return found[0].decode() if isinstance(found[0], bytes) else found[0]
