"""A table in HTML, as notebooks show it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def html_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Returns a table; numbers stand at the right of their column, with commas in thousands.

    Args:
        headings: Of the columns.
        rows: Values, as many in each row as there are headings; values are shown as text, never as
            markup.
    """
    head = "".join(f"<th style='text-align: left'>{escape(text)}</th>" for text in headings)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"<td style='text-align: right'>{value:,}</td>"
    return f"<td style='text-align: left'>{escape(str(value))}</td>"
