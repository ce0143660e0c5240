"""Converts between attrs classes and values of JSON; arrays do not change."""

from __future__ import annotations

import functools
import json
import math
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar, Union, get_args, get_origin

import attrs
import cattrs
import numpy as np
import numpy.typing as npt
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn

from nnet3_descriptors.components.declaration.registry import (
    make_all_classes,
    make_outside_classes,
)
from nnet3_descriptors.descriptors import Descriptor, parse_descriptor
from nnet3_descriptors.errors import Nnet3Error, SerializationError

TYPE_KEY: Final = "type"
NOT_FINITE: Final = ("inf", "-inf", "nan")
"""Numbers that JSON lacks, as strings."""

_SHOWN_FAULTS: Final = 3

Array = npt.NDArray[Any]
T = TypeVar("T")


def unstructure(value: object) -> Any:
    """Returns dictionaries, lists, strings, numbers, None and arrays that stand for a value."""
    return _converter().unstructure(value)


def unstructure_tagged(value: object) -> Any:
    """Returns the same with the name of the value's class under the key "type"."""
    return _tagged_unstructure_hook(type(value))(value)


def structure(content: Any, cls: type[T], *, name: str) -> T:
    """Returns the value that content stands for.

    Args:
        content: What `unstructure` gives.
        cls: The class of the value, an attrs class.
        name: The name of the whole in the error message.

    Raises:
        SerializationError: The content does not describe an instance of the class.
    """

    def read() -> T:
        if not isinstance(content, dict):
            raise TypeError(f"expected an object, got {content!r:.80}")
        return _converter().structure(content, cls)

    return _structure(read, name)


def structure_tagged(content: Any, base: type[T], *, name: str) -> T:
    """Returns the value that tagged content stands for.

    Args:
        content: What `unstructure_tagged` gives.
        base: A class that the value is an instance of.
        name: The name of the whole in the error message.

    Raises:
        SerializationError: The content does not describe an instance of the class.
    """
    hook: Callable[[Any, type[T]], T] = _tagged_structure_hook(base)
    return _structure(lambda: hook(content, base), name)


def _structure(structure: Callable[[], T], name: str) -> T:
    try:
        return structure()
    except (cattrs.BaseValidationError, KeyError, TypeError, ValueError) as error:
        raise SerializationError(f"not a valid {name}: {_describe(error)}") from error


def _describe(error: Exception) -> str:
    """Returns a description of the fault, with the path to it in the content."""
    faults = cattrs.transform_error(error, path="content", format_exception=_describe_fault)
    more = len(faults) - _SHOWN_FAULTS
    return "; ".join(faults[:_SHOWN_FAULTS]) + (f"; and {more} more" if more > 0 else "")


def _describe_fault(error: BaseException, type_: type | None) -> str:
    if isinstance(error, KeyError):
        return f"required field {error} missing"
    if isinstance(error, cattrs.errors.ForbiddenExtraKeysError):
        return f"unknown field {', '.join(f'{name!r:.80}' for name in sorted(error.extra_fields))}"
    if isinstance(error, Nnet3Error | ValueError | TypeError):
        return str(error)
    return f"invalid value for {type_}"


@functools.cache
def _converter() -> cattrs.Converter:
    """Returns the converter between attrs classes and what JSON can hold (besides arrays)."""
    converter = cattrs.Converter(
        forbid_extra_keys=True, unstruct_collection_overrides={tuple: list}
    )
    converter.register_unstructure_hook(float, float_to_json)
    converter.register_structure_hook(float, _float_from_json)
    for primitive in (bool, int, str):
        converter.register_structure_hook(primitive, _exactly(primitive))
    converter.register_unstructure_hook(Descriptor, str)
    converter.register_structure_hook(Descriptor, lambda text, _: parse_descriptor(text))
    converter.register_unstructure_hook_func(_is_array, lambda array: array)
    converter.register_structure_hook_func(_is_array, _check_array)
    converter.register_structure_hook_factory(_is_sequence, _sequence_structure_hook)
    converter.register_unstructure_hook_factory(_is_tagged, _tagged_unstructure_hook)
    converter.register_structure_hook_factory(_is_tagged, _tagged_structure_hook)
    return converter


