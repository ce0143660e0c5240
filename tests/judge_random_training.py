"""Compares Trainer with the definition of its steps, for any number of random networks and options.

`python tests/judge_random_training.py --count 1000 --first-seed 1000` prints the seeds whose
parameters differ. A seed draws a network, minibatches of some of its outputs, learning rates,
max-changes and l2 terms of components, and options: momentum or backstitch, limits, objectives.

The definition takes gradients from nnet3-runtime-reference in float64, and makes the steps as
Kaldi's nnet3-train describes them. The natural gradient, masks and self-repair are not judged here.
A second trainer, which is saved and loaded between two steps, must end with the same bytes.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from random import Random

import attrs
import numpy as np
import package_tests  # noqa: F401  the helpers of the packages
from example_cases import noise_for
from judged_cases import WHOLE, case_of_seed, parameter_names
from judged_seeds import Judged, command_line, judge_seeds
from nnet3_compiler import compile_computation
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_descriptors import InputNode, Nnet
from nnet3_descriptors.components import UpdatableComponent
from nnet3_descriptors.indexes import N
from nnet3_runtime_cuda import TrainingError
from nnet3_runtime_reference import ReferenceComputer
from nnet3_training import Trainer, TrainerOptions, TrainingExample
from small_thresholds import thresholds

LARGEST_DIFFERENCE = 1e-4
"""Of a parameter's change, relative to the largest change of any parameter."""

OF_PARAMETERS = 1e-6
"""The rounding error of a parameter, relative to the largest one."""

Arrays = dict[str, np.ndarray]


@attrs.frozen(kw_only=True)
class Case:
    """A network, minibatches and options.

    Attributes:
        nnet: The network.
        examples: The minibatches.
        options: How it is trained.
        objective: "linear" or "quadratic".
    """

    nnet: Nnet
    examples: list[TrainingExample]
    options: TrainerOptions
    objective: str


def case_of(seed: int) -> Case | None:
    """Draws a case; None if its network is not trained, or decides something at random."""
    drawn, rng, values = case_of_seed(seed), Random(seed), np.random.default_rng(seed)
    request = drawn.request
    names = {node.name for node in drawn.nnet.nodes if isinstance(node, InputNode)}
    if (
        drawn.form != WHOLE
        or drawn.is_random
        or not parameter_names(drawn.nnet)
        or drawn.kinds & {"Composite", "self-repair"}  # rates within rates, random decisions
        or {io.name for io in request.inputs} != names
    ):
        return None
    momentum = rng.choice([0.0, 0.0, 0.5, 0.9])
    options = TrainerOptions(
        learning_rate=None,
        momentum=momentum,
        max_param_change=rng.choice([0.0, 2.0, 0.01]),
        l2_regularize_factor=rng.choice([1.0, 0.3]),
        natural_gradient=False,
        store_component_stats=False,
        zero_component_stats=False,
        orthonormal_period=1_000_000,
        backstitch_training_scale=0.0 if momentum else rng.choice([0.0, 0.3, 1.0]),
        backstitch_training_interval=rng.randint(1, 2),
        backstitch_phase=rng.randint(0, 1),
    )

    examples = [noise_for(drawn.nnet, _minibatch(request, rng), values) for _ in range(4)]
    return Case(
        nnet=_with_rates(drawn.nnet, rng),
        examples=examples,
        options=options,
        objective=rng.choice(["linear", "quadratic"]),
    )


def _minibatch(request: ComputationRequest, rng: Random) -> ComputationRequest:
    """The request, or one for fewer sequences or fewer outputs."""
    sequences = sorted({int(n) for n in request.outputs[0].indexes[:, N]})
    most = rng.choice([*sequences, *sequences[-1:] * 3])

    def fewer(io: IoSpecification, has_deriv: bool) -> IoSpecification:
        return IoSpecification(
            name=io.name, indexes=io.indexes[io.indexes[:, N] <= most], has_deriv=has_deriv
        )

    outputs = rng.sample(request.outputs, rng.randint(1, len(request.outputs)))
    return ComputationRequest(
        inputs=[fewer(io, has_deriv=False) for io in request.inputs],
        outputs=[fewer(io, has_deriv=True) for io in outputs],
    )


def _with_rates(nnet: Nnet, rng: Random) -> Nnet:
    """The network with rates, limits and l2 terms of its components; some biases are zero."""
    changes = {
        "learning_rate": (0.01, 0.01, 0.002, 0.0),
        "max_change": (0.0, 0.75, 0.003),
        "l2_regularize": (0.0, 0.0, 0.05),
    }
    components = []
    for component in nnet.components:
        if isinstance(component, UpdatableComponent):
            chosen: dict[str, object] = {name: rng.choice(of) for name, of in changes.items()}
            if hasattr(component, "orthonormal_constraint"):
                chosen["orthonormal_constraint"] = 0.0
            if "bias_params" in component.parameter_arrays() and rng.randrange(3) == 0:
                chosen["bias_params"] = np.zeros_like(component.bias_params)
            component = attrs.evolve(component, **chosen)
        components.append(component)
    return attrs.evolve(nnet, components=components)


# ---- the definition ----


