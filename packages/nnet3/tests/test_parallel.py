"""Sequences of a request computed on several threads."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs
import numpy as np
import pytest
from nnet3 import CachingCompiler, ParallelComputer
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_descriptors import Nnet, parse_config, set_test_mode
from nnet3_graph import NotComputableError
from nnet3_runtime_cuda import DeviceNnet, NnetComputer, RunError, Tracer
from threadpoolctl import threadpool_info

CONFIG = """
input-node name=ivector dim=3
input-node name=input dim=4
component name=up type=TdnnComponent input-dim=7 output-dim=20 time-offsets=-1,0,1
component-node name=up component=up input=Append(input, ReplaceIndex(ivector, t, 0))
component name=relu type=RectifiedLinearComponent dim=20
component-node name=relu component=relu input=up
component name=norm type=BatchNormComponent dim=20
component-node name=norm component=norm input=relu
component name=drop type=GeneralDropoutComponent dim=20 dropout-proportion=0.5
component-node name=drop component=drop input=norm
component name=last type=NaturalGradientAffineComponent input-dim=20 output-dim=5
component-node name=last component=last input=drop
output-node name=output input=last
output-node name=hidden input=relu
"""

LENGTHS = (4, 7, 4, 5, 4)


def network() -> Nnet:
    """A network with random parameters and statistics, in test mode."""
    rng = np.random.default_rng(0)
    nnet = parse_config(CONFIG, rng=rng)
    norm = nnet.component("norm").replace(
        count=10.0, stats_mean=rng.normal(size=20), stats_var=rng.uniform(1.0, 2.0, 20)
    )
    return set_test_mode(nnet.with_components({"norm": norm}))


def rows(*ranges: tuple[int, range]) -> np.ndarray:
    """Indexes of sequences, each with some times."""
    return np.array([(n, t, 0) for n, times in ranges for t in times], dtype=np.int32)


def ragged_request() -> ComputationRequest:
    """Sequences of several lengths with gaps in their numbers, and rows in any order."""
    numbered = [(3 * n, length) for n, length in enumerate(LENGTHS)]
    rng = np.random.default_rng(1)
    return ComputationRequest(
        inputs=[
            IoSpecification(
                name="input",
                indexes=rng.permutation(rows(*((n, range(-1, end + 1)) for n, end in numbered))),
            ),
            IoSpecification(name="ivector", indexes=rows(*((n, range(1)) for n, _ in numbered))),
        ],
        outputs=[
            IoSpecification(
                name="output",
                indexes=rng.permutation(rows(*((n, range(end)) for n, end in numbered))),
            ),
            IoSpecification(name="hidden", indexes=rows((3, range(2)))),
        ],
    )


def values(request: ComputationRequest) -> dict[str, np.ndarray]:
    """Random inputs."""
    rng, dims = np.random.default_rng(2), {"input": 4, "ivector": 3}
    return {
        io.name: rng.standard_normal((len(io.indexes), dims[io.name]), dtype=np.float32)
        for io in request.inputs
    }


@pytest.mark.parametrize("threads", [2, 3, 9])
def test_outputs_are_those_of_one_computation(threads: int) -> None:
    """For any order of rows and any lengths, outputs are those of the whole request."""
    nnet, request = network(), ragged_request()
    compiler, inputs = CachingCompiler(nnet), values(request)

    computer = ParallelComputer(nnet, compiler.compile, request, threads=threads)
    expected = NnetComputer(nnet, compiler.compile(request)).forward(inputs)

    assert len(computer.computers) == min(threads, len(LENGTHS))
    for _ in range(2):
        found = computer.forward(inputs)
        assert found.keys() == expected.keys()
        for name, output in expected.items():
            np.testing.assert_allclose(found[name], output, rtol=1e-5, atol=1e-6)


def test_equal_groups_are_compiled_once() -> None:
    """Two groups of equally many equal sequences share a computation; each has its own memory."""
    nnet, compiler = network(), CachingCompiler(network())
    request = ComputationRequest(
        inputs=[
            IoSpecification.from_range("input", -1, 5, 4),
            IoSpecification.from_range("ivector", 0, 1, 4),
        ],
        outputs=[IoSpecification.from_range("output", 0, 4, 4)],
    )

    computer = ParallelComputer(nnet, compiler.compile, request, threads=2)

    assert len(computer.computers) == 2
    assert len(compiler) == 1
    assert computer.memory_bytes == 2 * computer.computers[0].memory_bytes
    assert computer.num_calls == 2 * computer.computers[0].num_calls


def test_products_run_on_one_thread_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """While sequences are computed side by side, the BLAS library uses one thread for each."""
    seen: list[int] = []
    forward = NnetComputer.forward

    def watched(computer: NnetComputer, inputs: Any) -> Any:
        seen.extend(one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas")
        return forward(computer, inputs)

    monkeypatch.setattr(NnetComputer, "forward", watched)
    nnet, request = network(), ragged_request()
    computer = ParallelComputer(nnet, CachingCompiler(nnet).compile, request, threads=2)
    computer.forward(values(request))

    assert set(seen) == {1}


def training(request: ComputationRequest) -> ComputationRequest:
    """The request with the derivative of the model."""
    outputs = [attrs.evolve(io, has_deriv=True) for io in request.outputs]
    return attrs.evolve(request, outputs=outputs, need_model_derivative=True)


def with_statistics(request: ComputationRequest) -> ComputationRequest:
    """The request with statistics."""
    return attrs.evolve(request, store_component_stats=True)


def of_one_sequence(request: ComputationRequest) -> ComputationRequest:
    """A request for one sequence."""
    return ComputationRequest(
        inputs=[
            IoSpecification.from_range("input", -1, 5),
            IoSpecification.from_range("ivector", 0, 1),
        ],
        outputs=[IoSpecification.from_range("output", 0, 4)],
    )


@pytest.mark.parametrize(
    ("nnet", "change", "threads"),
    [
        (network(), training, 2),
        (network(), with_statistics, 2),
        (network(), of_one_sequence, 2),
        (network(), ragged_request, 1),
        (set_test_mode(network(), on=False), ragged_request, 2),
    ],
    ids=["training", "statistics", "one sequence", "one thread", "random"],
)
def test_what_cannot_be_split(
    nnet: Nnet, change: Callable[..., ComputationRequest], threads: int
) -> None:
    """A request that cannot be split becomes one computation."""
    request = ragged_request() if change is ragged_request else change(ragged_request())
    asked: list[ComputationRequest] = []

    def compile(request: ComputationRequest) -> Any:
        asked.append(request)
        return CachingCompiler(nnet).compile(request)

    computer = ParallelComputer(nnet, compile, request, threads=threads)
    outputs = computer.forward(values(request))

    assert asked == [request]
    assert len(computer.computers) == 1
    assert {name: len(output) for name, output in outputs.items()} == {
        io.name: len(io.indexes) for io in request.outputs
    }


def test_errors_name_rows_of_the_caller() -> None:
    """Inputs are refused as by NnetComputer, with the row of the caller's array."""
    nnet, request = network(), ragged_request()
    computer = ParallelComputer(nnet, CachingCompiler(nnet).compile, request, threads=2)
    inputs = values(request)
    for bad, message in (
        ({"input": inputs["input"]}, "input 'ivector' is missing"),
        (inputs | {"x": np.zeros((1, 1))}, "there is no input 'x'.* 'input', 'ivector'"),
        (inputs | {"ivector": np.zeros((2, 3))}, r"expected the shape \(5, 3\), found \(2, 3\)"),
    ):
        with pytest.raises(RunError, match=message):
            computer.forward(bad)
    inputs["input"][31, 2] = np.nan
    with pytest.raises(RunError, match=r"'input': .* found nan in row 31, column 2"):
        computer.forward(inputs)


