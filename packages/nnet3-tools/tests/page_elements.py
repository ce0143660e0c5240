"""The elements of a page."""

import html.parser


class Elements(html.parser.HTMLParser):
    """Looks whether each element that begins also ends, and what addresses a page has."""

    EMPTY = frozenset({"meta", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Notes a beginning."""
        self.addresses += [str(value) for name, value in attributes if name in ("href", "src")]
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """An element without content."""

    def handle_endtag(self, tag: str) -> None:
        """Takes the last beginning off."""
        assert self.open.pop() == tag
