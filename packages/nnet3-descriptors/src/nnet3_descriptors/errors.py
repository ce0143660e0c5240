"""Errors of this package and of the packages built on it.

All of them are `Nnet3Error`, so that a caller can catch one class. Each names the thing that is
wrong, what was expected, what was found, and where.

Messages quote the contents of files, which anybody may have written. So characters that a terminal
would obey are escaped, and long lines are cut.
"""

import builtins
import functools
import os
from typing import Any, Final

_EXCERPT_WIDTH: Final = 100
_LONGEST_LINE: Final = 1500
_MOST_LINES: Final = 50
_CUT: Final = " ... "


class Nnet3Error(ValueError):
    """Root of the errors that the nnet3 packages raise for bad input."""

    def __str__(self) -> str:
        return readable_text(self._full_message())

    def _full_message(self) -> str:
        """Returns the message as it was put together; subclasses add the place."""
        return super().__str__()

    def __reduce__(self) -> tuple[Any, ...]:
        """Lets errors pass between processes, whatever arguments their constructors take."""
        return _restored, (type(self), self.args, self.__dict__)


def _restored(cls: type[Nnet3Error], args: tuple[Any, ...], state: dict[str, Any]) -> Nnet3Error:
    """Returns the error that `Nnet3Error.__reduce__` has taken apart."""
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


def readable_text(text: str) -> str:
    """Returns a message without control characters, and with long lines and lists of lines cut."""
    lines = text.split("\n")
    if len(lines) > _MOST_LINES:
        half = _MOST_LINES // 2
        lines[half:-half] = [f"... {len(lines) - 2 * half} more lines ..."]
    return "\n".join(_cut(escaped(_cut(line))) for line in lines)


def _cut(line: str) -> str:
    """Returns a line without the middle if it is long."""
    if len(line) <= _LONGEST_LINE:
        return line
    end = _LONGEST_LINE // 3
    return line[: _LONGEST_LINE - end - len(_CUT)] + _CUT + line[-end:]


def escaped(text: str) -> str:
    """Returns lines in which characters that cannot be seen are written as in Python."""
    return "".join(
        char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text
    )


class NetworkError(Nnet3Error):
    """A network, node or component that contradicts itself or its surroundings.

    Attributes:
        node: Name of the node at fault, or None if it is not about a single one.
    """

    def __init__(self, message: str, *, node: str | None = None) -> None:
        super().__init__(message)
        self.node = node


class LimitError(NetworkError):
    """A network or component that is larger than the limits allow; see `limits.use_limits`."""


