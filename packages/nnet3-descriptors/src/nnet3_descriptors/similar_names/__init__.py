"""The known name that a misspelt name probably means."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

__all__ = ["hint", "most_similar"]

_MOST_NAMES: Final = 2000
_LONGEST_NAME: Final = 100
"""Beyond these sizes, the search for a similar name takes too long."""


def most_similar(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Returns the known name that is most like another one, or None if none is.

    A name that differs in capitals, or in the ending "Component", comes before all others.

    Args:
        name: The unknown name.
        known: The known names.
        cutoff: The least similarity, from 0 to 1 (the ratio of `difflib`).
    """
    names = [other for other in known if len(other) <= _LONGEST_NAME]
    if len(name) > _LONGEST_NAME or len(names) > _MOST_NAMES:
        return None
    folded = {other.casefold(): other for other in names}
    for wanted in (name.casefold(), f"{name.casefold()}component"):
        if wanted in folded:
            return folded[wanted]
    import difflib  # for errors only, as it takes a while

    close = difflib.get_close_matches(name, names, n=1, cutoff=cutoff)
    return close[0] if close else None


def hint(name: str, known: Iterable[str]) -> str:
    """Returns "; did you mean '...'?" for the most similar name, or "" if none is similar."""
    meant = most_similar(name, known)
    return f"; did you mean '{meant}'?" if meant else ""
