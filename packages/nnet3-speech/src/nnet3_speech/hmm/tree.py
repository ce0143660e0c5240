"""The tree of an acoustic model: which pdf a state of a phone has, given the phones around it.

Its file, binary or text, is `ContextDependency width position ToPdf node EndContextDependency`,
where a node is `CE pdf`, `TE key size ( node ... )` with NULL for a branch that is not there, or
`SE key [values] { node node }`. In binary, the size of a table is an unsigned integer.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs
from nnet3_descriptors import files

from nnet3_speech.errors import HmmError

PDF_CLASS = -1
"""The key whose value is the class of the state's pdf; other keys are positions in the window."""


_MAX_WIDTH = 32
"""Trees of recipes have windows of at most five phones."""


@attrs.frozen
class Leaf:
    """An answer.

    Attributes:
        pdf: Number of a pdf.
    """

    pdf: int


def _branches(values: Iterable[EventMap | None]) -> tuple[EventMap | None, ...]:
    return tuple(values)


def _sorted(values: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(set(values)))


@attrs.frozen
class Table:
    """A branch for each value of a key.

    Attributes:
        key: -1 for the class of the pdf, or a position in the window of phones.
        branches: The nodes for value 0, 1, ...; None for a value without one.
    """

    key: int
    branches: tuple[EventMap | None, ...] = attrs.field(converter=_branches)


@attrs.frozen
class Split:
    """A question about the value of a key.

    Attributes:
        key: As in a `Table`.
        yes_values: The values, ascending, that lead to `yes`.
        yes: The node for these values.
        no: The node for all other values.
    """

    key: int
    yes_values: tuple[int, ...] = attrs.field(converter=_sorted)
    yes: EventMap
    no: EventMap
    _set: frozenset[int] = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "_set", frozenset(self.yes_values))

    def branch(self, value: int) -> EventMap:
        """The node for a value."""
        return self.yes if value in self._set else self.no


EventMap = Leaf | Table | Split
"""A node of a tree: Kaldi's ConstantEventMap, TableEventMap or SplitEventMap."""


def _answer(node: EventMap | None, event: Mapping[int, int]) -> int | None:
    """The pdf that an event leads to, if any."""
    while True:
        match node:
            case Leaf(pdf):
                return pdf
            case Table(key, branches):
                value = event.get(key, -1)
                node = branches[value] if 0 <= value < len(branches) else None
            case Split(key=key):
                if key not in event:
                    return None
                node = node.branch(event[key])
            case None:
                return None


def _reached(node: EventMap | None, event: Mapping[int, int]) -> Iterator[EventMap]:
    """The nodes that events which agree with the known values can lead to."""
    left = [node]
    while left:
        match node := left.pop():
            case Table(key, branches) if key in event:
                value = event[key]
                left.append(branches[value] if 0 <= value < len(branches) else None)
            case Table(branches=branches):
                left += branches
            case Split(key=key) if key in event:
                left.append(node.branch(event[key]))
            case Split(yes=yes, no=no):
                left += (yes, no)
        if node is not None:
            yield node


def _answers(nodes: Iterable[EventMap]) -> set[int]:
    """The pdfs of the leaves among some nodes."""
    return {node.pdf for node in nodes if isinstance(node, Leaf)}


