"""Components in Kaldi's files, binary and text, following the declarations of their fields."""

from typing import Any

from nnet3_descriptors.components.declaration import base, registry
from nnet3_descriptors.components.declaration.fields import FieldSpec
from nnet3_descriptors.files.reader import Reader
from nnet3_descriptors.files.writer import Writer


def read_component(reader: Reader) -> base.Component:
    """Reads a component, from the token of its type on.

    Files of older versions lack newer tokens, have tokens that Kaldi no longer writes, and have
    some in other places. So the reader looks for a token among all fields that it has not read yet;
    it skips optional fields in between, and accepts a token that it has read before once more.

    Raises:
        ModelFileError: the file has no component there, or one that contradicts itself.
    """
    reader.skip_blanks()
    start = reader.position
    opening = reader.token()
    type_name = opening.removeprefix("<").removesuffix(">")
    if opening != f"<{type_name}>" or not registry.is_component_type(type_name):
        reader.fail(
            "unknown component type",
            at=start,
            expected="the token of a component type",
            found=f"'{opening}'",
        )
    cls = registry.component_class(type_name)
    with reader.nested(), reader.checking(start):
        return cls(**_read_fields(reader, cls))


def _read_fields(reader: Reader, cls: type[base.Component]) -> dict[str, Any]:
    """Reads the fields up to and including the closing token."""
    specs = cls.FIELDS
    obsolete = dict(cls.OBSOLETE)
    repeated: set[str] = set()
    values: dict[str, Any] = {}
    position = 0
    while True:
        reader.skip_blanks()
        start = reader.position
        token = reader.token()
        # Some versions of Kaldi close a component with its opening token.
        if token in (f"</{cls.type}>", f"<{cls.type}>"):
            _fill_absent(reader, specs[position:], values, start, token)
            return values
        found = _find(specs, token, position)
        if found is not None:
            _fill_absent(reader, specs[position:found], values, start, token)
            position = _read_field(reader, specs, found, token, values)
        elif token in obsolete:
            obsolete.pop(token).read(reader)
        elif token not in repeated and (earlier := _find(specs[:position], token, 0)) is not None:
            repeated.add(token)
            _read_field(reader, specs, earlier, token, values)
        else:
            _unexpected(reader, specs[position:], cls, start, token)


def _find(specs: tuple[FieldSpec, ...], token: str, position: int) -> int | None:
    for number in range(position, len(specs)):
        if specs[number].starts_with(token):
            return number
    return None


def _read_field(
    reader: Reader, specs: tuple[FieldSpec, ...], number: int, token: str, values: dict[str, Any]
) -> int:
    """Reads the value of a field, and of the following fields that have no token.

    Returns:
        The number of the next field.
    """
    spec = specs[number]
    if token not in spec.old_tokens:
        reader.expect(*spec.token.split()[1:])
    values[spec.name] = spec.kind.read(reader)
    number += 1
    while number < len(specs) and not specs[number].token:
        if token in spec.old_tokens:
            _fill_absent(reader, (specs[number],), values, reader.position, token)
        else:
            values[specs[number].name] = specs[number].kind.read(reader)
        number += 1
    return number


def _fill_absent(
    reader: Reader, specs: tuple[FieldSpec, ...], values: dict[str, Any], start: int, found: str
) -> None:
    """Sets fields that the file lacks; the class has the other defaults."""
    for spec in specs:
        if not spec.optional:
            expected = f"'{spec.token.split()[0]}'" if spec.token else "a number"
            reader.fail("a token is missing", at=start, expected=expected, found=f"'{found}'")
        if spec.has_absent:
            values[spec.name] = spec.absent(values) if callable(spec.absent) else spec.absent


def _unexpected(
    reader: Reader, specs: tuple[FieldSpec, ...], cls: type[base.Component], start: int, token: str
) -> None:
    """Raises the error for a token that no field has."""
    expected = [spec.token.split()[0] for spec in specs if spec.token]
    required = next((i for i, spec in enumerate(specs) if not spec.optional), None)
    if required is None:
        expected.append(f"</{cls.type}>")
    else:
        expected = [spec.token.split()[0] for spec in specs[: required + 1] if spec.token]
    reader.fail(
        "unexpected token",
        at=start,
        expected=" or ".join(f"'{word}'" for word in expected),
        found=f"'{token}'",
    )


def write_component(writer: Writer, component: base.Component) -> None:
    """Writes a component, from the token of its type on."""
    writer.token(f"<{component.type}>")
    for spec in component.FIELDS:
        if spec.is_written(component):
            _write_field(writer, spec, component)
        for repeated, before in component.REPEATED:
            if before == spec.name:
                _write_field(writer, component.spec(repeated), component)
    writer.token(f"</{component.type}>")


def _write_field(writer: Writer, spec: FieldSpec, component: base.Component) -> None:
    for word in spec.token.split():
        writer.token(word)
    spec.kind.write(writer, getattr(component, spec.name))