def float_to_json(value: float) -> float | str:
    """Returns a number as JSON can hold it: infinite and undefined ones become strings."""
    return float(value) if math.isfinite(value) else str(float(value))


def _float_from_json(value: Any, _: type) -> float:
    if isinstance(value, str) and value in NOT_FINITE:
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"expected a number, got {value!r:.80}")
    return float(value)


def _exactly(primitive: type) -> Callable[[Any, type], Any]:
    """Returns a hook that takes values of one class only and converts nothing."""

    def check(value: Any, _: type) -> Any:
        if type(value) is not primitive:
            raise TypeError(f"expected a value of type {primitive.__name__}, got {value!r:.80}")
        return value

    return check


def _is_array(type_: Any) -> bool:
    return type_ is np.ndarray or get_origin(type_) is np.ndarray


def _check_array(value: Any, type_: Any) -> Array:
    if not isinstance(value, np.ndarray):
        raise TypeError(f"expected a tensor, got {value!r:.80}")
    arguments = get_args(type_)
    (dtype,) = get_args(arguments[1]) if arguments else (Any,)
    if dtype is not Any and value.dtype != dtype:
        raise TypeError(f"expected a tensor of {np.dtype(dtype)}, got one of {value.dtype}")
    return value


def _is_sequence(type_: Any) -> bool:
    """Tells whether a field of this type holds any number of values of one type."""
    return get_origin(type_) is tuple and get_args(type_)[1:] == (Ellipsis,)


