"""The container of the three serialized values: Nnet, ComputationRequest and NnetComputation.

A container is a safetensors file. Arrays are its tensors; everything else is JSON, the one value
of its metadata, under the key "nnet3":

    {"format": "nnet3.nnet", "version": 1, "content": {...}}

- An object stands for an instance of a class: its keys are the names of the fields. Where several
  classes are possible, the key "type" gives the name of the class. (A class whose own attribute
  IS_ABSTRACT is true only serves others as a base.)
- A list stands for a tuple; a descriptor is its text.
- {"$tensor": NAME} stands for the array that is stored as the tensor NAME, which is the path to
  it: "components.3.linear_params".
- Infinite and undefined numbers, which JSON lacks, are the strings "inf", "-inf" and "nan".

Equal values give equal bytes, in every process. (This is why there is one metadata key: safetensors
keeps several in an order that differs from process to process.) Reading checks everything: a key,
tensor or type that is unknown, missing or of another kind is refused.
"""

import functools
import json
import math
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NoReturn, TypeVar, Union, cast, get_args, get_origin

import attrs
import cattrs
import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn

from nnet3_descriptors.descriptors import Descriptor, parse_descriptor
from nnet3_descriptors.errors import Nnet3Error, SerializationError

METADATA_KEY: Final = "nnet3"
TENSOR_KEY: Final = "$tensor"
TYPE_KEY: Final = "type"
ARRAY_KEY: Final = "$array"

_JSON_DTYPES: Final = ("bool", "int8", "uint8", "int32", "int64", "float32", "float64")
_HEADER_KEYS: Final = ("format", "version", "content")
_SHOWN_FAULTS: Final = 3

Array = npt.NDArray[Any]
T = TypeVar("T")


def to_container(value: object, *, format: str, version: int) -> bytes:
    """Serializes an instance of an attrs class.

    Args:
        value: What to serialize. Its fields may hold numbers, strings, None, arrays, descriptors,
            tuples of such, and instances of other attrs classes.
        format: Name of the format, such as "nnet3.nnet".
        version: Version of the format; to be raised when older readers would misread it.
    """
    tensors: dict[str, Array] = {}
    content = _detach_tensors(_converter().unstructure(value), (), tensors)
    header = dict(zip(_HEADER_KEYS, (format, version, content), strict=True))
    text = json.dumps(header, allow_nan=False, separators=(",", ":"))
    return safetensors.numpy.save(tensors, {METADATA_KEY: text})


def from_container(data: bytes, cls: type[T], *, format: str, version: int) -> T:
    """Reads what `to_container` has written.

    Args:
        data: The bytes of the container.
        cls: The class of the value.
        format: The format that the container must have.
        version: The version of the format that the container must have.

    Returns:
        The value; its arrays are read-only.

    Raises:
        SerializationError: The bytes are no such container; the message says where.
    """
    tensors, text = _open_container(data)
    reader = _ContentReader(tensors)
    header = reader.read(text)
    if not isinstance(header, dict) or sorted(header) != sorted(_HEADER_KEYS):
        raise SerializationError(f"the metadata must hold {', '.join(_HEADER_KEYS)}")
    if header["format"] != format:
        raise SerializationError(f"expected the format '{format}', got {header['format']!r}")
    if header["version"] != version:
        raise SerializationError(
            f"expected version {version} of the format '{format}', got {header['version']!r}"
        )
    reader.check_all_used()
    try:
        return _converter().structure(header["content"], cls)
    except (cattrs.BaseValidationError, ValueError, TypeError) as error:
        raise SerializationError(f"not a valid '{format}': {_describe(error)}") from error


def to_json(value: object) -> str:
    """Serializes an instance of an attrs class as one line of JSON, for people to read.

    It is the content of a container, with arrays in the place of references to tensors:
    {"$array": [[1, 2]], "dtype": "int32", "shape": [1, 2]}. The class is written as "type".

    Args:
        value: As for `to_container`.
    """
    tensors: dict[str, Array] = {}
    fields = _detach_tensors(_converter().unstructure(value, type(value)), (), tensors)
    content = {TYPE_KEY: type(value).__name__, **fields}
    return json.dumps(_with_arrays(content, tensors), allow_nan=False)


