"""The cases of the judge: a random network, requests, options, and values."""

from __future__ import annotations

from functools import cached_property
from random import Random
from typing import Any

import attrs
import numpy as np
from example_generator import draw_rows, random_arrays
from judged_networks import RANDOM, WidthWriter, write_network
from nnet3_compiler import (
    CompilationError,
    CompilerOptions,
    compile_looped,
    compile_segments,
    looped_chunk_size,
    looped_requests,
    with_ivector_period,
)
from nnet3_compiler.looped import extended_requests
from nnet3_computation import ComputationRequest, IoSpecification, NnetComputation
from nnet3_descriptors import ComponentNode, NetworkError, Nnet, parse_config
from nnet3_descriptors.components import BatchNormComponent, Component
from nnet3_graph import NotComputableError, UnboundedComputationError
from nnet3_optimizer import OptimizeOptions, optimize
from small_thresholds import gathering

Arrays = dict[str, np.ndarray]

WHOLE, SEGMENTS, LOOP = "whole", "segments", "loop"

LIMITS = ("min_deriv_time", "max_deriv_time", "max_deriv_time_relative")

SILENCE_EVERY = 4
"""One case in so many has silence, if no derivatives are given."""

MANY_ROUNDS = 30
"""Rounds of some loops: terms may wait for others that wait for others."""

LOSSLESS = 1
"""The highest level of compression that loses nothing."""

_SWITCHES = tuple(
    field.name
    for field in attrs.fields(OptimizeOptions)
    if field.type == "bool" and field.name not in ("optimize", "verify")
)


