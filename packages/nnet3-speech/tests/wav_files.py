"""WAV files of all formats, written chunk by chunk."""

import struct

EXTENSIBLE_TAIL = bytes.fromhex("000000001000800000aa00389b71")


def chunk(name: bytes, content: bytes, size: int | None = None) -> bytes:
    """A chunk with its size, or with another one in its header."""
    return (
        name
        + struct.pack("<I", len(content) if size is None else size)
        + content
        + (b"\0" if len(content) % 2 else b"")
    )


def wav(
    data: bytes,
    coding: int = 1,
    channels: int = 1,
    rate: int = 16000,
    bits: int = 16,
    size: int | None = None,
    *,
    extension: bytes = b"",
    before: bytes = b"",
    riff_size: int | None = None,
    block_align: int | None = None,
) -> bytes:
    """A WAV file: its samples as bytes, and the fields of its format."""
    align = channels * bits // 8 if block_align is None else block_align
    fields = struct.pack("<HHIIHH", coding, channels, rate, rate * align, align, bits)
    body = b"WAVE" + before + chunk(b"fmt ", fields + extension) + chunk(b"data", data, size)
    return b"RIFF" + struct.pack("<I", len(body) if riff_size is None else riff_size) + body


def extension(coding: int, bits: int) -> bytes:
    """What follows the format in WAVE_FORMAT_EXTENSIBLE."""
    return struct.pack("<HHIH", 22, bits, 0, coding) + EXTENSIBLE_TAIL