def test_errors_of_the_compiler_name_sequences_of_the_caller() -> None:
    """An output that cannot be computed is named with the n of the request."""
    nnet, request = network(), ragged_request()
    lacking = IoSpecification(
        name="input",
        indexes=np.array([row for row in request.inputs[0].indexes if tuple(row) != (12, 0, 0)]),
    )
    request = attrs.evolve(request, inputs=[lacking, request.inputs[1]])

    with pytest.raises(NotComputableError) as expected:
        CachingCompiler(nnet).compile(request)
    with pytest.raises(NotComputableError) as found:
        ParallelComputer(nnet, CachingCompiler(nnet).compile, request, threads=2)

    assert str(found.value) == str(expected.value)


def test_error_in_a_thread_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of a computer is raised, and the next run works."""
    nnet, request = network(), ragged_request()
    computer = ParallelComputer(nnet, CachingCompiler(nnet).compile, request, threads=2)
    inputs = values(request)
    expected = computer.forward(inputs)

    def fail(_: Any) -> None:
        raise MemoryError("no memory")

    with monkeypatch.context() as context:
        context.setattr(computer.computers[1], "forward", fail)
        with pytest.raises(MemoryError, match="no memory"):
            computer.forward(inputs)

    np.testing.assert_array_equal(computer.forward(inputs)["output"], expected["output"])


def test_several_callers() -> None:
    """Threads that share a computer, or a network, get the outputs of one thread."""
    nnet, request = network(), ragged_request()
    device_nnet, compiler = DeviceNnet(nnet, threads=2), CachingCompiler(nnet)
    computers = [ParallelComputer(device_nnet, compiler.compile, request) for _ in range(2)]
    one = values(request)
    given = [{name: value * scale for name, value in one.items()} for scale in range(20)]
    expected = [computers[0].forward(inputs)["output"] for inputs in given]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda k: computers[k % 2].forward(given[k])["output"], range(20)))

    np.testing.assert_array_equal(found, expected)


def test_a_trace_of_several_threads() -> None:
    """A trace sees the commands of every thread, and changes no output."""
    nnet, request, tracer = network(), ragged_request(), Tracer()
    compile, inputs = CachingCompiler(nnet).compile, values(request)

    plain = ParallelComputer(nnet, compile, request, threads=2)
    traced = ParallelComputer(nnet, compile, request, threads=2, trace=tracer)
    expected, found = plain.forward(inputs), traced.forward(inputs)

    for name, output in expected.items():
        np.testing.assert_array_equal(found[name], output)
    trace = tracer.trace()
    nodes = {command.node for _, command in trace.commands}
    assert {"up", "relu", "norm", "last"} <= nodes
    runs = sum(each.runs for _, each in trace.commands if "last.propagate" in each.text)
    assert runs == len(traced.computers) == 2
    assert trace.fault is None