@attrs.frozen(kw_only=True)
class ContextDependency:
    """A tree, as `tree` beside a final.mdl.

    Attributes:
        context_width: Number of phones that decide, for example 2 for a phone and the one before
            it.
        central_position: Position of the phone itself among them, from 0.
        to_pdf: The root.

    Raises:
        HmmError: the window is wider than 32 phones, or the central position is not in it.
    """

    context_width: int
    central_position: int
    to_pdf: EventMap

    def __attrs_post_init__(self) -> None:
        if not 1 <= self.context_width <= _MAX_WIDTH:
            raise HmmError(
                f"the context width must be 1 to {_MAX_WIDTH}, found {self.context_width}"
            )
        if not 0 <= self.central_position < self.context_width:
            raise HmmError(
                f"the central position must be 0 to {self.context_width - 1}, found "
                f"{self.central_position}"
            )

    @property
    def right_context(self) -> int:
        """Number of phones after the phone that decide."""
        return self.context_width - 1 - self.central_position

    def pdf(self, window: Sequence[int], pdf_class: int) -> int:
        """The pdf of a phone in its context.

        Args:
            window: `context_width` phones; 0 where there is none.
            pdf_class: The class that the topology gives the state.

        Raises:
            HmmError: the window has another length, or the tree has no answer.
        """
        if len(window) != self.context_width:
            raise HmmError(
                f"expected {self.context_width} phones, as the tree has, found {len(window)}"
            )
        event = {PDF_CLASS: pdf_class, **dict(enumerate(window))}
        pdf = _answer(self.to_pdf, event)
        if pdf is None:
            phones = " ".join(map(str, window))
            raise HmmError(
                f"the tree has no pdf for class {pdf_class} of the phones {phones}: it does not "
                "fit the topology or the phones"
            )
        return pdf

    def pdfs(self, phone: int, pdf_class: int) -> tuple[int, ...]:
        """The pdfs, ascending, that a state of a phone has in one context or another.

        The search does not go through contexts one by one. If questions about one position
        contradict each other, the result has a pdf that no context has, as in Kaldi's transition
        models.
        """
        event = {PDF_CLASS: pdf_class, self.central_position: phone}
        return tuple(sorted(_answers(_reached(self.to_pdf, event))))

    def pdf_pairs(
        self, phone: int, forward_class: int, self_loop_class: int, phones: Sequence[int]
    ) -> tuple[tuple[int, int], ...]:
        """The pairs of pdfs, ascending, of a state whose self-loop has a pdf of its own.

        Args:
            phone: The phone.
            forward_class: The class of the pdf of the transitions that leave the state.
            self_loop_class: The class of the pdf of its self-loop; -1 for none.
            phones: The phones that may be around it.

        Returns:
            For each pair that some context has, the forward pdf and the self-loop pdf.
        """
        pairs: set[tuple[int, int]] = set()
        waiting: list[dict[int, int]] = [{self.central_position: phone}]
        while waiting:
            known = waiting.pop()
            nodes = list(_reached(self.to_pdf, {PDF_CLASS: forward_class, **known}))
            forward, looping = _answers(nodes), {-1}
            if self_loop_class >= 0:
                of_loop = list(_reached(self.to_pdf, {PDF_CLASS: self_loop_class, **known}))
                looping = _answers(of_loop)
                nodes += of_loop
            asked = {node.key for node in nodes if not isinstance(node, Leaf)} - known.keys()
            asked &= set(range(self.context_width))
            if min(len(forward), len(looping)) <= 1 or not asked:
                pairs.update(itertools.product(forward, looping))
            else:  # which goes with which depends on one more phone, or on none being there
                nearest = min(asked, key=lambda each: (abs(each - self.central_position), each))
                waiting += [{**known, nearest: other} for other in (0, *phones)]
        return tuple(sorted(pairs))


_UNSIGNED = 0xFC
"""The byte before an unsigned integer of four bytes in binary files: -4."""
_MAX_BRANCHES = 1 << 20
_MAX_DEPTH = 400
_NONE = "NULL"
_NODES = (_NONE, "CE", "TE", "SE")


def read_tree(source: files.PathOrFile) -> ContextDependency:
    """Reads a tree, binary or text.

    Args:
        source: A path, or a file open for reading bytes.

    Raises:
        ModelFileError: the file cannot be read, or holds no tree; the error says where.
    """
    reader = files.open_reader(source)
    start = reader.position
    reader.expect("ContextDependency")
    width, position = reader.integer(), reader.integer()
    reader.skip_blanks()
    at = reader.position
    token = reader.token()
    if token == "ToLength":  # of old files, and not needed
        _read_node(reader, 0)
        reader.skip_blanks()
        at = reader.position
        token = reader.token()
    if token != "ToPdf":
        reader.fail("unexpected token", at=at, expected="'ToPdf'", found=f"'{token}'")
    root = _read_node(reader, 0)
    if root is None:
        reader.fail("the tree has no root", at=at)
    reader.expect("EndContextDependency")
    files.leave_behind(source, reader)
    try:
        return ContextDependency(context_width=width, central_position=position, to_pdf=root)
    except HmmError as error:
        reader.fail(str(error), at=start)


def _read_node(reader: files.Reader, depth: int) -> EventMap | None:
    reader.skip_blanks()
    start = reader.position
    if depth > _MAX_DEPTH:
        reader.fail(f"the tree is more than {_MAX_DEPTH} nodes deep")
    token = reader.token()
    if token not in _NODES:
        reader.fail(
            "this is no node of a tree", at=start, expected=" or ".join(_NODES), found=f"'{token}'"
        )
    match token:
        case "CE":
            return Leaf(reader.integer())
        case "TE":
            key = reader.integer()
            size = _read_size(reader)
            reader.expect("(")
            branches = [_read_node(reader, depth + 1) for _ in range(size)]
            reader.expect(")")
            return Table(key, branches)
        case "SE":
            key, values = reader.integer(), reader.integers()
            reader.expect("{")
            yes, no = _read_node(reader, depth + 1), _read_node(reader, depth + 1)
            if yes is None or no is None:
                reader.fail("a question has only one answer", at=start)
            reader.expect("}")
            return Split(key, values, yes, no)
        case _:
            return None


def _read_size(reader: files.Reader) -> int:
    """The number of branches; in binary an unsigned integer."""
    if not reader.binary:
        return reader.count("branches", maximum=_MAX_BRANCHES)
    start = reader.position
    data = bytes(reader.data[start : start + 5])
    most = min(_MAX_BRANCHES, reader.remaining // len(b"CE "))
    if len(data) < 5 or data[0] != _UNSIGNED:
        reader.fail("this is no size", expected="an unsigned integer", found=reader.next_bytes())
    size = int.from_bytes(data[1:], "little")
    if size > most:
        reader.fail("impossible number of branches", expected=f"0 to {most}", found=str(size))
    reader.position = start + len(data)
    return size
