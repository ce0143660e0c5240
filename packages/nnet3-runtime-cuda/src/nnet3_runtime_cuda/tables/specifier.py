"""Names of tables: rspecifiers and wspecifiers."""

from __future__ import annotations

import os
import sys
from typing import Self

import attrs

from ..errors import TableError


@attrs.frozen
class Specifier:
    """A parsed rspecifier or wspecifier.

    Attributes:
        text: As the user wrote it.
        kinds: "ark", "scp" or both.
        options: Letters such as "t", "s", "p".
        target: What stands behind the colon.
    """

    text: str
    kinds: frozenset[str]
    options: frozenset[str]
    target: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads `ark,t:file`, `scp:file`, `ark:command |` and the like.

        Raises:
            TableError: there is no "ark" or "scp" before a colon.
        """
        words, colon, target = text.partition(":")
        parts = words.strip().split(",")
        kinds = frozenset(parts) & {"ark", "scp"}
        if not colon or not kinds or not target.strip():
            raise TableError(f"'{text}' is no table; expected 'ark:FILE', 'scp:FILE' or the like")
        return cls(text, kinds, frozenset(parts) - kinds, target.strip())

    @property
    def is_script(self) -> bool:
        """Whether it names a script file only."""
        return self.kinds == {"scp"}

    @property
    def is_permissive(self) -> bool:
        """Whether what cannot be read is to be taken as absent."""
        return "p" in self.options

    @property
    def is_command(self) -> bool:
        """Whether its target is a command, to read from or to write to."""
        return self.target.endswith("|") or self.target.startswith("|")

    def with_target(self, path: str) -> str:
        """The text with another target."""
        return f"{self.text.partition(':')[0]}:{path}"

    def check_exists(self) -> None:
        """Raises a TableError if it names a file that does not exist, or closed standard input."""
        if self.target == "-":
            if sys.stdin is None:
                raise TableError("cannot read '-': standard input is closed")
        elif not self.is_command and not os.path.exists(self.target):
            raise TableError(f"cannot read '{self.target}': there is no such file")