@attrs.frozen(kw_only=True, slots=False)
class Case:
    """A network, requests and options.

    Attributes:
        seed: The seed of all choices.
        config: The network as config lines.
        kinds: The component types (without "Component"), and features, that were drawn.
        nnet: The network, with parameters and statistics.
        form: WHOLE, SEGMENTS or LOOP.
        requests: One request; several, for segments; or the first three chunks of a loop.
        rounds: Number of forward passes: one for each segment, more for a loop.
        shortcut: Whether equal sequences are compiled as one.
        options: The options of the optimizer.
    """

    seed: int
    config: str
    kinds: frozenset[str]
    nnet: Nnet
    form: str
    requests: tuple[ComputationRequest, ...]
    rounds: int
    shortcut: bool
    options: OptimizeOptions

    @property
    def request(self) -> ComputationRequest:
        """The first request."""
        return self.requests[0]

    @property
    def is_random(self) -> bool:
        """Whether masks are drawn."""
        return any(is_masked(component) for component in self.nnet.components)

    @cached_property
    def segments(self) -> tuple[ComputationRequest, ...]:
        """The request of each round."""
        if self.form != LOOP:
            return self.requests
        return extended_requests(self.requests, max(self.rounds, 3))[: self.rounds]

    @cached_property
    def has_backward_pass(self) -> bool:
        """Whether derivatives of outputs are given."""
        return any(io.has_deriv for io in self.request.outputs)

    @property
    def has_silence(self) -> bool:
        """Whether all inputs are zero now and then, as in recordings without sound.

        With derivatives they are not: those of a NormalizeComponent are beyond any scale there.
        """
        return self.seed % SILENCE_EVERY == 0 and not self.has_backward_pass

    @cached_property
    def compiled(self) -> NnetComputation:
        """The computation of the requests, without the limits of times."""
        return self._compile(None)

    @property
    def has_limits(self) -> bool:
        """Whether derivatives are limited to a range of times."""
        return any(getattr(self.options, name) is not None for name in LIMITS)

    @cached_property
    def optimized(self) -> NnetComputation:
        """The optimized computation."""
        if self.form == LOOP:
            return self._compile(self.options)
        return optimize(self.nnet, self.compiled, self.options)

    def _compile(self, options: OptimizeOptions | None) -> NnetComputation:
        with gathering(self.seed):
            return self._compile_as_set(options)

    def _compile_as_set(self, options: OptimizeOptions | None) -> NnetComputation:
        compiler_options = CompilerOptions(shortcut=self.shortcut)
        if self.form != LOOP:
            return compile_segments(self.nnet, self.requests, compiler_options)
        if options is None:  # whether the loop is the same as its segments is judged, too
            return compile_segments(self.nnet, self.segments, compiler_options)
        return compile_looped(
            self.nnet,
            self.requests,
            compiler_options,
            optimize=lambda c: optimize(self.nnet, c, options),
        )

    def inputs(self) -> list[Arrays]:
        """Values of the inputs, for each round."""
        rng = np.random.default_rng(self.seed)
        rounds = [random_arrays(self.nnet, request.inputs, rng) for request in self.segments]
        if self.has_silence:
            length = 2 + self.seed // SILENCE_EVERY % 5
            for request, arrays in zip(self.segments, rounds, strict=True):
                for io in request.inputs:
                    arrays[io.name][io.indexes[:, 1] // length % 2 == 1] = 0.0
        return rounds

    def outputs_of(self, computer: Any) -> Arrays:
        """The outputs of all rounds."""
        return {
            f"output {name} of round {number}": array
            for number, inputs in enumerate(self.inputs())
            for name, array in computer.forward(inputs).items()
        }

    def derivatives_of(self, computer: Any, derivs: Arrays) -> Arrays:
        """Derivatives of inputs, and of parameters if they are asked for."""
        found = computer.backward(derivs)
        found = {f"derivative of {name}": array for name, array in found.items()}
        if self.request.need_model_derivative:
            gradient = computer.gradient.state_dict()
            found |= {f"gradient of {name}": gradient[name] for name in parameter_names(self.nnet)}
        return found

    def output_derivs(self) -> Arrays:
        """Derivatives of the outputs that have one."""
        wanted = [io for io in self.request.outputs if io.has_deriv]
        return random_arrays(self.nnet, wanted, np.random.default_rng([self.seed, 1]))


def is_masked(component: Component) -> bool:
    """Whether a component draws masks."""
    return f"{component.type}".removesuffix("Component") in RANDOM and not component.test_mode


def parameter_names(nnet: Nnet) -> list[str]:
    """The names of parameters in the dictionaries of a network."""
    return [
        f"{name}.{key}"
        for name, component in zip(nnet.component_names, nnet.components, strict=True)
        for key in component.parameter_arrays()
    ]


def case_of_seed(seed: int) -> Case:
    """Draws cases with a seed until one can be computed."""
    rng = Random(seed)
    while True:
        case = _draw(rng, seed)
        if case is not None:
            return case


def _draw(rng: Random, seed: int) -> Case | None:
    """Draws a case; returns None if it cannot be computed."""
    form = rng.choice([WHOLE] * 7 + [LOOP] * 3 + [SEGMENTS])
    is_looped = form != WHOLE
    writer = write_network(rng, is_looped=is_looped, has_x=not is_looped and rng.randrange(8) == 0)
    nnet = parse_config(writer.text(), rng=np.random.default_rng(rng.getrandbits(32)))
    nnet = _with_statistics(rng, nnet)
    rounds = 1
    if is_looped:
        try:
            nnet, requests = _draw_chunks(rng, nnet)
        except (NetworkError, CompilationError):
            return None
        rounds = 3
        if form == LOOP:
            rounds = rng.choice([6, 7, 8, 9, 9, MANY_ROUNDS])
        elif rng.randrange(2):
            requests = tuple(_ragged(rng, request) for request in requests)
    else:
        requests = (_draw_request(rng, nnet, writer),)
    case = Case(
        seed=seed,
        config=writer.text(),
        kinds=frozenset(writer.kinds),
        nnet=nnet,
        form=form,
        requests=requests,
        rounds=rounds,
        shortcut=rng.randrange(4) > 0,
        options=_draw_options(rng, requests[0]),
    )
    return case if _compiles(case) else None


def _with_statistics(rng: Random, nnet: Nnet) -> Nnet:
    """The network with some components in test mode, and with statistics in its batch-norms."""
    components = []
    for component in nnet.components:
        if not hasattr(component, "test_mode") or rng.randrange(3):
            pass
        elif isinstance(component, BatchNormComponent):
            values = np.random.default_rng(rng.getrandbits(32))
            component = attrs.evolve(
                component,
                count=10.0,
                stats_mean=values.standard_normal(component.block_dim).astype(np.float32),
                stats_var=values.uniform(0.5, 2.0, component.block_dim).astype(np.float32),
                test_mode=True,
            )
        else:
            component = attrs.evolve(component, test_mode=True)
        components.append(component)
    return attrs.evolve(nnet, components=tuple(components))


# ---- requests ----


def _draw_request(rng: Random, nnet: Nnet, writer: WidthWriter) -> ComputationRequest:
    """A request of one to three (rarely eight) sequences of a few (rarely many) frames."""
    sequences = rng.choice([1, 1, 2, 2, 3, 3, 3, 8])
    order = rng.choice(["regular"] * 4 + ["ragged", "ragged", "any", "time first"])
    wanted = rng.randrange(4) > 0
    length, step = rng.randint(1, 6), rng.choice([1, 1, 1, 2])
    if rng.randrange(20) == 0:
        length = rng.randint(20, 60)
    start = 0
    if "ReplaceIndex" not in writer.text():
        start = rng.choice([0, 0, 0, -7, 50])
    xs = rng.choice([(0, 1), (-1, 0), (0, 2)]) if writer.has_x else (0,)
    given_xs = tuple(range(xs[0] - 1, xs[-1] + 2)) if writer.has_x else (0,)
    given = {
        node.name: range(start - rng.randint(4, 9), start + length + rng.randint(4, 7))
        for node in nnet.input_nodes
    }
    for node in nnet.nodes:
        # Sums and counts of frames cannot be arbitrary numbers.
        is_state = isinstance(node, ComponentNode) and rng.randrange(12) == 0
        if is_state and nnet.component(node.component).type != "StatisticsExtractionComponent":
            given[node.name] = range(start - 4, start)
    of_inputs = rng.choice(["regular", "ragged"]) if order == "ragged" else order

    def specification(
        name: str, times: range, order: str, xs: tuple[int, ...], has_deriv: bool
    ) -> IoSpecification:
        return IoSpecification(
            name=name, indexes=draw_rows(rng, order, sequences, times, xs), has_deriv=has_deriv
        )

    return ComputationRequest(
        inputs=[
            specification(name, times, of_inputs, given_xs, wanted and rng.randrange(2) == 0)
            for name, times in given.items()
        ],
        outputs=[
            specification(
                node.name,
                range(start, start + length, step),
                order,
                xs,
                wanted and (number == 0 or rng.randrange(2) == 0),
            )
            for number, node in enumerate(nnet.output_nodes)
        ],
        need_model_derivative=wanted and rng.randrange(3) > 0,
        store_component_stats=rng.randrange(2) == 0,
    )


def _draw_chunks(rng: Random, nnet: Nnet) -> tuple[Nnet, tuple[ComputationRequest, ...]]:
    """A network for looped computation, and the first three chunks of a loop."""
    chunk = looped_chunk_size(nnet, rng.choice([1, 2, 3, 4, 5, 6, 6, 8]))
    if rng.randrange(8) == 0:
        chunk = looped_chunk_size(nnet, 20)
    nnet = with_ivector_period(nnet, chunk)
    requests = looped_requests(
        nnet,
        chunk,
        num_sequences=rng.choice([1, 1, 2, 3]),
        extra_left_context=rng.choice([0, 0, 2]),
        extra_right_context=rng.choice([0, 0, 1]),
    )
    stores, others = rng.randrange(4) == 0, [n for n in nnet.output_nodes if n.name != "output"]
    return nnet, tuple(
        attrs.evolve(
            request,
            outputs=(
                *request.outputs,
                *(attrs.evolve(request.outputs[0], name=node.name) for node in others),
            ),
            store_component_stats=stores,
        )
        for request in requests
    )


def _ragged(rng: Random, request: ComputationRequest) -> ComputationRequest:
    """The request without the last rows of some sequences, or without all of their rows."""
    outputs = []
    for io in request.outputs:
        rows = io.indexes.tolist()
        left_out = {n: rng.choice([0, 0, 1, 2, 99]) for n in {row[0] for row in rows}}
        ends = {n: max(row[1] for row in rows if row[0] == n) - left_out[n] for n in left_out}
        some = [row for row in rows if row[1] <= ends[row[0]]] or rows
        outputs.append(attrs.evolve(io, indexes=np.array(some, np.int32)))
    return attrs.evolve(request, outputs=outputs)


def _compiles(case: Case) -> bool:
    """Whether the requests can be computed."""
    try:
        return bool(len(case.compiled.commands))
    except (NotComputableError, CompilationError, UnboundedComputationError):
        return False


def _draw_options(rng: Random, request: ComputationRequest) -> OptimizeOptions:
    """Options of the optimizer; most often the defaults."""
    chosen: dict[str, object] = {}
    if any(io.has_deriv for io in request.outputs):
        chosen["memory_compression_level"] = rng.choice([0, 1, 1, 1, 2])
        times = np.concatenate([io.indexes[:, 1] for io in request.outputs])
        if rng.randrange(6) == 0:
            chosen["min_deriv_time"] = int(times.min()) + rng.randint(-2, 1)
        if rng.randrange(6) == 0:
            chosen["max_deriv_time"] = int(times.max()) + rng.randint(-1, 2)
        elif rng.randrange(6) == 0:
            chosen["max_deriv_time_relative"] = rng.randint(-1, 2)
        if times.max() - times.min() < 3:
            chosen.pop("min_deriv_time", None)
    if rng.randrange(6) == 0:
        chosen |= {name: bool(rng.randrange(2)) for name in rng.sample(_SWITCHES, 4)}
    return OptimizeOptions(**chosen)