def _sequence_structure_hook(type_: Any) -> Callable[[Any, Any], tuple[Any, ...]]:
    """Returns a hook that takes lists only and gives up after as many faults as are shown.

    What cattrs does itself takes strings for lists of letters and keeps an error for each of them.
    """
    (item_type, _) = get_args(type_)
    hooks: list[Callable[[Any, Any], Any]] = []

    def structure(value: Any, _: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise TypeError(f"expected a list, got {value!r:.80}")
        if not hooks:  # not before, as types may contain themselves
            hooks.append(_converter().get_structure_hook(item_type))
        items, errors = [], []
        for number, item in enumerate(value):
            try:
                items.append(hooks[0](item, item_type))
            except Exception as error:
                note = f"Structuring {type_} @ index {number}"
                error.add_note(cattrs.IterableValidationNote(note, number, item_type))
                errors.append(error)
                if len(errors) == _SHOWN_FAULTS:
                    break
        if errors:
            raise cattrs.IterableValidationError(f"While structuring {type_}", errors, type_)
        return tuple(items)

    return structure


def _members(type_: Any) -> tuple[Any, ...]:
    """Returns the types of a union; a type that is none is a union of one."""
    return get_args(type_) if get_origin(type_) in (Union, types.UnionType) else (type_,)


def _is_tagged(type_: Any) -> bool:
    """Tells whether a field of this type holds instances of one of several attrs classes."""
    members = [member for member in _members(type_) if member is not types.NoneType]
    return all(isinstance(member, type) and attrs.has(member) for member in members) and (
        len(members) > 1 or any(_is_abstract(each) or each.__subclasses__() for each in members)
    )


def _is_abstract(cls: type) -> bool:
    """Returns whether a class is marked as what several have in common."""
    return bool(vars(cls).get("IS_ABSTRACT", False))


def _concrete_classes(members: Iterable[Any]) -> Iterator[type[Any]]:
    """Returns attrs classes and those derived from them, without those marked as abstract."""
    for member in members:
        if "__attrs_attrs__" in vars(member) and not _is_abstract(member):
            yield member
        yield from _concrete_classes(member.__subclasses__())


def _tagged_unstructure_hook(_: Any) -> Callable[[Any], Any]:
    hooks: dict[str, Callable[[Any], Any]] = {}

    def unstructure(value: Any) -> Any:
        if value is None:
            return None
        name = type(value).__name__
        if name not in hooks:
            hooks[name] = make_dict_unstructure_fn(type(value), _converter())
        return {TYPE_KEY: name, **hooks[name](value)}

    return unstructure


def _tagged_structure_hook(type_: Any) -> Callable[[Any, Any], Any]:
    make_all_classes()
    members = set(_members(type_))
    is_optional = types.NoneType in members
    classes: dict[str, type[Any]] = {}

    def class_of(name: str) -> type[Any] | None:
        """Returns the class of a name; one that others have made since, too."""
        if name not in classes:
            found = _concrete_classes(members - {types.NoneType})
            classes.update((cls.__name__, cls) for cls in found)
        return classes.get(name)

    hooks: dict[str, Callable[[Any, Any], Any]] = {}

    def structure(value: Any, _: Any) -> Any:
        if value is None and is_optional:
            return None
        if not isinstance(value, dict):
            raise TypeError(f"expected an object, got {value!r:.80}")
        fields = dict(value)
        name = fields.pop(TYPE_KEY, None)
        cls = class_of(name) if isinstance(name, str) else None
        if cls is None and isinstance(name, str):
            make_outside_classes()
            cls = class_of(name)
        if cls is None:
            raise TypeError(f"unknown type {name!r:.80}")
        if name not in hooks:
            hooks[name] = make_dict_structure_fn(cls, _converter(), _cattrs_forbid_extra_keys=True)
        return hooks[name](fields, cls)

    return structure


ARRAY_KEY: Final = "$array"

_DTYPES: Final = ("bool", "int8", "uint8", "int32", "int64", "float32", "float64")


def to_json(value: object) -> str:
    """Serializes an instance of an attrs class as one line of JSON.

    It is the content of a container, with arrays in the place of references to tensors:
    {"$array": [1, 2], "dtype": "int32", "shape": [1, 2]}. The class is written as "type".

    Args:
        value: As for `to_container`.
    """
    return json.dumps(_with_arrays_as_json(unstructure_tagged(value)), allow_nan=False)


def from_json(text: str, base: type[T]) -> T:
    """Reads the text of `to_json`.

    Args:
        text: The JSON.
        base: A class that the value is an instance of.

    Raises:
        SerializationError: The text is not such JSON, or does not describe an instance of `base`.
    """
    name = base.__name__
    try:
        content = json.loads(text, object_hook=_array_from_json)
    except (ArithmeticError, RecursionError, TypeError, ValueError) as error:
        raise SerializationError(f"not a valid {name}: {error}") from error
    return structure_tagged(content, base, name=name)


def _with_arrays_as_json(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return _array_to_json(value)
    if isinstance(value, dict):
        return {key: _with_arrays_as_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_arrays_as_json(item) for item in value]
    return value


def _array_to_json(array: Array) -> dict[str, Any]:
    values = array.reshape(-1).tolist()
    if array.dtype.kind == "f":
        values = [float_to_json(value) for value in values]
    return {ARRAY_KEY: values, "dtype": str(array.dtype), "shape": list(array.shape)}


def _array_from_json(entries: dict[str, Any]) -> Any:
    """Returns the array that an object of `to_json` stands for, or the object if it is none."""
    if ARRAY_KEY not in entries:
        return entries
    if entries.keys() != {ARRAY_KEY, "dtype", "shape"} or entries["dtype"] not in _DTYPES:
        raise ValueError("an array must have its values, a known dtype and a shape")
    dtype = np.dtype(entries["dtype"])
    values = entries[ARRAY_KEY]
    if not isinstance(values, list) or not all(_fits(value, dtype) for value in values):
        raise ValueError(f"the values of an array of {dtype} must be a list of such")
    shape = entries["shape"]
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"the shape of an array must be a list of sizes (got {shape!r:.80})")
    array = np.array(values, dtype=dtype).reshape(shape)
    array.setflags(write=False)
    return array


def _fits(value: Any, dtype: np.dtype[Any]) -> bool:
    """Tells whether JSON's value is one that an array of this kind is written with."""
    match dtype.kind:
        case "b":
            return type(value) is bool
        case "f":
            return type(value) in (int, float) or value in NOT_FINITE
    return type(value) is int