def from_json(text: str, base: type[T]) -> T:
    """Reads what `to_json` has written.

    Args:
        text: The JSON.
        base: A class that the value is an instance of.

    Raises:
        SerializationError: The text is no such JSON, or does not describe an instance of `base`.
    """
    try:
        content = json.loads(text, object_hook=_array_from_json)
        name = content.pop(TYPE_KEY) if isinstance(content, dict) else None
        classes = {cls.__name__: cls for cls in _classes([base])}
        if name not in classes:
            raise TypeError(f"unknown type {name!r:.80}")
        return cast(T, _converter().structure(content, classes[name]))
    except (
        cattrs.BaseValidationError,
        json.JSONDecodeError,
        KeyError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise SerializationError(f"not a {base.__name__}: {_describe(error)}") from error


def _with_arrays(value: Any, tensors: dict[str, Array]) -> Any:
    """Returns JSON with references to tensors replaced by their values."""
    if isinstance(value, list):
        return [_with_arrays(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if list(value) == [TENSOR_KEY]:
        array = tensors[value[TENSOR_KEY]]
        values = (
            [_float_to_json(item) for item in array.ravel().tolist()]
            if (array.dtype.kind == "f")
            else array.ravel().tolist()
        )
        return {ARRAY_KEY: values, "dtype": str(array.dtype), "shape": list(array.shape)}
    return {key: _with_arrays(item, tensors) for key, item in value.items()}


def _array_from_json(entries: dict[str, Any]) -> Any:
    """Returns the array that an object of `to_json` stands for, or the object if it is none."""
    if ARRAY_KEY not in entries:
        return entries
    if entries.keys() != {ARRAY_KEY, "dtype", "shape"} or entries["dtype"] not in _JSON_DTYPES:
        raise ValueError("an array must have its values, a known dtype and a shape")
    array = np.array(entries[ARRAY_KEY], dtype=entries["dtype"]).reshape(entries["shape"])
    array.setflags(write=False)
    return array


# -- arrays and JSON -------------------------------------------------------------------------------


def _detach_tensors(value: Any, path: tuple[str, ...], tensors: dict[str, Array]) -> Any:
    """Returns `value` with its arrays replaced by references; puts the arrays into `tensors`."""
    if isinstance(value, np.ndarray):
        name = ".".join(path)
        tensors[name] = np.ascontiguousarray(value)
        return {TENSOR_KEY: name}
    if isinstance(value, dict):
        return {key: _detach_tensors(item, (*path, key), tensors) for key, item in value.items()}
    if isinstance(value, list):
        return [_detach_tensors(item, (*path, str(i)), tensors) for i, item in enumerate(value)]
    return value


def _open_container(data: bytes) -> tuple[dict[str, Array], str]:
    """Returns the tensors of a safetensors file and the text of its metadata."""
    try:
        tensors = safetensors.numpy.load(data)
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
    except (safetensors.SafetensorError, ValueError, KeyError, RecursionError) as error:
        raise SerializationError(f"not a safetensors container: {error}") from error
    metadata = header.get("__metadata__", {})
    if METADATA_KEY not in metadata:
        raise SerializationError(f"the container has no metadata '{METADATA_KEY}'")
    return tensors, metadata[METADATA_KEY]


class _ContentReader:
    """Reads JSON and puts the arrays back into it."""

    def __init__(self, tensors: dict[str, Array]) -> None:
        self._tensors = tensors
        self._used: set[str] = set()

    def read(self, text: str) -> Any:
        """Returns the value that `text` stands for."""
        try:
            return json.loads(
                text, object_pairs_hook=self._object, parse_constant=self._refuse_constant
            )
        except (json.JSONDecodeError, RecursionError) as error:
            raise SerializationError(f"the metadata is not readable as JSON: {error}") from error

    def check_all_used(self) -> None:
        """Raises SerializationError if a tensor was not asked for."""
        left = sorted(self._tensors.keys() - self._used)
        if left:
            raise SerializationError(f"the tensor '{left[0]}' has no place in the content")

    def _object(self, pairs: list[tuple[str, Any]]) -> Any:
        entries = dict(pairs)
        if len(entries) != len(pairs):
            raise SerializationError("a key occurs twice in one object of the content")
        if list(entries) != [TENSOR_KEY]:
            return entries
        name = entries[TENSOR_KEY]
        if not isinstance(name, str) or name not in self._tensors or name in self._used:
            raise SerializationError(f"there must be one tensor for each reference (got {name!r})")
        self._used.add(name)
        array = self._tensors[name]
        array.setflags(write=False)
        return array

    def _refuse_constant(self, constant: str) -> NoReturn:
        raise SerializationError(f"{constant} is no JSON")


def _describe(error: Exception) -> str:
    """Returns what is wrong, with the path to it in the content."""
    faults = cattrs.transform_error(error, path="content", format_exception=_describe_fault)
    more = len(faults) - _SHOWN_FAULTS
    return "; ".join(faults[:_SHOWN_FAULTS]) + (f"; and {more} more" if more > 0 else "")


def _describe_fault(error: BaseException, type_: type | None) -> str:
    if isinstance(error, KeyError):
        return f"required field {error} missing"
    if isinstance(error, cattrs.errors.ForbiddenExtraKeysError):
        return f"unknown field {', '.join(sorted(error.extra_fields))}"
    if isinstance(error, Nnet3Error | ValueError | TypeError):
        return str(error)
    return f"invalid value for {type_}"


# -- classes ---------------------------------------------------------------------------------------


@functools.cache
def _converter() -> cattrs.Converter:
    """Returns the converter between attrs classes and what JSON can hold (besides arrays)."""
    converter = cattrs.Converter(
        forbid_extra_keys=True, unstruct_collection_overrides={tuple: list}
    )
    converter.register_unstructure_hook(float, _float_to_json)
    converter.register_structure_hook(float, _float_from_json)
    for primitive in (bool, int, str):
        converter.register_structure_hook(primitive, _exactly(primitive))
    converter.register_unstructure_hook(Descriptor, str)
    converter.register_structure_hook(Descriptor, lambda text, _: parse_descriptor(text))
    converter.register_unstructure_hook_func(_is_array, lambda array: array)
    converter.register_structure_hook_func(_is_array, _check_array)
    converter.register_unstructure_hook_factory(_is_tagged, _tagged_unstructure_hook)
    converter.register_structure_hook_factory(_is_tagged, _tagged_structure_hook)
    return converter


def _float_to_json(value: float) -> float | str:
    return float(value) if math.isfinite(value) else str(float(value))


def _float_from_json(value: Any, _: type) -> float:
    if value in ("inf", "-inf", "nan"):
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


def _members(type_: Any) -> tuple[Any, ...]:
    """Returns the types of a union; a type that is none is a union of one."""
    return get_args(type_) if get_origin(type_) in (Union, types.UnionType) else (type_,)


def _is_tagged(type_: Any) -> bool:
    """Tells whether a field of this type holds instances of one of several attrs classes."""
    members = [member for member in _members(type_) if member is not types.NoneType]
    return all(isinstance(member, type) and attrs.has(member) for member in members) and (
        len(members) > 1 or any(member.__subclasses__() for member in members)
    )


def _classes(members: Iterable[Any]) -> Iterator[type[attrs.AttrsInstance]]:
    """Returns attrs classes and their subclasses, without those that are marked as abstract."""
    for member in members:
        attributes = vars(member)
        if "__attrs_attrs__" in attributes and not attributes.get("IS_ABSTRACT", False):
            yield member
        yield from _classes(member.__subclasses__())


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
    members = set(_members(type_))
    is_optional = types.NoneType in members
    classes = {cls.__name__: cls for cls in _classes(members - {types.NoneType})}

    hooks: dict[str, Callable[[Any, Any], Any]] = {}

    def structure(value: Any, _: Any) -> Any:
        if value is None and is_optional:
            return None
        if not isinstance(value, dict):
            raise TypeError(f"expected an object, got {value!r:.80}")
        fields = dict(value)
        name = fields.pop(TYPE_KEY, None)
        if not isinstance(name, str) or name not in classes:
            raise TypeError(f"unknown type {name!r:.80}")
        cls = classes[name]
        if name not in hooks:
            hooks[name] = make_dict_structure_fn(cls, _converter(), _cattrs_forbid_extra_keys=True)
        return hooks[name](fields, cls)

    return structure
