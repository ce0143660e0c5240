"""The change of the parameters after a minibatch: l2, max-change, momentum, orthonormal matrices.

The linear maps of a TDNN-F are kept semi-orthonormal. Source: D. Povey et al., "Semi-orthogonal
low-rank matrix factorization for deep neural networks" (2018), sections 2.2 and 2.3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from nnet3_descriptors import Nnet, SerializationError, components
from nnet3_runtime_cuda import TrainingError, device
from nnet3_runtime_cuda.operations import Array, Tape


class ParameterGroup(NamedTuple):
    """Parameters that lie next to one another and have the same rates.

    Attributes:
        component: Number of the component; several groups of a composite one have the same.
        start: Number of the first parameter.
        size: Their number.
        rate: Their learning rate.
        decay: The negative factor that gives, times a parameter, the learning rate times the
            derivative of the l2 term by the parameter, for one sequence.
    """

    component: int
    start: int
    size: int
    rate: float
    decay: float

    def blocks(self, size: int) -> list[slice]:
        """The group in pieces of that size, which stay in the cache."""
        end = self.start + self.size
        return [slice(begin, min(begin + size, end)) for begin in range(self.start, end, size)]


def parameter_groups(nnet: Nnet) -> tuple[ParameterGroup, ...]:
    """The groups of all parameters, in order.

    Raises:
        TrainingError: the l2 term of a component is infinite.
    """
    groups: list[ParameterGroup] = []
    start = 0
    for number, component in enumerate(nnet.components):
        decay = 0.0
        if isinstance(component, components.UpdatableComponent):
            if not math.isfinite(component.l2_regularize):
                raise TrainingError(
                    f"component '{nnet.component_names[number]}': l2-regularize must be finite "
                    f"(got {component.l2_regularize})"
                )
            decay = 2.0 * component.l2_regularize * component.learning_rate
        for size, rate in device.learning_rates(component):
            groups.append(
                ParameterGroup(component=number, start=start, size=size, rate=rate, decay=decay)
            )
            start += size
    return tuple(groups)


class LimitedChange(NamedTuple):
    """The part of a proposed change that is made.

    Attributes:
        factors: By component number, the factor of its change: both limits and the scale of the
            step.
        limited: The components whose own limit was exceeded, with the factor that reduces their
            change.
        global_factor: The factor by which the common limit reduces the change; 1 if it was not
            exceeded.
        is_finite: Whether the change is finite; if not, no change is made.
    """

    factors: dict[int, float]
    limited: dict[int, float]
    global_factor: float
    is_finite: bool


def limit_change(
    squared_norms: dict[int, float],
    max_changes: dict[int, float],
    max_param_change: float,
    *,
    scale: float,
) -> LimitedChange:
    """Applies the limits of single components, then the limit of all.

    Args:
        squared_norms: By component number, the squared norm of the proposed change before `scale`.
        max_changes: By component number, the bound of the norm of its change; 0 for none.
        max_param_change: The bound for all components together; 0 for none.
        scale: Factor of the change.
    """
    size = abs(scale)
    limited, total = {}, 0.0
    for component, square in squared_norms.items():
        factor, limit = 1.0, max_changes[component]
        if limit and math.sqrt(square) * size > limit:
            factor = limit / (math.sqrt(square) * size)
            limited[component] = factor
        total += factor**2 * square
    norm = math.sqrt(total) * size
    is_finite = math.isfinite(norm) and all(map(math.isfinite, squared_norms.values()))
    global_factor = 1.0
    if max_param_change and is_finite and norm > max_param_change:
        global_factor = max_param_change / norm
    return LimitedChange(
        factors={c: scale * global_factor * limited.get(c, 1.0) for c in squared_norms},
        limited=limited,
        global_factor=global_factor,
        is_finite=is_finite,
    )


class ParameterUpdate:
    """Changes the parameters of a network on a device along its `direction`.

    The proposed change is the learning rate times the direction, or with momentum times a running
    sum of directions.

    Attributes:
        groups: The groups of parameters, with their rates at the start.
        max_changes: By component number, the bound of the norm of its change; 0 for none.
        parameters: (num_parameters,), which `apply` changes.
    """

    def __init__(self, device_nnet: device.DeviceNnet, *, momentum: float = 0.0) -> None:
        """Records the operations.

        Args:
            device_nnet: The network, trainable.
            momentum: The factor of the running sum from one minibatch to the next.

        Raises:
            TrainingError: the l2 term of a component is infinite.
        """
        self.groups = parameter_groups(device_nnet.nnet)
        self._current = {group.start: group for group in self.groups}
        self.max_changes: dict[int, float] = {}
        for group in self.groups:
            component = device_nnet.nnet.components[group.component]
            assert isinstance(component, components.UpdatableComponent)
            self.max_changes[group.component] = component.max_change
        self._weight = 0.0
        self._momentum = momentum
        self._sum_rates = {group.start: group.rate for group in self.groups}
        self._factors: dict[int, float] = {}
        self._machine = device_nnet.machine
        self.parameters = device_nnet.parameters
        # On a device, few large kernels are faster.
        largest = max((group.size for group in self.groups), default=1)
        self._block = largest if self._machine.is_device else device.STEP_BLOCK
        self._pieces = [
            (group, piece) for group in self.groups for piece in group.blocks(self._block)
        ]
        self._measuring = device_nnet.tape()
        self._squares = self._machine.zeros((len(self._pieces),), device_nnet.dtype)
        self._direction = self._proposed = device_nnet.direction
        if momentum:
            self._proposed = self._machine.zeros(self._proposed.shape, device_nnet.dtype)
        self._record_measuring(device_nnet)
        self._applying = device_nnet.tape()
        self._record_applying()
        self._forgetting = device_nnet.tape()
        self._forgetting.fill(0.0, self._proposed)

    def _record_measuring(self, device_nnet: device.DeviceNnet) -> None:
        """Records l2 terms, the running sum, and the squared norms of all pieces."""
        tape, parameters = self._measuring, self.parameters
        tape.begin_command()
        factors = {
            group.start: tape.host(partial(self._fill_decay, group), 1)
            for group in self.groups
            if getattr(device_nnet.nnet.components[group.component], "l2_regularize", 0.0)
        }
        groups = self.groups if self._momentum else ()
        kept = {group.start: tape.host(partial(self._fill_kept, group), 1) for group in groups}
        for number, (group, piece) in enumerate(tape.independent(self._pieces)):
            direction, proposed = self._direction[piece], self._proposed[piece]
            if group.start in factors:
                part = tape.scratch(len(direction))
                tape.multiply(parameters[piece], factors[group.start], part)
                tape.add(direction, part, direction)
            if self._momentum:
                tape.multiply(proposed, kept[group.start], proposed)
                tape.add(proposed, direction, proposed)
            row = proposed[None]
            tape.row_dot(row, row, self._squares[number : number + 1])

    def _fill_decay(self, group: ParameterGroup, factor: Array) -> None:
        now = self._current[group.start]
        factor[0] = -now.decay / now.rate * self._weight if now.rate else 0.0

    def _fill_kept(self, group: ParameterGroup, factor: Array) -> None:
        now, before = self._current[group.start].rate, self._sum_rates[group.start]
        factor[0] = self._momentum * (before / now) if now else 0.0

    def set_rates(self, nnet: Nnet) -> None:
        """Takes over the learning rates of a network that differs in nothing else.

        The running sum then stands for the same change as before.
        """
        self._current = {group.start: group for group in parameter_groups(nnet)}

    @property
    def current_groups(self) -> tuple[ParameterGroup, ...]:
        """The groups with their current rates."""
        return tuple(self._current.values())

    @property
    def running_sum(self) -> Array:
        """(num_parameters,), the running sum of directions; (0,) without momentum."""
        if not self._momentum:
            return self._direction[:0]
        self._machine.pull([self._proposed])
        return self._proposed

    @property
    def measured(self) -> list[Array]:
        """The arrays that `measure` changes and that outlive a step."""
        return [self._proposed] if self._momentum else []

    @property
    def sum_rates(self) -> tuple[float, ...]:
        """The factor of the running sum for each group of rates."""
        return tuple(self._sum_rates.values())

    def resume(self, running_sum: Array, sum_rates: Sequence[float]) -> None:
        """Continues from `running_sum` and `sum_rates`.

        Raises:
            SerializationError: they belong to other parameters, or to another momentum.
        """
        if len(sum_rates) != len(self._sum_rates) or running_sum.shape != self.running_sum.shape:
            raise SerializationError(
                f"expected {len(self._sum_rates)} rates and a running sum of the shape "
                f"{self.running_sum.shape}, found {len(sum_rates)} and {running_sum.shape}"
            )
        self._sum_rates = dict(zip(self._sum_rates, sum_rates, strict=True))
        if self._momentum:
            self._proposed[...] = running_sum
            self._machine.push([self._proposed])

    def _record_applying(self) -> None:
        """Records the change of the parameters."""
        tape, parameters = self._applying, self.parameters
        tape.begin_command()
        factors = {
            group.start: tape.host(partial(self._fill_step, group), 1) for group in self.groups
        }
        for group, piece in tape.independent(self._pieces):
            proposed = self._proposed[piece]
            part = tape.scratch(len(proposed))
            tape.multiply(proposed, factors[group.start], part)
            tape.add(parameters[piece], part, parameters[piece])

    def _fill_step(self, group: ParameterGroup, factor: Array) -> None:
        factor[0] = self._current[group.start].rate * self._factors[group.component]

    def measure(self, l2_weight: float) -> dict[int, float]:
        """Computes the change that the direction and the l2 terms propose.

        Args:
            l2_weight: Multiplies the l2 terms: the number of sequences times the factor of the
                options.

        Returns:
            By component number, the squared norm of the proposed change.
        """
        self._weight = l2_weight
        self._measuring.run()
        self._machine.pull([self._squares])
        sums = dict.fromkeys(self.max_changes, 0.0)
        for (group, _), square in zip(self._pieces, self._squares.tolist(), strict=True):
            sums[group.component] += self._current[group.start].rate ** 2 * square
        return sums

    def apply(self, change: LimitedChange) -> None:
        """Makes the change that `measure` has found, if it is finite; else forgets it."""
        self._sum_rates = {start: group.rate for start, group in self._current.items()}
        if not change.is_finite:
            self._forgetting.run()
            return
        self._factors = change.factors
        self._applying.run()


FASTEST_SPEED = 0.125
"""The speed nu at which the step converges quadratically near its goal."""

SPREADS = (1.02, 1.1)
"""The step is halved for each of these that the spread of the eigenvalues exceeds."""

SMALLEST_TRACE = 1.0e-15
"""A matrix with less belongs to an unused component, and does not change."""


def record_orthonormal_step(tape: Tape, matrix: Array, scale: float) -> None:
    """Records a step that makes the rows of a matrix more orthonormal, or its columns if fewer.

    With P = M M^T and Q = P - s^2 I, it is a step of gradient descent on tr(Q Q^T):

        M += -4 nu / s^2 Q M

    Args:
        tape: Records the arithmetic.
        matrix: (rows, cols), changed in place.
        scale: The wanted norm s of rows. If negative, s^2 = tr(P^2) / tr(P), which makes the step
            orthogonal to M. nu is smaller while the eigenvalues of P are far apart: tr(P^2) rows /
            tr(P)^2 measures that, and is 1 if they are equal.
    """
    tape.begin_command()
    m = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    rows, columns = m.shape
    p, unit = tape.scratch(rows, rows), np.eye(rows, dtype=tape.dtype)
    tape.matmul(m, m.T, p)
    square, factor = tape.scratch(1, 1), tape.scratch(1, 1)
    if scale < 0.0:
        _record_floating_scale(tape, p, unit, square, factor)
    else:
        tape.fill(scale**2, square)
        tape.fill(-4.0 * FASTEST_SPEED / scale**2, factor)
    diagonal = tape.scratch(rows, rows)
    tape.multiply(unit, square, diagonal)
    tape.subtract(p, diagonal, p)
    tape.multiply(p, factor, p)
    step = tape.scratch(rows, columns)
    tape.matmul(p, m, step)
    tape.add(m, step, m)


def _record_floating_scale(tape: Tape, p: Array, unit: Array, square: Array, factor: Array) -> None:
    """Records square = tr(P^2) / tr(P) and factor = -4 nu / square; 0 for a vanishing matrix."""
    rows = len(p)
    trace, spread, halved = (tape.scratch(1, 1) for _ in range(3))
    exceeds = tape.scratch(1, 1, dtype=np.bool_)
    _record_dot(tape, p, unit, trace)
    _record_dot(tape, p, p, square)
    tape.greater(trace, SMALLEST_TRACE, exceeds)
    tape.copy(exceeds, factor)
    tape.maximum(trace, SMALLEST_TRACE, trace)
    tape.divide(square, trace, square)
    tape.divide(square, trace, spread)
    tape.multiply(spread, float(rows), spread)
    tape.maximum(square, SMALLEST_TRACE, square)
    tape.multiply(factor, -4.0 * FASTEST_SPEED, factor)
    tape.divide(factor, square, factor)
    for bound in SPREADS:
        tape.greater(spread, bound, exceeds)
        tape.copy(exceeds, halved)
        tape.multiply(halved, -0.5, halved)
        tape.add(halved, 1.0, halved)
        tape.multiply(factor, halved, factor)


def _record_dot(tape: Tape, a: Array, b: Array, out: Array) -> None:
    """Records out = sum of a * b over all elements; out: (1, 1)."""
    sums = tape.scratch(len(a))
    tape.row_dot(a, b, sums)
    tape.row_sum(sums[None], out)


def orthonormal_steps(device_nnet: device.DeviceNnet) -> dict[int, Tape]:
    """By number of each component with an orthonormal constraint, the step towards it."""
    tapes: dict[int, Tape] = {}
    for number, component in enumerate(device_nnet.nnet.components):
        scale = getattr(component, "orthonormal_constraint", 0.0)
        if scale:
            # The first parameter is the matrix: linear_params, of a LinearComponent params.
            matrix = next(iter(device_nnet.kernel(number).store.parameters.values()))
            tapes[number] = device_nnet.tape()
            record_orthonormal_step(tapes[number], matrix, scale)
    return tapes
