"""Puts absurd sizes wherever a number can stand, and uses the result.

Numbers of descriptors, config lines, arguments, containers, model files, archives and examples are
replaced one at a time. Each case runs in a separate process with two seconds of processor time and
300 MB. It has to work, or to end with a `Nnet3Error`. On a busy machine a case takes more processor
time than alone: run reported cases again.

    PYTHONPATH=tests:benchmarks python -m damaged.sizes           # all cases, which takes minutes
    PYTHONPATH=tests:benchmarks python -m damaged.sizes 20:400    # some of them
    PYTHONPATH=tests:benchmarks python -m damaged.sizes archive   # those with this in their name

The faults are printed, and how many cases and faults there were.
"""

from __future__ import annotations

import functools
import json
import random
import re
import struct
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy
from component_forms import CONFIGS, from_config
from limits import measured
from nnet3 import Model
from nnet3_compiler import compile_computation, compile_looped, looped_requests, with_ivector_period
from nnet3_computation import ComputationRequest, IoSpecification, NnetComputation
from nnet3_descriptors import AcousticModel, Nnet, Nnet3Error, parse_config
from nnet3_graph import compute_context
from nnet3_optimizer import optimize
from nnet3_runtime_cuda import NnetComputer
from nnet3_tables import read_table
from nnet3_training import read_examples

from damaged.good_files import good_files, read

MEMORY = 300
"""MB that a case may take."""
SECONDS = 2
"""Seconds of processor time that a case may take."""
NUMBERS = (0, -1, 2**15, 2**31 - 1, -(2**31), 2**31, 2**63, 1e300, float("nan"))
_INT32 = tuple(n for n in NUMBERS if isinstance(n, int) and -(2**31) <= n < 2**31)
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.])")

DESCRIPTORS = (
    "Offset(input, 2)",
    "Offset(input, 2, 1)",
    "Offset(Offset(input, 3, 1), -2, -1)",
    "Round(input, 3)",
    "Offset(Round(Offset(input, -1), 3), 1)",
    "Sum(Round(input, 2), Round(input, 3))",
    "ReplaceIndex(input, t, 0)",
    "ReplaceIndex(input, x, 0)",
    "Round(Offset(ReplaceIndex(input, x, 0), 1), 2)",
    "Scale(0.5, input)",
    "Sum(Const(1.5, 4), input)",
    "Switch(input, Offset(input, 1), Round(input, 2))",
    "Failover(Offset(input, 5), Offset(input, -5))",
    "Sum(input, IfDefined(Offset(input, -1)))",
    "Sum(input, IfDefined(Offset(c, -1)))",
    "Sum(input, IfDefined(Offset(c, -1, 1)))",
    "Sum(input, IfDefined(Round(Offset(c, -3), 3)))",
    "Sum(input, IfDefined(Switch(Offset(c, -1), Offset(c, -2))))",
    "Failover(Offset(c, -3), Offset(input, 1))",
)
_IVECTOR = """\
input-node name=input dim=4
input-node name=ivector dim=2
component name=c type=AffineComponent input-dim=10 output-dim=3
component name=r type=RectifiedLinearComponent dim=3
component-node name=c component=c input=Append(Offset(input, -1), Offset(input, 1), ReplaceIndex(ivector, t, 0))
component-node name=r component=r input={}
output-node name=output input=r
"""  # noqa: E501
_IN_REASON = range(1000, 100_000)
"""So many frames or sequences are large, but work; those of a recurrence may take more time."""


class Case(NamedTuple):
    """A text or file with one replaced number, and its use."""

    name: str
    use: Callable[[], object]


# ---- uses ----


def use_nnet(nnet: Nnet) -> None:
    """Uses a network as users do."""
    nnet.info()
    nnet.to_bytes()
    try:
        left, right = (min(frames, 50) for frames in compute_context(nnet))
    except Nnet3Error:
        left = right = 3
    use_request(
        nnet,
        ComputationRequest(
            inputs=[
                IoSpecification.from_range(node.name, -left, 4 + right, 2)
                for node in nnet.input_nodes
            ],
            outputs=[IoSpecification.from_range(node.name, 0, 4, 2) for node in nnet.output_nodes],
            store_component_stats=True,
        ),
    )


def use_request(nnet: Nnet, request: ComputationRequest) -> None:
    """Compiles a request, and runs the computation."""
    use_computation(nnet, optimize(nnet, compile_computation(nnet, request)))


