"""Ways to damage texts and containers, which the tests then read and use.

Containers are those of networks, requests and computations: their header, their JSON, their
tensors and their bytes. Texts are config lines, and programs as `format_computation` prints them.
"""

from __future__ import annotations

import copy
import functools
import json
import random
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy
from component_forms import CONFIGS
from example_generator import Example, example_of_seed
from nnet3_compiler import compile_computation
from nnet3_computation import format_computation
from nnet3_optimizer import optimize

from damaged.bytes_and_words import INTEGERS, NUMBERS, OTHERS, REALS, damaged_data, damaged_words
from damaged.good_files import config_around

EXAMPLES = 24
"""So many random networks, with requests, are damaged."""

_INT32 = 2**31 - 1
_DTYPES = ("f4", "f8", "f2", "i4", "i8", "u1", "?", "i1", "u4")


@functools.cache
def written(number: int) -> tuple[Example, dict[str, list[bytes | str]]]:
    """Random network `number` with a request, and their written forms by kind: see DamagedText."""
    example = example_of_seed(number)
    compiled = compile_computation(example.nnet, example.request)
    computations = compiled, optimize(example.nnet, compiled)
    return example, {
        "nnet": [example.nnet.to_bytes()],
        "request": [example.request.to_bytes()],
        "computation": [each.to_bytes() for each in computations],
        "config": [example.config],
        "program": [format_computation(each, example.nnet) for each in computations],
    }


class DamagedText(NamedTuple):
    """A damaged text or container.

    Attributes:
        name: How it was made.
        kind: "nnet", "request", "computation", "config" or "program".
        data: A container, or for "config" and "program" a text.
        example: The network and the request that it belongs to.
    """

    name: str
    kind: str
    data: bytes | str
    example: Example


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """The places of replaceable values in JSON: each object or list with each of its keys."""
    left = [value]  # an earlier change may have nested lists too deeply for a recursion
    while left:
        value = left.pop()
        if isinstance(value, dict | list):
            for key in list(value) if isinstance(value, dict) else range(len(value)):
                yield value, key
                left.append(value[key])


def _odd(rng: random.Random, old: Any) -> Any:
    """A value to replace another."""
    if isinstance(old, bool) or rng.random() < 0.2:
        return rng.choice(OTHERS)
    if isinstance(old, int) and rng.random() < 0.8:
        return old + rng.choice((-1, 1)) if rng.random() < 0.5 else rng.choice(NUMBERS)
    if isinstance(old, str) and rng.random() < 0.5:
        return damaged_words(rng, old)
    if isinstance(old, list) and old and rng.random() < 0.7:
        at = rng.randrange(len(old))
        return rng.choice((old[:at], [*old, old[at]], old[::-1], old[:at] + old[at + 1 :]))
    return rng.choice((*REALS, *NUMBERS))


def odd_setting(rng: random.Random, text: str) -> str:
    """One number of a component, or the dimension of an input, is replaced."""
    places = list(re.finditer(r"(?<=[=,])-?\d+", text))
    place = rng.choice(places)
    new = str(rng.choice((*INTEGERS, _INT32 + 1)))
    text = text[: place.start()] + new + text[place.end() :]
    if rng.random() < 0.3:
        dim = rng.choice((_INT32, 2**30, 2**31 - 2, 46341, 65536))
        descriptor = rng.choice(("Append(b, b)", "Append(b, input)", "Sum(b, b)", "b",
                                 "Append(b, Const(1.0, 2147483647))"))  # fmt: skip
        text += (
            f"input-node name=b dim={dim}\noutput-node name=output2 input={descriptor}\n"
            "dim-range-node name=e input-node=b dim-offset=2147483646 dim=1\n"
        )
    return text


def _with_json(rng: random.Random, data: bytes, change: Callable[[Any], None]) -> bytes:
    """A container whose JSON was changed."""
    tensors = safetensors.numpy.load(data)
    length = int.from_bytes(data[:8], "little")
    header = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["nnet3"])
    change(header)
    return safetensors.numpy.save(tensors, {"nnet3": json.dumps(header)})


