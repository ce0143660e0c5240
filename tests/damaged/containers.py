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

import attrs
import numpy as np
import safetensors.numpy
from component_forms import CONFIGS, from_config
from example_generator import Example, example_of_seed
from nnet3_compiler import compile_computation
from nnet3_computation import format_computation
from nnet3_optimizer import optimize

EXAMPLES = 24
"""So many random networks, with requests, are damaged."""

_INT32 = 2**31 - 1
_INTEGERS = (0, -1, 1, 2, 3, 7, 255, 997, 65536, 2**20, 2**30, _INT32, -_INT32 - 1, _INT32 + 1,
             2**63, -(2**63) - 1, 10**30)  # fmt: skip
_REALS = (0.0, -1.0, 0.5, 2.5, 1e-45, 3.4e38, 1e39, 1e300, -1e300, "inf", "-inf", "nan")
_OTHERS = (None, True, False, "", "a", "0", "\x00", "\x1b[31m\n", "x" * 100_000, "Append(", "input",
           "output", [], [[]], {}, {"$tensor": "a"}, {"type": "NoOpComponent"}, [1], [0, 0, 0],
           ["input"], "Offset(input, 2147483647)", "Const(1e300, 4)", "Switch(input, input)",
           "ReplaceIndex(input, x, 1)", "Sum(input, Failover(input, input))")  # fmt: skip
_DTYPES = ("f4", "f8", "f2", "i4", "i8", "u1", "?", "i1", "u4")


@attrs.frozen(eq=False)
class Written:
    """A random network, a request and its computations in their written forms.

    Attributes:
        example: The network and the request.
        containers: By kind ("nnet", "request" and "computation").
        programs: Computations as text.
    """

    example: Example
    containers: dict[str, list[bytes]]
    programs: list[str]


@functools.cache
def written(number: int) -> Written:
    """Returns random network `number` in its written forms."""
    example = example_of_seed(number)
    compiled = compile_computation(example.nnet, example.request)
    optimized = optimize(example.nnet, compiled)
    return Written(
        example=example,
        containers={
            "nnet": [example.nnet.to_bytes()],
            "request": [example.request.to_bytes()],
            "computation": [compiled.to_bytes(), optimized.to_bytes()],
        },
        programs=[format_computation(each, example.nnet) for each in (compiled, optimized)],
    )


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
        return rng.choice(_OTHERS)
    if isinstance(old, int) and rng.random() < 0.8:
        return old + rng.choice((-1, 1)) if rng.random() < 0.5 else rng.choice(_INTEGERS)
    if isinstance(old, str) and rng.random() < 0.5:
        return damaged_words(rng, old)
    if isinstance(old, list) and old and rng.random() < 0.7:
        at = rng.randrange(len(old))
        return rng.choice((old[:at], [*old, old[at]], old[::-1], old[:at] + old[at + 1 :]))
    return rng.choice((*_REALS, *_INTEGERS))


def damaged_words(rng: random.Random, text: str) -> str:
    """Some words of a text are replaced, missing or doubled."""
    parts = re.split(r"([\s=(),:\[\]]+)", text)
    numbers = [at for at, part in enumerate(parts) if re.fullmatch(r"-?[\d.e+-]+", part)]
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(parts))
        if numbers and rng.random() < 0.7:
            at = rng.choice(numbers)
        old = parts[at]
        if re.fullmatch(r"-?\d{1,4000}", old) and rng.random() < 0.9:  # what int() takes
            value = int(old) + rng.choice((-1, 1))
            parts[at] = str(value if rng.random() < 0.4 else rng.choice(_INTEGERS))
        elif re.fullmatch(r"-?[\d.e+-]+", old) and rng.random() < 0.9:
            parts[at] = str(rng.choice(_REALS))
        else:
            parts[at] = rng.choice(
                ("", old * 2, parts[rng.randrange(len(parts))], *map(str, _OTHERS))
            )
    return "".join(parts)


def odd_setting(rng: random.Random, text: str) -> str:
    """One number of a component, or the dimension of an input, is replaced."""
    places = list(re.finditer(r"(?<=[=,])-?\d+", text))
    place = rng.choice(places)
    new = str(rng.choice(_INTEGERS[:14]))
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


def odd_json(rng: random.Random, content: Any, times: int) -> Any:
    """Replaces or removes values of JSON, so many times, and returns it."""
    for _ in range(times):
        places = list(_places(content))
        if not places:  # everything was deleted
            break
        holder, key = rng.choice(places)
        if isinstance(holder, dict) and rng.random() < 0.05:
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
    for _ in range(rng.choice((1, 1, 2))):
        places = list(_places(header))
        if not places:  # everything was deleted
            break
        holder, key = rng.choice(places)
        if isinstance(holder, dict) and rng.random() < 0.2:
            del holder[key]
        else:
            holder[key] = _odd(rng, holder[key])
    text = json.dumps(header).encode()
    if rng.random() < 0.1:
        text = json.dumps(rng.choice(_OTHERS)).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + length :]


def odd_bytes(rng: random.Random, data: bytes) -> bytes:
    """Some bytes are replaced, or the end is missing."""
    if rng.random() < 0.3:
        return data[: rng.randrange(len(data))]
    changed = bytearray(data)
    for _ in range(rng.choice((1, 2, 10))):
        changed[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(changed)


CONTAINER_DAMAGES = (odd_values, odd_values, odd_values, odd_tensors, odd_tensors, odd_header,
                     odd_bytes)  # fmt: skip


def _component_config(rng: random.Random) -> str:
    """A small network of any component type, as config lines."""
    type_name = rng.choice(sorted(CONFIGS))
    component = from_config(type_name, CONFIGS[type_name])
    return (
        f"component name=c type={type_name} {CONFIGS[type_name]}\n"
        f"component name=same type=NoOpComponent dim={component.output_dim}\n"
        f"input-node name=input dim={component.input_dim}\n"
        "component-node name=c component=c input=Sum(Scale(0.5, Offset(input, -1)), input)\n"
        "component-node name=same component=same input=Failover(Offset(same, -3), IfDefined(c))\n"
        "output-node name=output input=Append(Round(same, 3), c) objective=quadratic\n"
    )


def damaged_text(seed: int, number: int) -> DamagedText:
    """Returns damaged text or container `number` of a seed."""
    rng = random.Random(f"text {seed}:{number}")
    which = rng.randrange(EXAMPLES)
    good = written(which)
    kind = rng.choice(("nnet", "request", "computation", "computation", "config", "component",
                       "component", "setting", "setting", "program"))  # fmt: skip
    name = f"seed {seed}, text {number}: {kind} of example {which}"
    if kind == "component":
        return DamagedText(name, "config", damaged_words(rng, _component_config(rng)), good.example)
    if kind == "setting":
        return DamagedText(name, "config", odd_setting(rng, _component_config(rng)), good.example)
    if kind == "config":
        return DamagedText(name, kind, damaged_words(rng, good.example.config), good.example)
    if kind == "program":
        return DamagedText(name, kind, damaged_words(rng, rng.choice(good.programs)), good.example)
    change = rng.choice(CONTAINER_DAMAGES)
    data = change(rng, rng.choice(good.containers[kind]))
    return DamagedText(f"{name}, {change.__name__}", kind, data, good.example)
