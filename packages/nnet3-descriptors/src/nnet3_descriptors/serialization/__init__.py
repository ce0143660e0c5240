"""The container of the three serialized values: Nnet, ComputationRequest and NnetComputation.

A container is a safetensors file. Arrays are its tensors; everything else is JSON, the one value
of its metadata, under the key "nnet3":

    {"format": "nnet3.nnet", "version": 1, "content": {...}}

Readers accept older versions: `Serialized.UPGRADES` of a class turns their content into that of the
newest version. Readers skip a key "extras" beside these, and tensors whose names begin with
"extras.".


The types of fields say how: each is a bool, an int, a float, a str, an array, a descriptor, an
attrs class, a tuple or a dictionary of such, or one of several of these classes, or None. Nothing
else is read, and nothing is converted to fit.

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

from __future__ import annotations

import functools
import itertools
import json
import math
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NoReturn, TypeVar, Union, get_args, get_origin

import attrs
import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy

from nnet3_descriptors.components.declaration.registry import make_class, make_outside_classes
from nnet3_descriptors.descriptors import Descriptor, parse_descriptor
from nnet3_descriptors.descriptors.descriptor import written
from nnet3_descriptors.errors import Nnet3Error, SerializationError

__all__ = ["METADATA_KEY", "Upgrade", "from_container", "from_json", "to_container", "to_json"]

TYPE_KEY: Final = "type"
NOT_FINITE: Final = ("inf", "-inf", "nan")
"""Numbers that JSON lacks, as strings."""

_SHOWN_FAULTS: Final = 3

Array = npt.NDArray[Any]
T = TypeVar("T")


class _RefusedError(Exception):
    """A value cannot be read or written: what is wrong, and the path to it from here."""

    def __init__(self, faults: list[tuple[str, str]]) -> None:
        self.faults = faults


_UNWRITABLE = AttributeError, TypeError, ValueError, ArithmeticError, _RefusedError
"""The errors of writing a value of another type than that of its field."""


def unstructure(value: object) -> Any:
    """Returns dictionaries, lists, strings, numbers, None and arrays that stand for a value."""
    cls: Any = type(value)
    content = {}
    for name, write in _writers(cls):
        try:
            content[name] = write(getattr(value, name))
        except _UNWRITABLE as error:
            raise _RefusedError(_faults_at(f".{name}", error)) from error
    return content


def unstructure_tagged(value: object) -> Any:
    """Returns the same with the name of the value's class under the key "type"."""
    return {TYPE_KEY: type(value).__name__, **unstructure(value)}


def structure(content: Any, cls: type[T], *, name: str, is_tagged: bool = False) -> T:
    """Returns the value that content stands for.

    Args:
        content: What `unstructure` or `unstructure_tagged` gives.
        cls: The class of the value, an attrs class; of tagged content, one of its bases.
        name: The name of the whole in the error message.
        is_tagged: Whether the content is tagged.

    Raises:
        SerializationError: The content does not describe an instance of the class.
    """
    try:
        value: T = _tagged_reader((cls,))(content) if is_tagged else _read_object(cls, content)
        return value
    except Exception as error:
        raise _refusal(f"not a valid {name}", error) from error


def _refusal(what: str, error: Exception) -> SerializationError:
    """Returns the error that names the faults of a value, and where they are."""
    faults = _faults_at("content", error)
    shown = "; ".join(f"{fault} @ {path}" for fault, path in faults[:_SHOWN_FAULTS])
    more = len(faults) - _SHOWN_FAULTS
    return SerializationError(f"{what}: {shown}" + (f"; and {more} more" if more > 0 else ""))


def _faults_at(step: str, error: Exception) -> list[tuple[str, str]]:
    """Returns the faults of an error that came from below a step of a path."""
    if isinstance(error, _RefusedError):
        return [(fault, step + path) for fault, path in error.faults]
    is_clear = isinstance(error, Nnet3Error | ValueError | TypeError)
    return [(str(error) if is_clear else f"invalid value ({type(error).__name__})", step)]


# -- types ------------------------------------------------------------------------------------