def use_computation(nnet: Nnet, computation: NnetComputation) -> None:
    """Binds a computation, and runs its first segment on zeros."""
    computer = NnetComputer(nnet, computation)
    ports = computer._program.forward[0].inputs
    computer.forward({port.node: np.zeros(port.view.shape, np.float32) for port in ports})


# ---- cases ----


def cases() -> Iterator[Case]:
    """All cases, always in the same order."""
    yield from _config_cases()
    yield from _argument_cases()
    yield from _container_cases()
    yield from _model_file_cases()
    yield from _table_cases()


def _with_other_numbers(text: str) -> Iterator[tuple[str, str]]:
    """A text with each of its numbers replaced by each odd one; names the place and the number."""
    for place in _NUMBER.finditer(text):
        for number in NUMBERS:
            yield (
                f"{text[max(0, place.start() - 40) : place.end()]} -> {number}",
                text[: place.start()] + str(number) + text[place.end() :],
            )


def _config_cases() -> Iterator[Case]:
    nodes = (
        "input-node name=input dim=4\ncomponent name=c type=NoOpComponent dim=4\n"
        "component-node name=c component=c input={}\n"
        "dim-range-node name=d input-node=c dim-offset=1 dim=2\n"
        "output-node name=output input=Append(c, d)\n"
    )
    for name, text in _with_other_numbers(nodes.format("input")):
        yield Case(f"config: {name}", lambda text=text: use_nnet(parse_config(text)))
    for descriptor in DESCRIPTORS:
        for name, text in _with_other_numbers(descriptor):
            config = nodes.format(text)
            yield Case(f"descriptor: {name}", lambda text=config: use_nnet(parse_config(text)))
    for type_name, settings in CONFIGS.items():
        component = from_config(type_name, settings)
        for name, text in _with_other_numbers(settings):
            config = (
                f"input-node name=input dim={component.input_dim}\n"
                f"component name=c type={type_name} {text}\n"
                "component-node name=c component=c input=input\n"
                "output-node name=output input=c\n"
            )
            yield Case(
                f"component: {type_name} {name}", lambda text=config: use_nnet(parse_config(text))
            )


def _with_ivectors(descriptor: str) -> Nnet:
    """A network with i-vectors whose last component reads a descriptor."""
    return parse_config(_IVECTOR.format(descriptor), rng=np.random.default_rng(0))


def _argument_cases() -> Iterator[Case]:
    nnet, recurrent = _with_ivectors("c"), _with_ivectors("Sum(c, IfDefined(Offset(r, -1)))")
    features = np.zeros((7, 4), np.float32)
    vectors = np.zeros((2, 2), np.float32)
    pooled = parse_config(
        "input-node name=input dim=4\n"
        "component name=e type=StatisticsExtractionComponent input-dim=4 input-period=1 "
        "output-period=1\n"
        "component name=p type=StatisticsPoolingComponent input-dim=9 input-period=1 "
        "left-context=0 right-context=500 num-log-count-features=0\n"
        "component-node name=e component=e input=input\n"
        "component-node name=p component=p input=e\noutput-node name=output input=p\n"
    )

    def looped(*, period: Any = 2, **arguments: Any) -> None:
        in_reason = any(number in _IN_REASON for number in arguments.values())
        # Thousands of sequences of a thousand frames are a legal request, but take gigabytes.
        is_long = in_reason and "num_sequences" not in arguments
        given = {"chunk_size": 1000 if is_long else 4, "ivector_period": 2} | arguments
        other = with_ivector_period(nnet if in_reason else recurrent, period)
        use_computation(other, compile_looped(other, looped_requests(other, **given)))

    def compute(**arguments: Any) -> None:
        given = {"online_ivectors": vectors, "online_ivector_period": 4} | arguments
        Model(nnet).compute(features, **given)

    def xvector(**arguments: Any) -> None:
        Model(pooled).xvector(features, **({"min_chunk_size": 5} | arguments))

    def rows(**arguments: Any) -> None:
        given = {"name": "input", "t_start": -3, "t_end": 9} | arguments
        request = ComputationRequest(
            inputs=[IoSpecification.from_range(**given)],
            outputs=[IoSpecification.from_range("output", 0, 2)],
        )
        use_request(pooled, request)

    places: tuple[tuple[Callable[..., None], str], ...] = (
        (looped, "period chunk_size frame_subsampling_factor ivector_period extra_left_context "
                 "extra_right_context num_sequences"),
        (compute, "online_ivector_period frames_per_chunk frame_subsampling_factor "
                  "extra_left_context extra_right_context extra_left_context_initial "
                  "extra_right_context_final acoustic_scale"),
        (xvector, "chunk_size min_chunk_size"),
        (rows, "t_start t_end n t_step"),
    )  # fmt: skip
    for function, names in places:
        for name in names.split():
            for number in (*NUMBERS, 10**4):
                yield Case(
                    f"argument: {function.__name__} {name}={number}",
                    lambda f=function, name=name, number=number: f(**{name: number}),
                )
    for number in NUMBERS:
        yield Case(
            f"argument: looped chunk_size={number} and all periods",
            lambda n=number: looped(period=n, chunk_size=n, ivector_period=n),
        )