def defined(case: Case, dtype: type) -> Arrays:
    """The parameters after all minibatches, by name, as the definition says."""
    names, options = parameter_names(case.nnet), case.options
    state = {name: case.nnet.state_dict()[name].astype(np.float64) for name in names}
    before = {name: np.zeros_like(array) for name, array in state.items()}
    for number, example in enumerate(case.examples):
        scale = options.backstitch_training_scale
        interval = options.backstitch_training_interval
        weight = options.l2_regularize_factor * len(
            {int(n) for n in example.inputs[0].indexes[:, N]}
        )
        if scale and number % interval == options.backstitch_phase % interval:
            proposed = _proposed(case, state, example, dtype, l2=0.0)
            _step(case, state, proposed, scale=-scale, room=scale)
            proposed = _proposed(case, state, example, dtype, l2=weight / (1.0 + scale))
            _step(case, state, proposed, scale=1.0 + scale, room=1.0 + scale)
            continue
        proposed = _proposed(case, state, example, dtype, l2=weight)
        before = {name: options.momentum * before[name] + proposed[name] for name in names}
        _step(case, state, before, scale=1.0 - options.momentum, room=1.0)
    return state


def _proposed(
    case: Case, state: Arrays, example: TrainingExample, dtype: type, *, l2: float
) -> Arrays:
    """The learning rate times the gradient of the objective, less that of the l2 term."""
    request = ComputationRequest(
        inputs=[IoSpecification(name=io.name, indexes=io.indexes) for io in example.inputs],
        outputs=[
            IoSpecification(name=io.name, indexes=io.indexes, has_deriv=True)
            for io in example.outputs
        ],
        need_model_derivative=True,
    )
    nnet = case.nnet.with_state_dict(
        case.nnet.state_dict() | {name: array.astype(np.float32) for name, array in state.items()}
    )
    computer = ReferenceComputer(nnet, compile_computation(nnet, request), dtype)
    outputs = computer.forward({io.name: io.values for io in example.inputs})
    targets = {io.name: io.supervision.values for io in example.outputs}
    computer.backward(
        {
            name: targets[name] if case.objective == "linear" else targets[name] - rows
            for name, rows in outputs.items()
        }
    )
    gradient = computer.gradient.state_dict()
    proposed = {}
    for name, array in state.items():
        component = case.nnet.component(name.rpartition(".")[0])
        rate = component.learning_rate
        proposed[name] = rate * (gradient[name] - 2.0 * component.l2_regularize * l2 * array)
    return proposed


def _step(case: Case, state: Arrays, proposed: Arrays, *, scale: float, room: float) -> None:
    """Adds `scale` times the proposed change, within the limits times `room`."""
    factors = {}
    squares = 0.0
    for component in {name.rpartition(".")[0] for name in state}:
        own = [array for name, array in proposed.items() if name.rpartition(".")[0] == component]
        norm = float(np.sqrt(sum(np.sum(array**2) for array in own)))
        most = case.nnet.component(component).max_change * room
        factors[component] = 1.0
        if most and norm * abs(scale) > most:
            factors[component] = most / (norm * abs(scale))
        squares += (factors[component] * norm) ** 2
    norm, most = float(np.sqrt(squares)) * abs(scale), case.options.max_param_change * room
    common = most / norm if most and norm > most else 1.0
    for name in state:
        state[name] += scale * common * factors[name.rpartition(".")[0]] * proposed[name]


# ---- what is judged ----


def judged(seed: int) -> Judged:
    """The verdict on a seed; most are not judged."""
    case, problem = case_of(seed), None
    if case is not None:
        with thresholds(seed):
            problem = _problem(case, stop=seed % len(case.examples))
    return Judged(problem or "", ["not judged" if problem is None else "judged"])


def _problem(case: Case, stop: int) -> str | None:
    """The difference from the definition; "" if there is none, None if nothing can be judged.

    The second trainer is saved after minibatch number `stop`.
    """
    trainer = Trainer(case.nnet, case.options, objective=case.objective)
    other = Trainer(case.nnet, case.options, objective=case.objective)
    for number, example in enumerate(case.examples):
        try:
            trainer.train_minibatch(example)
        except TrainingError:  # it diverged
            return None
        other.train_minibatch(example)
        if number == stop:
            with tempfile.TemporaryDirectory() as folder:
                other.save(Path(folder, "checkpoint"))
                other = Trainer.load(Path(folder, "checkpoint"))
    if trainer.num_skipped:  # a change was not finite
        return None
    if trainer.nnet.to_bytes() != other.nnet.to_bytes():
        return f"a checkpoint after minibatch {stop} changes what follows"
    found = trainer.nnet.state_dict()
    differences = _differences(case, found, defined(case, np.float64))
    if not differences:
        return ""
    # Float32 itself may have too few digits for this case.
    single = defined(case, np.float32)
    doubtful = _differences(case, single, defined(case, np.float64), share=0.1)
    return None if differences.keys() <= doubtful.keys() else "; ".join(differences.values())


def _differences(case: Case, found: Arrays, expected: Arrays, share: float = 1.0) -> dict[str, str]:
    start = case.nnet.state_dict()
    change = max(
        float(np.abs(array - start[name]).max(initial=0.0)) for name, array in expected.items()
    )
    largest = max(float(np.abs(array).max(initial=0.0)) for array in expected.values())
    allowed = share * (LARGEST_DIFFERENCE * change + OF_PARAMETERS * largest)
    return {
        name: f"{name} differs by {difference:.1e}, its change is up to {change:.1e}"
        for name, array in expected.items()
        if not (difference := float(np.abs(found[name] - array).max(initial=0.0))) <= allowed
    }


if __name__ == "__main__":
    sys.exit(judge_seeds(judged, command_line(__doc__).parse_args()))