def _fields_of(cls: Any) -> Iterator[Any]:
    """Returns the fields of an attrs class that its constructor takes, with their types."""
    return (field for field in attrs.fields(attrs.resolve_types(cls)) if field.init)


def _members(type_: Any) -> tuple[Any, ...]:
    """Returns the types of a union without None; a type that is none is a union of one."""
    is_union = get_origin(type_) in (Union, types.UnionType)
    members = get_args(type_) if is_union else (type_,)
    return tuple(member for member in members if member is not types.NoneType)


def _is_array(type_: Any) -> bool:
    return type_ is np.ndarray or get_origin(type_) is np.ndarray


def _is_tagged(members: tuple[Any, ...]) -> bool:
    """Tells whether a field of these types holds instances of one of several attrs classes."""
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


# -- writing ----------------------------------------------------------------------------------


@functools.cache
def _writers(cls: Any) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    """Returns the name of each field of an attrs class, and what writes it."""
    return tuple((field.name, _writer(field.type)) for field in _fields_of(cls))


@functools.cache
def _writer(type_: Any) -> Callable[[Any], Any]:
    """Returns what makes the content of a value of a type."""
    members = _members(type_)
    if members != (type_,) and len(members) == 1:
        write_member = _writer(members[0])
        return lambda value: None if value is None else write_member(value)
    if type_ is float:
        return float_to_json
    if type_ is Descriptor:
        return written
    if get_origin(type_) is tuple:
        return _sequence_writer(get_args(type_))
    if get_origin(type_) is dict:
        write_entry = _writer(get_args(type_)[1])
        return lambda value: {key: write_entry(each) for key, each in value.items()}
    if _is_tagged(members):
        return lambda value: None if value is None else unstructure_tagged(value)
    if isinstance(type_, type) and attrs.has(type_):
        return unstructure
    return lambda value: value


def _sequence_writer(item_types: tuple[Any, ...]) -> Callable[[Any], Any]:
    if item_types[1:] == (Ellipsis,):
        write = _writer(item_types[0])
        return lambda value: [write(each) for each in value]
    writers = tuple(map(_writer, item_types))
    return lambda value: [write(each) for write, each in zip(writers, value, strict=True)]


def float_to_json(value: float) -> float | str:
    """Returns a number as JSON can hold it: infinite and undefined ones become strings."""
    return float(value) if math.isfinite(value) else str(float(value))


# -- reading ----------------------------------------------------------------------------------


@functools.cache
def _readers(cls: Any) -> dict[str, tuple[str, bool, Callable[[Any], Any]]]:
    """Returns for each field its parameter, whether that must be given, and what reads it."""
    return {
        field.name: (field.alias, field.default is attrs.NOTHING, _reader(field.type))
        for field in _fields_of(cls)
    }


def _read_object(cls: type[T], content: Any) -> T:
    """Returns the instance of an attrs class that an object stands for."""
    if not isinstance(content, dict):
        raise TypeError(f"expected an object, got {content!r:.80}")
    faults: list[tuple[str, str]] = []
    values: dict[str, Any] = {}
    owner: Any = cls
    readers = _readers(owner)
    for name, (parameter, is_required, read) in readers.items():
        if name in content:
            try:
                values[parameter] = read(content[name])
            except Exception as error:
                faults += _faults_at(f".{name}", error)
        elif is_required:
            faults.append((f"required field '{name}' missing", f".{name}"))
    unknown = sorted(content.keys() - readers.keys())
    if unknown:
        faults.append((f"unknown field {', '.join(f'{name!r:.80}' for name in unknown)}", ""))
    if faults:
        raise _RefusedError(faults)
    return cls(**values)