class SourceError(Nnet3Error):
    """A fault at a place in a text; printed with the line and a marker below the place.

    Attributes:
        message: What is wrong, in one sentence without the place.
        source: The whole text that was read.
        span: Start and end of the fault, as character offsets in `source` (end not included).
    """

    def __init__(self, message: str, source: str, span: tuple[int, int]) -> None:
        super().__init__(message, source, span)
        self.message = message
        self.source = source
        self.span = span

    @property
    def line(self) -> int:
        """Number of the line in `source` that holds the start of the span, from 1."""
        return self.source.count("\n", 0, self.span[0]) + 1

    @property
    def column(self) -> int:
        """Position of the start of the span in its line, from 1."""
        return self.span[0] - self._line_start() + 1

    def _line_start(self) -> int:
        return self.source.rfind("\n", 0, self.span[0]) + 1

    def _full_message(self) -> str:
        place = f"line {self.line}, column {self.column}: " if "\n" in self.source else ""
        return f"{place}{self.message}\n{self._excerpt()}" if self.source else self.message

    def _excerpt(self) -> str:
        """Returns the faulty line, cut to a readable width, and the marker below it."""
        start, end = self.span
        first = self._line_start()
        last = self.source.find("\n", first)
        last = len(self.source) if last < 0 else last
        end = min(max(end, start + 1), max(last, start + 1))
        left = max(first, min(start - _EXCERPT_WIDTH // 2, last - _EXCERPT_WIDTH))
        right = min(last, left + _EXCERPT_WIDTH)
        head = "... " if left > first else ""
        tail = " ..." if right < last else ""
        before, within, behind = (
            escaped(self.source[begin:stop].replace("\t", " "))
            for begin, stop in ((left, start), (start, min(end, right)), (min(end, right), right))
        )
        marker = " " * len(head + before) + "^" * max(1, len(within) + (end > right))
        return f"    {head}{before}{within}{behind}{tail}\n    {marker}"

    @classmethod
    def check_text(cls, text: object) -> None:
        """Raises an error of this class unless its argument is text."""
        if not isinstance(text, str):
            raise cls(f"expected text, found {type(text).__name__}", "", (0, 0))


class DescriptorSyntaxError(SourceError):
    """A descriptor that does not follow the grammar, or has no normal form."""


class ConfigError(SourceError):
    """A config line that cannot be understood."""


class SerializationError(Nnet3Error):
    """Bytes that are not a container of the expected format, version and content."""


class ModelFileError(Nnet3Error):
    """A Kaldi model file that cannot be read.

    Attributes:
        message: What is wrong, in one sentence without the place.
        path: Name of the file, or a description of the stream.
        offset: Byte offset of the fault in the file, or None if it has none.
        component: Name of the component that was being read, or None outside components.
        expected: The content that the format requires there, or None.
        found: The content of the file there, or None.
        missing: Number of bytes that the element lacks at least, if the file ends too early.
    """

    def __init__(
        self,
        message: str,
        *,
        path: str,
        offset: int | None = None,
        component: str | None = None,
        expected: str | None = None,
        found: str | None = None,
        missing: int = 0,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.offset = offset
        self.component = component
        self.expected = expected
        self.found = found
        self.missing = missing

    @property
    def reason(self) -> str:
        """What is wrong, what was expected and what was found, without the place."""
        wanted = f"; expected {self.expected}" if self.expected is not None else ""
        found = f", found {self.found}" if self.found is not None else ""
        return f"{self.message}{wanted}{found}"

    def _full_message(self) -> str:
        place = self.path if self.offset is None else f"{self.path}, byte {self.offset}"
        inside = f", in component '{self.component}'" if self.component is not None else ""
        return f"{place}{inside}: {self.reason}"


class FileError(OSError, Nnet3Error):
    """A file that cannot be opened, read or written.

    It is also the OSError of its reason: for a missing file a FileNotFoundError, and so on.
    `errno`, `strerror` and `filename` are those of the OSError.
    """

    kind: type[OSError] = OSError
    action = "use"

    def __str__(self) -> str:
        name = os.fspath(self.filename) if self.filename is not None else "a file"
        return readable_text(f"cannot {self.action} {name!r}: {self.strerror}")

    def __reduce__(self) -> tuple[Any, ...]:
        values = self.kind, self.action, self.errno, self.strerror, self.filename
        return _file_error, values


def check_path(path: object, action: str) -> None:
    """Raises a FileError if this is not a path, or one that no file can have.

    Args:
        path: The argument of the caller.
        action: The attempt: "read" or "write".
    """
    if not isinstance(path, str | os.PathLike):
        found = type(path).__name__
        raise _file_error(OSError, action, None, f"expected a path, found {found}", f"<{found}>")
    name = os.fspath(path)
    if "\0" in name:
        raise _file_error(OSError, action, None, "no name has a null character", name)


def file_error(error: Exception, action: str, path: str | os.PathLike[str]) -> FileError:
    """Returns the error for a file.

    Args:
        error: The error of the system; or of Python, for an object that is not a file for bytes.
        action: The attempt: "read" or "write".
        path: The file as the caller named it.
    """
    # The class of Python that it is, whichever class of another library, or of this one, it has.
    if not isinstance(error, OSError):
        return _file_error(OSError, action, None, str(error), os.fspath(path))
    kind = next(each for each in type(error).__mro__ if each.__module__ == "builtins")
    return _file_error(kind, action, error.errno, error.strerror or str(error), os.fspath(path))


def _file_error(
    kind: type[OSError], action: str, number: int | None, reason: str, path: str
) -> FileError:
    error = _file_error_class(kind.__name__)(number, reason, path)
    error.action = action
    return error


@functools.cache
def _file_error_class(name: str) -> type[FileError]:
    """Returns the class of errors that are of a class of Python, such as FileNotFoundError, too."""
    kind: type[OSError] = getattr(builtins, name)
    if kind is OSError:
        return FileError
    return type("FileError", (FileError, kind), {"__doc__": FileError.__doc__, "kind": kind})
