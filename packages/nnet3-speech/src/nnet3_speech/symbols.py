"""Symbol tables: the names of the phones or words of a model, as `phones.txt` and `words.txt`."""

from __future__ import annotations

import os
import re

from nnet3_descriptors.files import read_file

from nnet3_speech.errors import SpeechError

_NUMBER = re.compile(rb"[0-9]{1,18}")


def read_symbols(path: str | os.PathLike[str]) -> dict[int, str]:
    """Reads a symbol table in text: a name and its number on each line.

    Args:
        path: A file such as phones.txt or words.txt, in UTF-8.

    Returns:
        The name of each number, in the order of the file. Number 0 is usually `<eps>`, no symbol.

    Raises:
        FileError: the file cannot be read.
        SpeechError: a line is no name and number, or two names have one number.
    """
    names: dict[int, str] = {}
    for number, line in enumerate(read_file(path).splitlines(), 1):
        parts = line.split()  # at ASCII blanks: a word may have others
        if not parts:
            continue
        where = f"{os.fspath(path)}, line {number}"
        if len(parts) != 2 or not _NUMBER.fullmatch(parts[1]):
            shown = line[:60].decode(errors="replace")
            raise SpeechError(f"{where}: expected a name and a number, found {shown!r}")
        try:
            name = parts[0].decode()
        except UnicodeDecodeError as error:
            raise SpeechError(f"{where}: the name is not in UTF-8: {error.reason}") from error
        symbol = int(parts[1])
        if names.setdefault(symbol, name) != name:
            raise SpeechError(
                f"{where}: '{name}' has number {symbol}, which is '{names[symbol]}' already"
            )
    return names