@functools.cache
def _reader(type_: Any) -> Callable[[Any], Any]:
    """Returns what makes a value of a type of its content."""
    members = _members(type_)
    if members != (type_,) and len(members) == 1:
        read_member = _reader(members[0])
        return lambda content: None if content is None else read_member(content)
    if type_ is float:
        return _float_from_json
    if type_ in (bool, int, str):
        return functools.partial(_read_exactly, type_)
    if type_ is Descriptor:
        return parse_descriptor
    if _is_array(type_):
        return functools.partial(_read_array, _dtype_of(type_))
    if get_origin(type_) is tuple:
        items = get_args(type_)
        is_long = items[1:] == (Ellipsis,)
        return functools.partial(_read_sequence if is_long else _read_tuple, items)
    if get_origin(type_) is dict and get_args(type_)[0] is str:
        return functools.partial(_read_dictionary, get_args(type_)[1])
    if _is_tagged(members):
        read_tagged = _tagged_reader(members)
        is_optional = types.NoneType in get_args(type_)
        return lambda content: None if is_optional and content is None else read_tagged(content)
    if isinstance(type_, type) and attrs.has(type_):
        return functools.partial(_read_object, type_)
    raise TypeError(f"values of the type {type_} cannot be read")


def _float_from_json(content: Any) -> float:
    if isinstance(content, str) and content in NOT_FINITE:
        return float(content)
    if isinstance(content, bool) or not isinstance(content, int | float):
        raise TypeError(f"expected a number, got {content!r:.80}")
    return float(content)


def _read_exactly(primitive: type[T], content: Any) -> T:
    """Takes values of one class only, and converts nothing."""
    if type(content) is not primitive:
        raise TypeError(f"expected a value of type {primitive.__name__}, got {content!r:.80}")
    return content


def _dtype_of(type_: Any) -> Any:
    """Returns the type of the elements of an array type; Any for all."""
    arguments = get_args(type_)
    return get_args(arguments[1])[0] if arguments else Any


def _read_array(dtype: Any, content: Any) -> Array:
    if not isinstance(content, np.ndarray):
        raise TypeError(f"expected a tensor, got {content!r:.80}")
    if dtype is not Any and content.dtype != dtype:
        raise TypeError(f"expected a tensor of {np.dtype(dtype)}, got one of {content.dtype}")
    return content


def _check_list(content: Any) -> None:
    if not isinstance(content, list):
        raise TypeError(f"expected a list, got {content!r:.80}")


def _read_items(items: Iterable[tuple[Any, Callable[[Any], Any], Any]], most: int) -> list[Any]:
    """Reads the items of a list or dictionary, and gives up after as many faults as `most`.

    Args:
        items: For each its number or key, what reads it, and its content.
        most: Number of faults.
    """
    values: list[Any] = []
    faults: list[tuple[str, str]] = []
    for key, read, item in items:
        try:
            values.append(read(item))
        except Exception as error:
            faults += _faults_at(f"[{key!r:.80}]", error)
            if len(faults) >= most:
                break
    if faults:
        raise _RefusedError(faults)
    return values


def _read_sequence(item_types: tuple[Any, ...], content: Any) -> tuple[Any, ...]:
    """Reads a list of any length, and gives up after as many faults as are shown."""
    _check_list(content)
    read = _reader(item_types[0])
    items = ((number, read, item) for number, item in enumerate(content))
    return tuple(_read_items(items, _SHOWN_FAULTS))


def _read_tuple(item_types: tuple[Any, ...], content: Any) -> tuple[Any, ...]:
    """Reads a list in which each place has a type of its own."""
    _check_list(content)
    if len(content) != len(item_types):
        raise ValueError(f"expected {len(item_types)} values, got {len(content)}")
    readers = map(_reader, item_types)
    return tuple(_read_items(zip(itertools.count(), readers, content), 1))


def _read_dictionary(entry_type: Any, content: Any) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise TypeError(f"expected an object, got {content!r:.80}")
    read = _reader(entry_type)
    items = ((key, read, item) for key, item in content.items())
    return dict(zip(content, _read_items(items, 1), strict=True))


