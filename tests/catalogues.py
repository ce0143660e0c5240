"""Texts beside the tests, in parts with titles."""

import re
from pathlib import Path


def parts_of(name: str) -> dict[str, str]:
    """The parts of a text by title, which stands behind `# `."""
    text = Path(__file__).with_name(name).read_text(encoding="utf-8")
    parts = (part.partition("\n") for part in re.split("^# ", text, flags=re.MULTILINE)[1:])
    return {title: rest.strip() for title, _, rest in parts}
