"""Names of tables: rspecifiers and wspecifiers."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple, Self

from nnet3_tables.commands import is_command
from nnet3_tables.errors import TableError

KINDS = frozenset({"ark", "scp"})
_READ_OPTIONS = frozenset({"b", "bg", "cs", "ncs", "no", "np", "ns", "o", "p", "s", "t"})
_WRITE_OPTIONS = frozenset({"b", "f", "nf", "p", "t"})


class Specifier(NamedTuple):
    """A parsed rspecifier or wspecifier.

    Attributes:
        text: The text that the user wrote.
        kinds: "ark", "scp" or both.
        options: Letters such as "t", "s", "p".
        target: The text behind the colon.
    """

    text: str
    kinds: frozenset[str]
    options: frozenset[str]
    target: str

    @classmethod
    def to_read(cls, text: str, *, is_text: bool = False) -> Self:
        """Parses `ark:file`, `scp,p:file`, `ark:command |` and the like.

        Args:
            text: The text that the user wrote.
            is_text: Whether the table has words in each line, and so can be no script file.

        Raises:
            TableError: there is no "ark" or "scp" before a colon, or an unknown option, or a
                command to write to, or a script file in place of a text.
        """
        specifier = cls._parse(text, _READ_OPTIONS)
        if specifier.target.startswith("|"):
            command = specifier.target.strip("| ")
            raise TableError(
                f"'{text}' is a command to write to; expected 'ark:{command} |' to read from it"
            )
        if is_text and specifier.is_script:
            raise TableError(f"'{text}' is a script file; expected 'ark:FILE', with the words")
        return specifier

    @classmethod
    def to_write(cls, text: str) -> Self:
        """Parses `ark,t:file`, `ark,scp:archive,script`, `ark:| command` and the like.

        Raises:
            TableError: there is no "ark" or "scp" before a colon, or an unknown option; or the
                target of "ark,scp" is not a file for the archive and then one for the script; or it
                is a command to read from.
        """
        specifier = cls._parse(text, _WRITE_OPTIONS)
        if specifier.target.endswith("|"):
            command = specifier.target.strip("| ")
            raise TableError(
                f"'{text}' is a command to read from; expected 'ark:| {command}' to write to it"
            )
        if not specifier.writes_both:
            return specifier
        archive, _, script = specifier.target.partition(",")
        if os.path.realpath(archive) == os.path.realpath(script):
            raise TableError(f"'{text}' names one file for the archive and for the script")
        # A script file refers to places in an archive, so that is a file.
        is_file = archive not in ("", "-") and not specifier.is_command
        if not (is_file and script and text.index("ark") < text.index("scp")):
            raise TableError(f"'{text}' is no table to write; expected 'ark,scp:ARCHIVE,SCRIPT'")
        return specifier

    @classmethod
    def _parse(cls, text: object, known: frozenset[str]) -> Self:
        if not isinstance(text, str):
            found = type(text).__name__
            raise TableError(f"expected text such as 'ark:FILE' for a table, found {found}")
        words, colon, target = text.partition(":")
        parts = words.strip().split(",")
        kinds = frozenset(parts) & KINDS
        if not colon or not kinds or not target.strip():
            kind = os.path.splitext(text)[1].removeprefix(".")
            meant = f"; did you mean '{kind}:{text}'?" if not colon and kind in KINDS else ""
            raise TableError(
                f"'{text}' is no table; expected 'ark:FILE', 'scp:FILE' or the like{meant}"
            )
        if "\0" in target:
            raise TableError(f"{text!r} is no table: no name of a file has a null character")
        options = frozenset(parts) - kinds
        for option in sorted(options - known):
            raise TableError(
                f"'{text}' has the option '{option}'; expected one of {', '.join(sorted(known))}"
            )
        return cls(text, kinds, options, target.strip())

    @property
    def is_script(self) -> bool:
        """Whether it names a script file only."""
        return self.kinds == {"scp"}

    @property
    def writes_both(self) -> bool:
        """Whether it names an archive and a script file that refers to it."""
        return len(self.kinds) > 1

    @property
    def files(self) -> list[str]:
        """The names of files; none of standard input or output, or of a command."""
        return [name for name in self.targets if name != "-" and not is_command(name)]

    @property
    def targets(self) -> list[str]:
        """The names behind the colon: of the archive and of the script file, or of one of them."""
        return self.target.split(",", 1) if self.writes_both else [self.target]

    @property
    def is_permissive(self) -> bool:
        """Whether entries that cannot be read count as absent."""
        return "p" in self.options

    @property
    def is_command(self) -> bool:
        """Whether its target is a command, to read from or to write to."""
        return is_command(self.target)

    def check_overwrites_none(self, paths: Iterable[str]) -> None:
        """Raises a TableError if it names a file that is among files to read."""
        # A terminal or another special file can be both read and written to.
        there = [name for name in self.files if os.path.isfile(name)]
        if not there:
            return
        for path in filter(os.path.isfile, paths):
            for name in there:
                if os.path.samefile(name, path):
                    raise TableError(f"cannot write '{name}': it is read at the same time")