def _tagged_reader(members: tuple[Any, ...]) -> Callable[[Any], Any]:
    """Returns what reads an instance of one of several classes, or of those derived from them."""
    classes: dict[str, type[Any]] = {}

    def class_of(name: str) -> type[Any] | None:
        """Returns the class of a name, which may have to be made or imported first."""
        makers: tuple[Callable[[], None], ...]
        makers = (lambda: None, lambda: make_class(name), make_outside_classes)
        for make in makers:
            if name not in classes:
                make()
                classes.update((cls.__name__, cls) for cls in _concrete_classes(members))
        return classes.get(name)

    def read(content: Any) -> Any:
        if not isinstance(content, dict):
            raise TypeError(f"expected an object, got {content!r:.80}")
        fields = dict(content)
        name = fields.pop(TYPE_KEY, None)
        cls = class_of(name) if isinstance(name, str) else None
        if cls is None:
            raise TypeError(f"unknown type {name!r:.80}")
        return _read_object(cls, fields)

    return read


# -- arrays in JSON ---------------------------------------------------------------------------

ARRAY_KEY: Final = "$array"

_DTYPES: Final = ("bool", "int8", "uint8", "int32", "int64", "float32", "float64")


def to_json(value: object) -> str:
    """Serializes an instance of an attrs class as one line of JSON.

    It is the content of a container, with arrays in the place of references to tensors:
    {"$array": [1, 2], "dtype": "int32", "shape": [1, 2]}. The class is written as "type".

    Args:
        value: As for `to_container`.

    Raises:
        SerializationError: As for `to_container`.
    """
    try:
        content = _with_arrays(
            unstructure_tagged(value), (), lambda array, _: _array_to_json(array)
        )
        return json.dumps(content, allow_nan=False)
    except _UNWRITABLE as error:
        raise _refusal(f"{type(value).__name__} cannot be written", error) from error


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
    return structure(content, base, name=name, is_tagged=True)


def _with_arrays(
    value: Any, path: tuple[str, ...], write_array: Callable[[Array, tuple[str, ...]], Any]
) -> Any:
    """Returns content with its arrays written; everything else in it has to be JSON."""
    if isinstance(value, np.ndarray):
        return write_array(value, path)
    if isinstance(value, dict):
        return {
            key: _with_arrays(item, (*path, str(key)), write_array) for key, item in value.items()
        }
    if isinstance(value, list):
        return [_with_arrays(item, (*path, str(i)), write_array) for i, item in enumerate(value)]
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    where = "".join(f"[{step}]" if step.isdigit() else f".{step}" for step in path)
    raise _RefusedError(
        [(f"expected a finite number, a text, None or an array, found {value!r:.80}", where)]
    )


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


METADATA_KEY: Final = "nnet3"
"""The key under which the metadata of a safetensors file has the value as JSON."""
TENSOR_KEY: Final = "$tensor"

_HEADER_KEYS: Final = ("format", "version", "content")
_EXTRAS: Final = "extras"
"""Key of the header, and first part of the names of tensors, that readers skip."""

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
"""Makes the content of one version into that of the next."""

_KALDI: Final = (b"\0B<", b"<Nnet3>", b"<TransitionModel>")
"""The first bytes of Kaldi's model files."""


def to_container(value: object, *, format: str, version: int) -> bytes:
    """Serializes an instance of an attrs class.

    Args:
        value: The value. Its fields may hold numbers, strings, None, arrays, descriptors, tuples of
            such, and instances of other attrs classes.
        format: Name of the format, such as "nnet3.nnet".
        version: Version of the format; to be raised when older readers would misread it.

    Raises:
        SerializationError: A field holds something else; the message says which.
    """
    tensors: dict[str, Array] = {}

    def detach(array: Array, path: tuple[str, ...]) -> dict[str, str]:
        name = ".".join(path)
        tensors[name] = np.asarray(array, order="C")  # which keeps an array without axes so
        return {TENSOR_KEY: name}

    try:
        content = _with_arrays(unstructure(value), (), detach)
        header = dict(zip(_HEADER_KEYS, (format, version, content), strict=True))
        text = json.dumps(header, allow_nan=False, separators=(",", ":"))
    except _UNWRITABLE as error:
        raise _refusal(f"{type(value).__name__} cannot be written", error) from error
    return safetensors.numpy.save(tensors, {METADATA_KEY: text})


