"""Pictures of values, which notebooks ask for: nnet3-report draws them, where it is installed."""

from __future__ import annotations

import importlib


def shown(picture: str, value: object) -> str | None:
    """Returns a value as a part of a page, or None where nnet3-report is not installed.

    A notebook shows the text of a value whose `_repr_html_` returns None.

    Args:
        picture: The name of a function of nnet3_report.
        value: Its argument.
    """
    try:
        report = importlib.import_module("nnet3_report")
    except ModuleNotFoundError as error:
        if error.name != "nnet3_report":
            raise
        return None
    drawn: str = getattr(report, picture)(value)
    return drawn
