"""Descriptor: the whole input of a node, and how an expression becomes one, in normal form.

Normal form is Descriptor > SumDescriptor > ForwardingDescriptor. The rules, where `f` is any form
but Append:

1. Append(a, Append(b, c)) is Append(a, b, c).
2. f(Append(a, b), Append(c, d)) is Append(f(a, c), f(b, d)): every form but Append is applied part
   by part, and its operands must have the same number of parts.
3. Sum(a) is a; Sum(a, b, c) is Sum(a, Sum(b, c)).
4. Offset, Round, ReplaceIndex and Scale move into Sum, Failover and IfDefined, down to the nodes.
   A constant has the same value at all indexes, so the first three leave it alone.
5. Scale moves further, into Offset, Round, ReplaceIndex and Switch, to the node; scales multiply,
   and a scale of 1 vanishes.
6. Offset(Offset(a, 1), 2) is Offset(a, 3); an offset of 0 vanishes.
7. Switch(Sum(a, b), Sum(c, d)) is Sum(Switch(a, c), Switch(b, d)), and the same with Failover and
   IfDefined. A Switch of sums that differ in shape has no normal form.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import attrs
import numpy as np

from nnet3_descriptors.descriptors import forms
from nnet3_descriptors.descriptors.forms import (
    CindexSet,
    Const,
    ForwardingDescriptor,
    NodeNumbers,
    SumDescriptor,
    to_single,
)
from nnet3_descriptors.descriptors.grammar import (
    MAX_LENGTH,
    MAX_NESTING,
    Expression,
    parse_expression,
)
from nnet3_descriptors.errors import DescriptorSyntaxError, NetworkError
from nnet3_descriptors.indexes import AnyIndexes


@attrs.frozen
class Descriptor:
    """One or more sum descriptors side by side, in normal form.

    `str()` gives the canonical text; `parse_descriptor` is its inverse.

    Attributes:
        parts: The sum descriptors, whose values are appended column-wise.
    """

    parts: tuple[forms.SumDescriptor, ...] = attrs.field(validator=attrs.validators.min_len(1))

    def __str__(self) -> str:
        text = ", ".join(map(str, self.parts))
        return text if len(self.parts) == 1 else f"Append({text})"

    @property
    def node_names(self) -> tuple[str, ...]:
        """Names of the nodes that this may take values from, each once, in order."""
        return tuple(dict.fromkeys(name for part in self.parts for name in part.node_names))

    @property
    def leaves(self) -> tuple[forms.ForwardingDescriptor, ...]:
        """The forwarding descriptors of all parts, from left to right."""
        return tuple(leaf for part in self.parts for leaf in part.leaves)

    def dependencies(
        self, indexes: AnyIndexes, node_index: NodeNumbers | None = None
    ) -> forms.Cindexes:
        """Returns all cindexes that might be read.

        Args:
            indexes: (N, 3) int32, the requested indexes, columns n, t, x.
            node_index: The number of each node, by name; by default its place in `node_names`.

        Returns:
            (L, N, 4) int64, columns node, n, t, x: the row that leaf l of `leaves` reads for row n.
            A t or x beyond 32 bits means that there is no such row.
        """
        return forms.dependencies_of(
            self.leaves, indexes, node_index or forms.numbered(self.node_names)
        )

    def is_computable(
        self, indexes: AnyIndexes, available: CindexSet, node_index: NodeNumbers | None = None
    ) -> tuple[forms.BoolArray, forms.BoolArray]:
        """Tells which rows can be computed (all their parts can), and which cindexes they read.

        Args:
            indexes: (N, 3) int32, the requested indexes, columns n, t, x.
            available: The set of all cindexes that can be computed.
            node_index: As for `dependencies`.

        Returns:
            computable (N,), and used (L, N): which of the `dependencies` are read; none for rows
            that are not computable.
        """
        leaf_available = forms.are_available(self.dependencies(indexes, node_index), available)
        computable = np.ones(len(indexes), dtype=np.bool_)
        used = np.empty_like(leaf_available)
        first = 0
        for part in self.parts:
            own = slice(first, first + len(part.leaves))
            computable &= part.computable(leaf_available[own])
            used[own] = part.used(leaf_available[own])
            first = own.stop
        return computable, used & computable

    @property
    def modulus(self) -> int:
        """Smallest shift of t, in frames, that leaves the meaning of this unchanged."""
        return math.lcm(*(part.modulus for part in self.parts))

    def dim(self, node_dim: forms.NodeDim) -> int:
        """Returns the number of columns, the sum of those of the parts.

        Args:
            node_dim: Gives the dimension of the node of a name.

        Raises:
            NetworkError: Values that are added differ in dimension.
        """
        return sum(part.dim(node_dim) for part in self.parts)

    def map_nodes(self, replace: Callable[[str], forms.ForwardingDescriptor]) -> "Descriptor":
        """Returns a copy in which every node name is replaced by a forwarding descriptor."""
        return Descriptor(
            tuple(part.map_leaves(lambda leaf: leaf.map_nodes(replace)) for part in self.parts)
        )


_FREE_LEAVES: Final = 10_000
"""The most leaves on the way to normal form, besides one for each character."""


def parse_descriptor(text: str) -> Descriptor:
    """Parses a descriptor and brings it to normal form.

    Args:
        text: Any nesting of the ten forms, such as "Append(Offset(input, -1), input)". Any names
            are accepted: only the network knows which nodes exist.

    Raises:
        DescriptorSyntaxError: The text does not follow the grammar, or has no normal form.
    """
    DescriptorSyntaxError.check_text(text)
    return normalize(parse_expression(text), text)


def written(descriptor: Descriptor) -> str:
    """Returns the canonical text of a descriptor, which `parse_descriptor` reads.

    Raises:
        NetworkError: The text is too long for it.
    """
    text = str(descriptor)
    if len(text) > MAX_LENGTH:
        raise NetworkError(
            f"descriptors may have at most {MAX_LENGTH} characters (got {len(text)}: "
            f"{text[:24]}...)"
        )
    return text


def normalize(expression: Expression, source: str) -> Descriptor:
    """Brings a descriptor to normal form.

    Args:
        expression: The descriptor as written.
        source: The text that its spans refer to.

    Raises:
        DescriptorSyntaxError: It has no normal form, or one that is out of proportion.
    """
    start, end = expression.span
    normalizer = _Normalizer(source, max_leaves=_FREE_LEAVES + end - start)
    return Descriptor(normalizer.parts(expression, MAX_NESTING))


class _Normalizer:
    """Applies the rules from the inside out, and limits the size of the result."""

    def __init__(self, source: str, max_leaves: int) -> None:
        self._source = source
        self._leaves_left = max_leaves

    def parts(self, expression: Expression, room: int) -> tuple[SumDescriptor, ...]:
        """Returns the parts of an expression; `room` is how deep they may still nest."""
        if room < 1:
            raise self._error(
                f"the normal form of this descriptor nests more than {MAX_NESTING} deep", expression
            )
        parts_of = []
        for number, operand in enumerate(expression.operands, start=1):
            is_sum = expression.form == "Sum"
            below = min(number, len(expression.operands) - 1) if is_sum else 1
            parts_of.append(self.parts(operand, room - below))
        if expression.form == "Append":
            return tuple(part for parts in parts_of for part in parts)
        self._check_counts(expression, parts_of)
        self._spend(expression, parts_of)
        try:
            terms_of = zip(*parts_of, strict=True) if parts_of else [()]
            return tuple(_apply(expression, terms) for terms in terms_of)
        except NetworkError as error:
            raise self._error(str(error), expression) from error

    def _check_counts(
        self, expression: Expression, parts_of: Sequence[Sequence[SumDescriptor]]
    ) -> None:
        counts = sorted({len(parts) for parts in parts_of})
        if len(counts) > 1:
            raise self._error(
                f"the operands of {expression.form}() must have the same number of appended parts "
                f"(got {' and '.join(map(str, counts))})",
                expression,
            )

    def _spend(self, expression: Expression, parts_of: Sequence[Sequence[SumDescriptor]]) -> None:
        """Counts the leaves that applying the form makes or rebuilds."""
        if expression.values or expression.form == "Switch":
            leaves = sum(len(part.leaves) for parts in parts_of for part in parts)
            self._leaves_left -= max(1, leaves)
        if self._leaves_left < 0:
            raise self._error("the normal form of this descriptor is too large", expression)

    def _error(self, message: str, expression: Expression) -> DescriptorSyntaxError:
        return DescriptorSyntaxError(message, self._source, expression.span)


def _apply(expression: Expression, terms: Sequence[SumDescriptor]) -> SumDescriptor:
    """Returns the normal form of a form applied to operands of one part each."""
    match expression.form, expression.values:
        case "", (str(name),):
            return forms.Node(name)
        case "Const", (float(value), int(num_columns)):
            return Const(value, num_columns)
        case "Sum", ():
            return _sum(terms)
        case "Failover", ():
            return forms.Failover(*terms)
        case "IfDefined", ():
            return forms.IfDefined(*terms)
        case "Switch", ():
            return _switch(terms)
        case "Scale", (float(factor),):
            return scaled(terms[0], factor)
        case "Offset", (int(t_offset), *rest):
            x_offset = rest[0] if rest else 0
            assert isinstance(x_offset, int)
            return shifted(terms[0], t_offset, x_offset)
        case "Round", (int(t_modulus),):
            return terms[0].map_leaves(lambda leaf: forms.Round(leaf, t_modulus))
        case "ReplaceIndex", (("t" | "x") as variable, int(value)):
            return terms[0].map_leaves(lambda leaf: forms.ReplaceIndex(leaf, variable, value))
    raise AssertionError(expression)


def _sum(terms: Sequence[SumDescriptor]) -> SumDescriptor:
    total = terms[-1]
    for term in reversed(terms[:-1]):
        total = forms.Sum(term, total)
    return total


def shifted(term: SumDescriptor, t_offset: int, x_offset: int = 0) -> SumDescriptor:
    """Returns the normal form of Offset(term, t_offset, x_offset).

    Raises:
        NetworkError: An offset no longer fits in 32 bits.
    """
    return term.map_leaves(lambda leaf: _shifted_leaf(leaf, t_offset, x_offset))


def _shifted_leaf(leaf: ForwardingDescriptor, t_offset: int, x_offset: int) -> ForwardingDescriptor:
    if isinstance(leaf, forms.Offset):
        t_offset += leaf.t_offset
        x_offset += leaf.x_offset
        leaf = leaf.source
    if t_offset == 0 and x_offset == 0:
        return leaf
    return forms.Offset(leaf, t_offset, x_offset)


def scaled(term: SumDescriptor, factor: float) -> SumDescriptor:
    """Returns the normal form of Scale(factor, term).

    Raises:
        NetworkError: A scale or constant becomes infinite.
    """
    return term.map_leaves(
        lambda leaf: _scaled_leaf(leaf, factor),
        lambda const: Const(_product(factor, const.value), const.num_columns),
    )


def _scaled_leaf(leaf: ForwardingDescriptor, factor: float) -> ForwardingDescriptor:
    match leaf:
        case forms.Node():
            return leaf if to_single(factor) == 1.0 else forms.Scale(factor, leaf)
        case forms.Scale():
            return _scaled_leaf(leaf.source, _product(factor, leaf.factor))
    return leaf.with_sources(tuple(_scaled_leaf(source, factor) for source in leaf.sources))


def _product(first: float, second: float) -> float:
    """Returns the product as float32 arithmetic gives it."""
    with np.errstate(over="ignore", under="ignore"):
        return float(np.float32(first) * np.float32(second))


def _switch(terms: Sequence[SumDescriptor]) -> SumDescriptor:
    first = terms[0]
    forwarding = [term for term in terms if isinstance(term, ForwardingDescriptor)]
    if len(forwarding) == len(terms):
        return forms.Switch(tuple(forwarding))
    if isinstance(first, Const) and all(term == first for term in terms):
        return first
    if any(type(term) is not type(first) for term in terms) or not first.operands:
        raise NetworkError(
            "Switch() takes the rows of one sum from several nodes, so its arguments must be "
            "sums of the same shape (got " + ", ".join(map(str, terms)) + ")"
        )
    operands = zip(*(term.operands for term in terms), strict=True)
    return first.with_operands(tuple(_switch(group) for group in operands))


def leaves_of(descriptor: Descriptor) -> Iterator[tuple[ForwardingDescriptor, bool]]:
    """Yields each forwarding descriptor, from left to right, and whether it stands below a choice.

    A leaf below IfDefined or Failover need not be computable.
    """
    for part in descriptor.parts:
        yield from _leaves(part, is_optional=False)


def _leaves(
    part: SumDescriptor, *, is_optional: bool
) -> Iterator[tuple[ForwardingDescriptor, bool]]:
    if isinstance(part, ForwardingDescriptor):
        yield part, is_optional
    optional_below = is_optional or isinstance(part, forms.IfDefined | forms.Failover)
    for operand in part.operands:
        yield from _leaves(operand, is_optional=optional_below)
