"""Reads script files line by line, so that a line of data cannot run a command."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator

import attrs

from nnet3_tables.archive import FloatArray, Kind, read_value
from nnet3_tables.errors import TableError
from nnet3_tables.sources import file_and_offset, lines, opened_at
from nnet3_tables.specifier import Specifier

_MISSING_ROWS = 3
"""A range must end fewer rows than this beyond the end of a matrix. Kaldi allows the same, because
segments are rounded."""


@attrs.frozen
class ScriptEntry:
    """A line of a script file: the location of the value of a key.

    Attributes:
        key: The key.
        location: File, perhaps with a byte offset and a range of rows and columns.
        place: File and line of the entry, for messages.
    """

    key: str
    location: str
    place: str

    @property
    def file(self) -> str:
        """The name of the file, without offset and range."""
        return file_and_offset(self._source_and_range[0])[0]

    @property
    def _source_and_range(self) -> tuple[str, str | None]:
        """File, perhaps with an offset; and the range that is asked for, if any."""
        if not self.location.endswith("]"):
            return self.location, None
        source, _, ranges = self.location[:-1].rpartition("[")
        return source, ranges

    def read(self, kind: Kind) -> FloatArray:
        """Reads the value, or the range of it that the line asks for.

        Raises:
            TableError: the value cannot be read, or is of another kind.
        """
        file, ranges = self._source_and_range
        array = self._read_file(kind, file)
        if ranges is None:
            return array
        parts = ranges.split(",")
        if len(parts) > array.ndim:
            raise self._range_error(array, ranges)
        slices = [self._slice(part, array, axis, ranges) for axis, part in enumerate(parts)]
        return array[tuple(slices)]

    def _read_file(self, kind: Kind, file: str) -> FloatArray:
        if file.endswith("|"):
            raise TableError(
                f"{self.place}: '{self.key}' is to come from a command ({file[:60]!r}), and data "
                "does not run commands; write it in the table's own name instead (ark:command |)"
            )
        place = f"{self.place}: '{self.key}' at {file}"
        with opened_at(file, place) as stream:
            return read_value(stream, place, kind)

    def _slice(self, text: str, array: FloatArray, axis: int, ranges: str) -> slice:
        """The slice for `first:last`, last included, as Kaldi writes ranges; `:` is all."""
        if text == ":":
            return slice(None)
        found = re.fullmatch(r"(\d{1,18}):(\d{1,18})", text)
        if found is None:
            raise self._range_error(array, ranges)
        first, last = int(found[1]), int(found[2])
        length = array.shape[axis]
        end = length + (_MISSING_ROWS if axis == 0 else 0)
        if not (first <= last < end and first < length):
            raise self._range_error(array, ranges)
        return slice(first, last + 1)

    def _range_error(self, array: FloatArray, ranges: str) -> TableError:
        shape = " x ".join(map(str, array.shape))
        return TableError(
            f"{self.place}: '{self.key}': expected a range like [0:9] or [0:9,0:12] within "
            f"{shape}, found [{ranges}]"
        )


def files_of(rspecifier: str) -> list[str]:
    """The files from which a table is read, as far as its name or a script file says.

    Raises:
        TableError: the text is not the name of a table.
    """
    specifier = Specifier.to_read(rspecifier)
    files = specifier.files
    if specifier.is_script and files and os.path.isfile(files[0]):
        with contextlib.suppress(TableError):  # the reader of the table will report it
            files += sorted({entry.file for entry in read_script(specifier)})
    return files


def read_script(specifier: Specifier) -> Iterator[ScriptEntry]:
    """The entries of a script file, in order.

    Raises:
        TableError: the file cannot be read, the command that writes it fails, or a line has no
            location.
    """
    for place, line in lines(specifier):
        words = line.strip().split(maxsplit=1)
        if len(words) == 2:
            yield ScriptEntry(words[0], words[1], place)
        elif words:
            raise TableError(f"{place}: expected a key and a file, found '{words[0]}'")
