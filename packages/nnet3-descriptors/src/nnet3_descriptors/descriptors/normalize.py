"""Normal form: from a descriptor as written to Descriptor > SumDescriptor > ForwardingDescriptor.

The rules, where `f` is any form but Append:

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

from collections.abc import Sequence
from typing import Final

import numpy as np

from nnet3_descriptors.descriptors import descriptor, forms
from nnet3_descriptors.descriptors.base import Const, ForwardingDescriptor, SumDescriptor, to_single
from nnet3_descriptors.descriptors.grammar import MAX_NESTING, Expression, parse_expression
from nnet3_descriptors.errors import DescriptorSyntaxError, NetworkError

_FREE_LEAVES: Final = 10_000
"""The most leaves on the way to normal form, besides one for each character."""


def parse_descriptor(text: str) -> descriptor.Descriptor:
    """Parses a descriptor and brings it to normal form.

    Args:
        text: Any nesting of the ten forms, such as "Append(Offset(input, -1), input)". Any names
            are accepted: only the network knows which nodes exist.

    Raises:
        DescriptorSyntaxError: The text does not follow the grammar, or has no normal form.
    """
    DescriptorSyntaxError.check_text(text)
    return normalize(parse_expression(text), text)


def normalize(expression: Expression, source: str) -> descriptor.Descriptor:
    """Brings a descriptor to normal form.

    Args:
        expression: The descriptor as written.
        source: The text that its spans refer to.

    Raises:
        DescriptorSyntaxError: It has no normal form, or one that is out of proportion.
    """
    start, end = expression.span
    normalizer = _Normalizer(source, max_leaves=_FREE_LEAVES + end - start)
    return descriptor.Descriptor(normalizer.parts(expression, MAX_NESTING))


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
            if not parts_of:
                return (_leaf(expression),)
            return tuple(_apply(expression, terms) for terms in zip(*parts_of, strict=True))
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


def _leaf(expression: Expression) -> SumDescriptor:
    """Returns the normal form of a form without operands."""
    match expression.form, expression.values:
        case "Const", (float(value), int(num_columns)):
            return Const(value, num_columns)
        case _, (str(name),):
            return forms.Node(name)
    raise AssertionError(expression)


def _apply(expression: Expression, terms: Sequence[SumDescriptor]) -> SumDescriptor:
    """Returns the normal form of a form applied to operands of one part each."""
    match expression.form, expression.values:
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