def odd_json(rng: random.Random, content: Any, times: int, *, deleted: float = 0.05) -> Any:
    """Replaces values of JSON, or removes this share of them, so many times, and returns it."""
    for _ in range(times):
        places = list(_places(content))
        if not places:  # everything was deleted
            break
        holder, key = rng.choice(places)
        if isinstance(holder, dict) and rng.random() < deleted:
            del holder[key]
            continue
        other, other_key = rng.choice(places)
        new = other[other_key] if rng.random() < 0.1 else _odd(rng, holder[key])
        holder[key] = copy.deepcopy(new)  # a value in itself would have no end
    return content


def odd_values(rng: random.Random, data: bytes) -> bytes:
    """Values of the JSON are replaced or missing."""
    return _with_json(rng, data, lambda header: odd_json(rng, header, rng.choice((1, 1, 1, 2, 3))))


def odd_tensors(rng: random.Random, data: bytes) -> bytes:
    """A tensor has other values, another shape or type, or is missing."""
    tensors = dict(safetensors.numpy.load(data))
    if not tensors:
        return odd_values(rng, data)
    name = rng.choice(sorted(tensors))
    array = tensors[name].copy()
    way = rng.randrange(7)
    if way == 0:
        with np.errstate(all="ignore"):
            array = array.astype(rng.choice(_DTYPES))
    elif way == 1:
        array = array[: rng.randrange(len(array) + 1)] if array.ndim else array.reshape(1)
    elif way == 2:
        array = array.reshape(rng.choice(((-1,), (1, *array.shape), array.shape[::-1])))
    elif way == 3 and array.size:
        array = np.concatenate([array, array[:1]]) if array.ndim else array
    elif way == 4:
        array = tensors[rng.choice(sorted(tensors))]
    elif array.size:
        flat = array.reshape(-1)
        for _ in range(rng.choice((1, 1, 3))):
            with np.errstate(all="ignore"):
                at = rng.randrange(array.size)
                if rng.random() < 0.5 and array.dtype.kind == "i":
                    flat[at] += rng.choice((-1, 1))
                else:
                    odd = np.array(rng.choice((0, -1, 1, 7, 10**6, 2**30, _INT32, -_INT32 - 1)))
                    flat[at] = odd.astype(array.dtype)
                if array.dtype.kind == "f":
                    flat[at] = rng.choice((np.nan, np.inf, -np.inf, 0.0, 3e38, -1.0))
    tensors[name] = np.ascontiguousarray(array)
    length = int.from_bytes(data[:8], "little")
    metadata = json.loads(data[8 : 8 + length])["__metadata__"]
    return safetensors.numpy.save(tensors, metadata)


def odd_header(rng: random.Random, data: bytes) -> bytes:
    """Entries of the container's header are replaced."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    text = json.dumps(odd_json(rng, header, rng.choice((1, 1, 2)), deleted=0.2)).encode()
    if rng.random() < 0.1:
        text = json.dumps(rng.choice(OTHERS)).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + length :]


def odd_bytes(rng: random.Random, data: bytes) -> bytes:
    """The container is damaged as files of any format are."""
    return damaged_data(rng, data, [data])


CONTAINER_DAMAGES = (odd_values, odd_values, odd_values, odd_tensors, odd_tensors, odd_header,
                     odd_bytes)  # fmt: skip


def damaged_text(seed: int, number: int) -> DamagedText:
    """Returns damaged text or container `number` of a seed."""
    rng = random.Random(f"text {seed}:{number}")
    which = rng.randrange(EXAMPLES)
    example, forms = written(which)
    kind = rng.choice(("nnet", "request", "computation", "computation", "config", "component",
                       "component", "setting", "setting", "program"))  # fmt: skip
    name = f"seed {seed}, text {number}: {kind} of example {which}"
    if kind in ("component", "setting"):
        change = damaged_words if kind == "component" else odd_setting
        text = change(rng, config_around(rng.choice(sorted(CONFIGS))))
        return DamagedText(name, "config", text, example)
    is_text = kind in ("config", "program")
    change = damaged_words if is_text else rng.choice(CONTAINER_DAMAGES)
    data = change(rng, rng.choice(forms[kind]))
    return DamagedText(f"{name}, {change.__name__}", kind, data, example)