def _container_cases() -> Iterator[Case]:
    nnet = _with_ivectors("Sum(c, IfDefined(Offset(r, -1)))")
    request = ComputationRequest(
        inputs=[
            IoSpecification.from_range("input", -1, 4),
            IoSpecification.from_range("ivector", 0, 1),
        ],
        outputs=[IoSpecification.from_range("output", 0, 3)],
    )
    computation = optimize(nnet, compile_computation(nnet, request))
    kinds: tuple[tuple[Any, Callable[[Any], None]], ...] = (
        (nnet, use_nnet),
        (request, lambda value: use_request(nnet, value)),
        (computation, lambda value: use_computation(nnet, value)),
    )
    for value, use in kinds:
        for name, data in _containers_with_other_numbers(value.to_bytes()):
            yield Case(
                f"container: {type(value).__name__} {name}",
                functools.partial(_use_container, type(value), use, data),
            )


def _use_container(kind: type[Any], use: Callable[[Any], None], data: bytes) -> None:
    use(kind.from_bytes(data))


def _containers_with_other_numbers(data: bytes) -> Iterator[tuple[str, bytes]]:
    tensors = safetensors.numpy.load(data)
    length = int.from_bytes(data[:8], "little")
    text = json.loads(data[8 : 8 + length])["__metadata__"]["nnet3"]
    for place in re.finditer(r"(?<=[ \[:,])-?\d+(?=[,\]}])", text):
        for number in NUMBERS:
            other = f"{text[: place.start()]}{json.dumps(number)}{text[place.end() :]}"
            name = f"{text[max(0, place.start() - 30) : place.end()]} -> {number}"
            yield name, safetensors.numpy.save(tensors, {"nnet3": other})
    for key, tensor in tensors.items():
        if tensor.dtype.kind != "i":
            continue
        for at in range(tensor.size):
            for number in _INT32:
                if np.iinfo(tensor.dtype).min <= number <= np.iinfo(tensor.dtype).max:
                    other = tensor.copy()
                    other.reshape(-1)[at] = number
                    name = f"tensor {key}, element {at} -> {number}"
                    yield name, safetensors.numpy.save({**tensors, key: other}, {"nnet3": text})


def _model_file_cases() -> Iterator[Case]:
    for good in good_files():
        for element in good.elements:
            old = good.bytes_of(element)
            changed: Iterable[tuple[object, bytes]] = ()
            if element.kind == "integer":
                numbers = _INT32 if good.binary else NUMBERS
                changed = (
                    (n, struct.pack("<bi", 4, n) if good.binary else f"{n} ".encode())
                    for n in numbers
                )
            elif good.binary and element.kind not in ("token", "line", "real", "boolean"):
                changed = _with_other_sizes(old[:16], old[16:])
            for number, new in changed:
                data = good.with_bytes(element, new)
                yield Case(
                    f"model file: {good.name}, {'binary' if good.binary else 'text'}, "
                    f"{element.kind} at {element.start} -> {number}",
                    lambda data=data, good=good: _use_model(data, good.is_acoustic_model),
                )


def _with_other_sizes(head: bytes, rest: bytes = b"") -> Iterator[tuple[object, bytes]]:
    """Binary data with each integer of its head, told by its size of 4, replaced by others."""
    for at in (at for at in range(len(head) - 4) if head[at] == 4):
        for number in _INT32:
            yield (
                f"{number} at {at + 1}",
                head[: at + 1] + struct.pack("<i", number) + head[at + 5 :] + rest,
            )


def _use_model(data: bytes, is_acoustic_model: bool) -> None:
    model = read(data, is_acoustic_model=is_acoustic_model)
    use_nnet(model.nnet if isinstance(model, AcousticModel) else model)


