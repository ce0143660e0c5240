"""Values as safetensors containers."""

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NoReturn, TypeVar

import numpy as np
import safetensors
import safetensors.numpy

from nnet3_descriptors.errors import SerializationError
from nnet3_descriptors.serialization.converter import Array, structure, unstructure

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

T = TypeVar("T")


def to_container(value: object, *, format: str, version: int) -> bytes:
    """Serializes an instance of an attrs class.

    Args:
        value: The value. Its fields may hold numbers, strings, None, arrays, descriptors, tuples of
            such, and instances of other attrs classes.
        format: Name of the format, such as "nnet3.nnet".
        version: Version of the format; to be raised when older readers would misread it.
    """
    tensors: dict[str, Array] = {}
    content = _detach_tensors(unstructure(value), (), tensors)
    header = dict(zip(_HEADER_KEYS, (format, version, content), strict=True))
    text = json.dumps(header, allow_nan=False, separators=(",", ":"))
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


def _detach_tensors(value: Any, path: tuple[str, ...], tensors: dict[str, Array]) -> Any:
    """Returns `value` with its arrays replaced by references; puts the arrays into `tensors`."""
    if isinstance(value, np.ndarray):
        name = ".".join(path)
        tensors[name] = np.asarray(value, order="C")  # which keeps an array without axes so
        return {TENSOR_KEY: name}
    if isinstance(value, dict):
        return {key: _detach_tensors(item, (*path, key), tensors) for key, item in value.items()}
    if isinstance(value, list):
        return [_detach_tensors(item, (*path, str(i)), tensors) for i, item in enumerate(value)]
    return value


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
