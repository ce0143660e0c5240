"""Computations of random networks give the networks' outputs, with and without the shortcut."""

from unittest import mock

import numpy as np
import pytest
from direct_evaluation import Evaluation
from hypothesis import HealthCheck, event, given, settings
from nnet3_compiler import CompilerOptions, backward, compile_computation, compile_segments
from nnet3_compiler.shortcut import reduce_requests
from nnet3_computation import (
    ComputationRequest,
    IoSpecification,
    NnetComputation,
    check_runnable,
    format_computation,
    parse_computation,
)
from nnet3_descriptors import Nnet, unvectorize, vectorize
from nnet3_graph import build_computation_graph
from nnet3_runtime_reference import ReferenceComputer
from random_networks import examples, random_arrays, segmented_examples
from small_networks import network, stacked

Example = tuple[Nnet, ComputationRequest]

many = settings(
    max_examples=settings.default.max_examples,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def compiled_both_ways(example: Example) -> list[NnetComputation]:
    """The computations with and without the shortcut, and with and without gathering."""
    computations = []
    for shortcut in (True, False):
        for gathers in (True, False):
            with mock.patch.object(
                backward, "is_worthwhile", lambda lists, _, to=gathers: to and lists > 0
            ):
                options = CompilerOptions(shortcut=shortcut)
                computations.append(compile_computation(*example, options))
                check_runnable(example[0], computations[-1])
    return computations


@many
@given(examples())
def test_outputs_are_what_the_network_means(example: Example) -> None:
    """Outputs equal those of an evaluation of single cindexes."""
    nnet, request = example
    event("one pattern" if reduce_requests([request]) else "sequences differ, or one")
    inputs = random_arrays(nnet, request.inputs)
    evaluation = Evaluation(nnet, build_computation_graph(nnet, request), request, inputs)
    expected = {io.name: evaluation.output(io.name, io.indexes) for io in request.outputs}
    for computation in compiled_both_ways(example):
        assert_outputs(ReferenceComputer(nnet, computation).forward(inputs), expected)


def assert_outputs(provided: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    """Asserts that all outputs are there, with these values."""
    assert expected.keys() == provided.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(provided[name], value, rtol=1e-9, atol=1e-9)


def assert_segments_are_evaluated(nnet: Nnet, requests: list[ComputationRequest]) -> None:
    """Runs segments, and evaluates single cindexes of their graphs."""
    evaluation, graph = None, None
    expected = []
    rounds = [random_arrays(nnet, each.inputs, seed) for seed, each in enumerate(requests)]
    for request, inputs in zip(requests, rounds, strict=True):
        graph = build_computation_graph(nnet, request, graph)
        if evaluation is None:
            evaluation = Evaluation(nnet, graph, request, inputs)
        else:
            evaluation.extend(graph, request, inputs)
        expected.append({io.name: evaluation.output(io.name, io.indexes) for io in request.outputs})
    for shortcut in (True, False):
        computation = compile_segments(nnet, requests, CompilerOptions(shortcut=shortcut))
        check_runnable(nnet, computation)
        computer = ReferenceComputer(nnet, computation)
        for inputs, outputs in zip(rounds, expected, strict=True):
            assert_outputs(computer.forward(inputs), outputs)


@many
@given(segmented_examples())
def test_segments_are_what_the_network_means(
    example: tuple[Nnet, list[ComputationRequest]],
) -> None:
    """Outputs of several segments equal those of an evaluation of single cindexes."""
    assert_segments_are_evaluated(*example)


@pytest.mark.parametrize("older", [0, 1])
def test_older_rows_of_one_sequence_among_the_inputs(older: int) -> None:
    """A component on a grid of times and sequences takes older rows at their places."""
    nnet = network(stacked(2, "c Tdnn input-dim=2 output-dim=2 use-bias=false time-offsets=-1,0"))

    def request(begin: int, end: int, outputs: list[tuple[int, int, int]]) -> ComputationRequest:
        return ComputationRequest(
            inputs=[IoSpecification.from_range("input", begin, end, 2)],
            outputs=[IoSpecification(name="output", indexes=np.array(outputs, np.int32))],
        )

    first = [(n, t, 0) for n in (0, 1) for t in range(4 if n == older else 3)]
    second = [(n, t, 0) for n in (0, 1) for t in range(4, 7)]

    assert_segments_are_evaluated(nnet, [request(-1, 4, first), request(4, 7, second)])


@many
@given(examples())
def test_input_derivatives_are_exact(example: Example) -> None:
    """Outputs change by the input derivatives: the computation is affine in its inputs."""
    nnet, request = example
    if not request.needs_derivatives:
        return
    inputs = random_arrays(nnet, request.inputs)
    wanted = [io.name for io in request.inputs if io.has_deriv]
    given = tuple(io for io in request.outputs if io.has_deriv)
    output_derivs = random_arrays(nnet, given, seed=1)
    changes = {
        name: change
        for name, change in random_arrays(nnet, request.inputs, seed=2).items()
        if name in wanted
    }
    for name in changes:
        if name.endswith(".sums"):
            changes[name][:, 0] = 0  # a mean is not affine in the number of frames
    changed = {name: array + changes.get(name, 0) for name, array in inputs.items()}
    for computation in compiled_both_ways(example):
        computer = ReferenceComputer(nnet, computation)
        after, before = computer.forward(changed), computer.forward(inputs)
        derivatives = computer.backward(output_derivs)
        actual = sum(
            np.sum(deriv * (after[name] - before[name])) for name, deriv in output_derivs.items()
        )
        predicted = sum(np.sum(derivatives[name] * changes[name]) for name in wanted)

        assert set(wanted) == derivatives.keys()
        np.testing.assert_allclose(predicted, actual, rtol=1e-7, atol=1e-7)


@many
@given(examples())
def test_model_derivatives(example: Example) -> None:
    """With a small change of the parameters, outputs change by the model derivative."""
    nnet, request = example
    if not request.need_model_derivative or nnet.num_parameters == 0:
        return
    inputs = random_arrays(nnet, request.inputs)
    given = tuple(io for io in request.outputs if io.has_deriv)
    output_derivs = random_arrays(nnet, given, seed=1)
    parameters = vectorize(nnet)
    change = np.random.default_rng(3).standard_normal(len(parameters)).astype(np.float32) * 2**-10

    def objective(moved: Nnet) -> float:
        outputs = ReferenceComputer(moved, computation).forward(inputs)
        return sum(np.sum(deriv * outputs[name]) for name, deriv in output_derivs.items())

    for computation in compiled_both_ways(example):
        computer = ReferenceComputer(nnet, computation)
        computer.forward(inputs)
        computer.backward(output_derivs)
        gradient = vectorize(computer.gradient).astype(np.float64)
        above = unvectorize(nnet, parameters + change)
        below = unvectorize(nnet, parameters - change)
        step = vectorize(above).astype(np.float64) - vectorize(below)
        actual = objective(above) - objective(below)
        scale = np.abs(gradient * step).sum() + 1e-3

        assert abs(gradient @ step - actual) / scale < 1e-3


@many
@given(examples())
def test_text_and_bytes_give_the_computation_back(example: Example) -> None:
    """Text form and serialized form are exact, the text also without a network."""
    nnet, _ = example
    for computation in compiled_both_ways(example):
        text = format_computation(computation, nnet)
        parsed = parse_computation(text)

        assert computation == parsed == parse_computation(text, nnet)
        assert text == format_computation(parsed, nnet)
        assert computation == NnetComputation.from_bytes(computation.to_bytes())


def test_state_can_be_handed_over() -> None:
    """A recurrence in two halves, with its state given to the second, equals one run."""
    nnet = network(
        "input-node name=input dim=2\n"
        "component name=a type=LinearComponent input-dim=4 output-dim=5\n"
        "component-node name=a component=a input=Append(input, IfDefined(Offset(state, -2)))\n"
        "dim-range-node name=state input-node=a dim-offset=1 dim=2\n"
        "dim-range-node name=last input-node=a dim-offset=3 dim=2\n"
        "output-node name=output input=last\n"
    )
    frames = IoSpecification.from_range("input", 0, 10, n=2)
    whole = ComputationRequest(
        inputs=[frames], outputs=[IoSpecification.from_range("output", 0, 10, n=2)]
    )
    inputs = random_arrays(nnet, whole.inputs)
    evaluation = Evaluation(nnet, build_computation_graph(nnet, whole), whole, inputs)
    state = IoSpecification.from_range("a", 4, 6, n=2)
    node = nnet.node_index("a")
    second_half = ComputationRequest(
        inputs=[IoSpecification.from_range("input", 6, 10, n=2), state],
        outputs=[IoSpecification.from_range("output", 6, 10, n=2)],
    )
    given = {
        "input": inputs["input"].reshape(2, 10, 2)[:, 6:].reshape(-1, 2),
        "a": np.array([evaluation.value((node, *index)) for index in state.indexes.tolist()]),
    }
    expected = evaluation.output("output", second_half.outputs[0].indexes)
    for computation in compiled_both_ways((nnet, second_half)):
        provided = ReferenceComputer(nnet, computation).forward(given)
        assert_outputs(provided, {"output": expected})
        assert computation.steps_by_node(nnet)[:2] == [("input", 8), ("a", 4)]


@pytest.mark.parametrize("shortcut", [True, False])
@pytest.mark.parametrize(
    "descriptor",
    [
        "ReplaceIndex(ivector, t, 0)",
        "Switch(ReplaceIndex(ivector, t, 0), Scale(2, ReplaceIndex(ivector, t, 0)))",
        "Switch(ReplaceIndex(ivector, t, 0), ReplaceIndex(offsets, t, 0))",
    ],
)
def test_as_many_commands_for_more_frames(descriptor: str, shortcut: bool) -> None:
    """The derivative of an input that all frames of several sequences read takes few commands."""
    layers = "offsets NoOp dim=3 input=ivector", f"sum NoOp dim=6 input=Append(input, {descriptor})"
    nnet = network("input-node name=ivector dim=3\n" + stacked(3, *layers))

    def request(frames: int) -> ComputationRequest:
        io = IoSpecification.from_range
        return ComputationRequest(
            inputs=[io("input", 0, frames, 8), io("ivector", 0, 1, 8, has_deriv=True)],
            outputs=[io("output", 0, frames, 8, has_deriv=True)],
        )

    options = CompilerOptions(shortcut=shortcut)
    few, many = (compile_computation(nnet, request(frames), options) for frames in (60, 150))

    assert len(many.commands) == len(few.commands) < 50
    derivs = random_arrays(nnet, request(150).outputs)
    computer = ReferenceComputer(nnet, many)
    computer.forward(random_arrays(nnet, request(150).inputs))
    derivatives = computer.backward(derivs)
    by_frame = derivs["output"][:, 3:].reshape(8, 150, 3)
    if "Scale" in descriptor:
        by_frame[:, 1::2] *= 2
    np.testing.assert_allclose(derivatives["ivector"], by_frame.sum(axis=1))
