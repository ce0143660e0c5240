"""The formats of damaged files: `FORMATS` has a function for each.

It makes a damaged file, reads it, and uses what it has read as a user would; it returns whether the
file could be read.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nnet3_descriptors.files import Reader
from nnet3_tables import read_objects

from damaged.bytes_and_words import damaged_data
from damaged.using import User

Try = Callable[[User, int, int, Path], bool]
"""Takes the user, a seed and a number, and an empty folder; returns whether reading succeeded."""

Use = Callable[[User, Any, Path], object]
"""Takes the user, a value that was read, and a folder to write to."""

FORMATS: dict[str, tuple[int, Try]] = {}
"""For each format how often it is drawn, and its function."""


def damaged_format(name: str, share: int) -> Callable[[Try], Try]:
    """Registers the function of a format."""

    def register(function: Try) -> Try:
        FORMATS[name] = share, function
        return function

    return register


def damaged_files(
    name: str,
    share: int,
    good: Callable[[], Sequence[bytes]],
    read: Callable[[Any], Any],
    *,
    of_streams: bool = True,
) -> Callable[[Use], Use]:
    """Registers a use of what is read from one of some good files, with damage.

    Args:
        name: The name of the format.
        share: How often it is drawn.
        good: Gives the good files.
        read: Reads a file, from its path or a stream.
        of_streams: Whether it takes streams, too.
    """

    def register(use: Use) -> Use:
        @damaged_format(name, share)
        def damaged_file(user: User, seed: int, number: int, folder: Path) -> bool:
            data = damaged_data(user.rng, user.rng.choice(good()), good())
            path = folder / "damaged"
            path.write_bytes(data)
            is_stream = of_streams and user.rng.random() < 0.5
            value = user.attempt("read", lambda: read(io.BytesIO(data) if is_stream else path))
            if value is not None:
                use(user, value, folder)
            return value is not None

        return use

    return register


def damaged_archives(
    name: str,
    share: int,
    good: Callable[[], Sequence[bytes]],
    decode: Callable[[Reader], Any],
) -> Callable[[Use], Use]:
    """Registers a use of each value of an archive, with damage, of some good values."""

    def register(use: Use) -> Use:
        @damaged_format(name, share)
        def damaged_archive(user: User, seed: int, number: int, folder: Path) -> bool:
            archives = [b"a " + each for each in good()]
            archives.append(b"".join(archives))
            data = damaged_data(user.rng, user.rng.choice(archives), archives)
            (folder / "ark").write_bytes(data)
            table = f"ark{user.rng.choice(('', ',p'))}:{folder}/ark"
            read = user.attempt("read", lambda: [e.value for e in read_objects(table, decode)])
            for value in read or ():
                use(user, value, folder)
            return bool(read)

        return use

    return register