def _table_cases() -> Iterator[Case]:
    def integer(value: int) -> bytes:
        return struct.pack("<bi", 4, value)

    values = np.arange(4, dtype="<f4").tobytes()
    archives = {
        "matrix": b"key \0BFM " + integer(2) + integer(2) + values,
        "double matrix": b"key \0BDM " + integer(1) + integer(2) + values,
        "vector": b"key \0BFV " + integer(4) + values,
        "compressed matrix": b"key \0BCM2 " + struct.pack("<ffii", 0.0, 1.0, 2, 1) + b"\0\1\2\3",
        "bytes": b"key \0BCM3 " + struct.pack("<ffii", 0.0, 1.0, 2, 2) + b"\0\1\2\3",
        "columns": b"key \0BCM " + struct.pack("<ffii", 0.0, 1.0, 1, 2) + bytes(18),
    }
    for name, data in archives.items():
        sizes = {at for at in range(len(data) - 4) if data[at] == 4}
        if b"CM" in data:
            sizes = {at - 1 for at in (data.index(b" ", 5) + 9, data.index(b" ", 5) + 13)}
        for at in sorted(sizes):
            for number in _INT32:
                other = data[: at + 1] + struct.pack("<i", number) + data[at + 5 :]
                yield Case(
                    f"archive: {name}, {number} at {at + 1}",
                    lambda data=other: _with_file(
                        data, lambda path: list(read_table(f"ark:{path}"))
                    ),
                )
    for name, text in _with_other_numbers("key [\n 1 2\n 3 4 ]\n"):
        yield Case(
            f"archive: text {name}",
            lambda text=text: _with_file(
                text.encode(), lambda path: list(read_table(f"ark:{path}"))
            ),
        )
    example = (
        b"key \0B<Nnet3Eg> <NumIo> " + integer(2)
        + b"<NnetIo> input <I1V> " + integer(2) + bytes([127]) + integer(0) + integer(300)
        + integer(0) + bytes([254]) + b"FM " + integer(2) + integer(2) + values + b"</NnetIo> "
        + b"<NnetIo> output <I1V> " + integer(2) + bytes([0, 3]) + b"SM " + integer(2)
        + b"SV " + integer(3) + integer(1) + integer(2) + b"\4" + struct.pack("<f", 0.5)
        + b"SV " + integer(3) + integer(0) + b"</NnetIo> </Nnet3Eg> "
    )  # fmt: skip
    nnet = parse_config("input-node name=input dim=2\noutput-node name=output input=input\n")
    for what, other in _with_other_sizes(example):
        yield Case(
            f"examples: {what}",
            lambda data=other: _with_file(data, lambda path: list(read_examples(path, nnet))),
        )


def _with_file(data: bytes, use: Callable[[str], object]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file")
        path.write_bytes(data)
        use(str(path))


# ---- running ----


def fault_of(case: Case, seconds: int = SECONDS) -> str | None:
    """Runs a case in a separate process.

    Args:
        case: What to run.
        seconds: Of processor time, after which the system ends it.

    Returns:
        The fault, or None.
    """

    def tell(use: Callable[[], object]) -> str:
        warnings.simplefilter("ignore")  # of parameters that overflow
        try:
            use()
        except Nnet3Error as error:
            return "" if str(error) else "an error without a message"
        except BaseException:
            return traceback.format_exc(limit=-5)
        return ""

    taken, grown, what = measured(case.use, MEMORY, seconds, tell)
    if what:
        return f"{case.name}: {what} ({taken:.1f} s, {grown:.0f} MB)"
    return None


def sample(count: int, seed: int) -> list[Case]:
    """Some of the cases."""
    return random.Random(seed).sample(list(cases()), count)


def main() -> None:
    """Runs the cases that the command line asks for, and prints the faults."""
    chosen = list(cases())
    asked = sys.argv[1] if len(sys.argv) > 1 else "0:"
    if re.fullmatch(r"\d*:\d*", asked):
        first, last = (int(number) if number else None for number in asked.split(":"))
        chosen = chosen[first:last]
    else:
        chosen = [case for case in chosen if asked in case.name]
    faults = 0
    for case in chosen:
        fault = fault_of(case)
        if fault:
            faults += 1
            print(fault, flush=True)
    print(f"{len(chosen)} cases, {faults} faults")


if __name__ == "__main__":
    main()
