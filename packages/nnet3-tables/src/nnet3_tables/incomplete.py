"""The names of archives that are not complete yet."""

from __future__ import annotations

import os
import shutil

from nnet3_tables.specifier import Specifier

_SUFFIX = ".incomplete"
_LONGEST_NAME = 255
"""The most bytes of a file's name on the usual systems."""


def incomplete_path(specifier: Specifier) -> str | None:
    """The name that a table has until it is complete; None for its own."""
    if specifier.kinds != {"ark"} or "f" in specifier.options or not specifier.files:
        return None
    # A link stays; the file that it refers to is replaced.
    final = os.path.realpath(specifier.target)
    if os.path.exists(final) and not os.path.isfile(final):
        return None
    if os.path.isfile(final) and not os.access(os.path.dirname(final), os.W_OK):
        return None
    name = f"{final}{_SUFFIX}"
    return None if len(os.fsencode(os.path.basename(name))) > _LONGEST_NAME else name


def give_name(incomplete: str, target: str) -> None:
    """Gives a complete archive the name of its table, and the mode of the file that it replaces.

    Raises:
        OSError: it cannot be renamed.
    """
    final = os.path.realpath(target)
    if os.path.exists(final):
        shutil.copymode(final, incomplete)
    os.replace(incomplete, final)
