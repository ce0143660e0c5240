"""Errors of this package and of the packages built on it.

All of them are `Nnet3Error`, so that a caller can catch one class; all say which thing is wrong,
what was expected, what was found and where.
"""

from typing import Any

_EXCERPT_WIDTH = 100


class Nnet3Error(ValueError):
    """Root of the errors that the nnet3 packages raise for bad input."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Lets errors pass between processes, whatever arguments their constructors take."""
        return _restored, (type(self), self.args, self.__dict__)


def _restored(cls: type[Nnet3Error], args: tuple[Any, ...], state: dict[str, Any]) -> Nnet3Error:
    """Returns the error that `Nnet3Error.__reduce__` has taken apart."""
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


class NetworkError(Nnet3Error):
    """A network, node or component that contradicts itself or its surroundings.

    Attributes:
        node: Name of the node at fault, or None if it is not about a single one.
    """

    def __init__(self, message: str, *, node: str | None = None) -> None:
        super().__init__(message)
        self.node = node


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

    def __str__(self) -> str:
        place = f"line {self.line}, column {self.column}: " if "\n" in self.source else ""
        return f"{place}{self.message}\n{self._excerpt()}"

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
        text = self.source[left:right].replace("\t", " ")
        marker = " " * (len(head) + start - left) + "^" * max(1, min(end, right + 1) - start)
        return f"    {head}{text}{tail}\n    {marker}"


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
        expected: What the format asks for at that place, or None.
        found: What stands there, or None.
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
    ) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.offset = offset
        self.component = component
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        place = self.path if self.offset is None else f"{self.path}, byte {self.offset}"
        inside = f", in component '{self.component}'" if self.component is not None else ""
        wanted = f"; expected {self.expected}" if self.expected is not None else ""
        found = f", found {self.found}" if self.found is not None else ""
        return f"{place}{inside}: {self.message}{wanted}{found}"