def from_container(
    data: bytes,
    cls: type[T],
    *,
    format: str,
    version: int,
    upgrades: Mapping[int, Upgrade] = MappingProxyType({}),
) -> T:
    """Reads a container of `to_container`, of this version or an older one.

    Args:
        data: The bytes of the container.
        cls: The class of the value.
        format: The format that the container must have.
        version: The newest version of the format, which `cls` stands for.
        upgrades: For each older version that can be read, the function that turns its content
            (dictionaries, lists, strings, numbers, None and arrays) into that of the next version.

    Returns:
        The value; its arrays are read-only.

    Raises:
        SerializationError: The bytes are no such container; the message says where.
    """
    tensors, text = _open_container(data)
    header = _read_json(text, tensors)
    if not isinstance(header, dict) or sorted({*header} - {_EXTRAS}) != sorted(_HEADER_KEYS):
        raise SerializationError(f"the metadata must hold {', '.join(_HEADER_KEYS)}")
    found = header["format"]
    if not isinstance(found, str) or found != format:
        shown = "an array" if isinstance(found, np.ndarray) else f"{found!r:.80}"
        raise SerializationError(f"expected the format '{format}', got {shown}")
    left = sorted(name for name in tensors if not name.startswith(f"{_EXTRAS}."))
    if left:
        raise SerializationError(f"the tensor '{left[0]}' has no place in the content")
    content = _upgraded(header["content"], header["version"], format, version, upgrades)
    return structure(content, cls, name=f"'{format}'")


def _upgraded(
    content: Any, found: Any, format: str, version: int, upgrades: Mapping[int, Upgrade]
) -> Any:
    """Returns content of a version as that of the newest version.

    Raises:
        SerializationError: It is of no version that can be read.
    """
    oldest = version
    while oldest - 1 in upgrades:
        oldest -= 1
    if type(found) is not int or not oldest <= found <= version:
        known = f"version {version}" if oldest == version else f"version {oldest} to {version}"
        newer = type(found) is int and found > version
        raise SerializationError(
            f"expected {known} of the format '{format}', got {found!r:.80}"
            + (", which a newer version of this package reads" if newer else "")
        )
    for each in range(found, version):
        if isinstance(content, dict):
            content = upgrades[each](content)
    return content


def _open_container(data: bytes) -> tuple[dict[str, Array], str]:
    """Returns the tensors of a safetensors file and the text of its metadata."""
    if not isinstance(data, bytes):
        raise SerializationError(f"expected bytes, found {type(data).__name__}")
    try:
        tensors = safetensors.numpy.load(data)
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
    except (safetensors.SafetensorError, ValueError, KeyError, RecursionError) as error:
        kind = (
            "" if not data.startswith(_KALDI) else "; it is a file of Kaldi, which read_nnet reads"
        )
        raise SerializationError(f"not a safetensors container{kind}: {error}") from error
    metadata = header.get("__metadata__")
    text = metadata.get(METADATA_KEY) if isinstance(metadata, dict) else None
    if not isinstance(text, str):
        raise SerializationError(f"the container has no metadata '{METADATA_KEY}'")
    return tensors, text


def _read_json(text: str, tensors: dict[str, Array]) -> Any:
    """Returns what JSON stands for, with arrays in their places; takes them out of `tensors`."""

    def read_object(pairs: list[tuple[str, Any]]) -> Any:
        entries = dict(pairs)
        if len(entries) != len(pairs):
            raise SerializationError("a key occurs twice in one object of the content")
        if list(entries) != [TENSOR_KEY]:
            return entries
        name = entries[TENSOR_KEY]
        if not isinstance(name, str) or name not in tensors:
            raise SerializationError(f"there must be one tensor for each reference (got {name!r})")
        owner: object = tensors[name]
        while isinstance(owner, np.ndarray):  # nobody else holds the array that it is a view of
            owner.setflags(write=False)
            owner = owner.base
        return tensors.pop(name)

    def refuse(constant: str) -> NoReturn:
        raise SerializationError(f"{constant} is no JSON")

    try:
        return json.loads(text, object_pairs_hook=read_object, parse_constant=refuse)
    except SerializationError:
        raise
    except (ValueError, RecursionError) as error:  # not JSON, or an integer of many digits
        raise SerializationError(f"the metadata is not readable as JSON: {error}") from error
