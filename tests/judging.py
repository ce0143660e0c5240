"""Compares the results of NnetComputer for a case with their definition.

The definition: nnet3-runtime-reference runs the compiler's computation in float64. Random choices
are the same on both sides: the definition uses the masks that NnetComputer drew, and both take
statistics of every minibatch.
"""

from __future__ import annotations

import copy
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any
from unittest import mock

import attrs
import numpy as np
from judged_cases import LOSSLESS, Case, parameter_names
from limited_times import limited_times
from nnet3_computation import NnetComputation
from nnet3_descriptors import Component, Nnet
from nnet3_descriptors.components import (
    AffineComponent,
    ComponentProperties,
    NaturalGradientAffineComponent,
    NormalizeComponent,
    TdnnComponent,
    TimeHeightConvolutionComponent,
)
from nnet3_optimizer import check_computation
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
from nnet3_runtime_cuda.cuda import Platform
from nnet3_runtime_cuda.kernels import Kernel, Propagation, base
from nnet3_runtime_cuda.kernels.masks import (
    DropoutKernel,
    DropoutMaskKernel,
    GeneralDropoutKernel,
    SpecAugmentTimeMaskKernel,
)
from nnet3_runtime_reference import Draws, Formula, ReferenceComputer, commands, formula_of
from nnet3_runtime_reference.formulas import Call, sequences
from nnet3_runtime_reference.formulas.nonlinear import Normalize
from other_requests import results_of_other_requests
from small_thresholds import thresholds

Results = dict[str, np.ndarray]
Device = str | Platform
Masks = dict[str, list[np.ndarray]]

MASKED = (DropoutKernel, DropoutMaskKernel, GeneralDropoutKernel, SpecAugmentTimeMaskKernel)

FP32, FP64, BF16 = "fp32", "fp64", "bf16"


@attrs.frozen
class Tolerances:
    """Largest differences, relative to the largest value.

    Attributes:
        outputs: For outputs.
        derivatives: For derivatives, gradients and statistics.
        smallest: The least value that differences are relative to. Given values are of order one,
            and a sum of zero has the same rounding errors as other sums.
        smallest_share: If the largest value of an array is less than this share of its terms, only
            rounding errors might be left of its sums; then differences are relative to this share.
    """

    outputs: float
    derivatives: float
    smallest: float
    smallest_share: float = 1e-3

    def scaled(self, factor: float) -> Tolerances:
        """These tolerances times a factor."""
        return attrs.evolve(
            self, outputs=factor * self.outputs, derivatives=factor * self.derivatives
        )


TOLERANCES = {
    FP32: Tolerances(1e-5, 1e-4, 1e-2),
    FP64: Tolerances(1e-8, 2e-6, 1e-2),
    BF16: Tolerances(5e-2, np.inf, 1.0),
}
"""Tolerances by precision. Gradients are float32 also if values are float64. With factors of 8
bits, only large errors in outputs can be detected; the choice of rectifiers that pass a derivative
cannot be compared at all."""

OF_BACKPROP = re.compile(r"\.(oderiv|num_dims)_")
"""Statistics that a Backprop stores: those of derivatives and of self-repair."""

OF_REPAIR = re.compile(rf"{OF_BACKPROP.pattern}|^(derivative|gradient) ")
"""These, and results that self-repair changes."""

LOSSY = 10.0
"""The factor for tolerances of derivatives where values were compressed with loss: a value between
two 16-bit values can be rounded to either."""

ILL_CONDITIONED = 0.1
"""A case needs more digits if the definition itself differs by more than this share of the
tolerance, between float32 and float64, or when the results of components are rounded at random."""

EXACT = Tolerances(1e-9, 1e-4, 1e-2)
"""Tolerances between computations of the definition in float64. It gives gradients in float32, and
those of parts may cancel."""

CHANGES = 10
"""How often the definition runs with random rounding. A sign that rounding decides, as that of a
silent unit, is the same in all of them in one case of a thousand."""

JOINING_FRAMES = (
    AffineComponent,
    NaturalGradientAffineComponent,
    TdnnComponent,
    TimeHeightConvolutionComponent,
)
"""Components that may compute several frames by fewer products (docs/runtime.md)."""

LOSSY_ERRORS, LOSSY_CHANGES = 4.0, 20
"""The size of the changes, and how often, with values that are compressed with loss. A value near
the middle between two 16-bit values is rounded to either, as the last two bits of a tanh decide."""


@attrs.frozen
class Verdict:
    """The verdict on a case.

    Attributes:
        problem: What disagrees, on lines; "" if nothing does.
        is_skipped: Nothing is known: results disagree, but double precision, the device, or
            bfloat16 has too few digits for this case; or the device draws masks that nobody knows.
    """

    problem: str = ""
    is_skipped: bool = False


# ---- running ----


def _decides(probability: float) -> bool:
    """Replaces random decisions: every minibatch counts for statistics, and none is left out."""
    return probability >= 0.5


class _SameDraws(Draws):
    """Returns the masks that NnetComputer drew, and always decides for statistics."""

    def __init__(self, masks: Masks) -> None:
        super().__init__()
        self._left = {name: iter(arrays) for name, arrays in masks.items()}

    def chance(self, component: str, probability: float) -> bool:
        return _decides(probability)

    def mask(self, component: str, shape: tuple[int, int], make: Any) -> np.ndarray:
        found = next(self._left[component])
        assert found.shape[0] == shape[0], f"{component}: {found.shape}, expected {shape}"
        return found[:, : shape[1]]


def run(computer: NnetComputer | ReferenceComputer, case: Case) -> Results:
    """Outputs, derivatives of inputs and parameters, and statistics of a run."""
    found = case.outputs_of(computer)
    if case.has_backward_pass:
        found |= case.derivatives_of(computer, case.output_derivs())
    if case.request.store_component_stats:
        found |= statistics(computer.nnet)
    if case.has_limits:
        # A Backprop may run for fewer rows, which self-repair and its statistics count.
        left_out = OF_REPAIR if "self-repair" in case.kinds else OF_BACKPROP
        found = {name: array for name, array in found.items() if not left_out.search(name)}
    return found


def statistics(nnet: Nnet) -> Results:
    """The statistics that StoreStats and Backprop have stored, arrays and numbers."""
    found: Results = {}
    for name, component in zip(nnet.component_names, nnet.components, strict=True):
        if component.properties & ComponentProperties.STORES_STATS:
            for field in attrs.fields(type(component)):
                value = getattr(component, field.name)
                if isinstance(value, float | np.ndarray):
                    found[f"statistics {name}.{field.name}"] = np.atleast_1d(value)
    return found


def run_definition(
    case: Case, computation: NnetComputation, masks: Masks, dtype: type = np.float64
) -> Results:
    """The results of the definition; the limits of times are part of an optimized computation."""
    is_limited = case.has_limits and computation is case.compiled
    with limited_times(case) if is_limited else nullcontext():
        return run(ReferenceComputer(case.nnet, computation, dtype, draws=_SameDraws(masks)), case)


def run_runtime(
    case: Case,
    threads: int,
    masks: Masks | None = None,
    precision: str = FP32,
    device: Device = "cpu",
) -> Results:
    """The results of NnetComputer, for the optimized computation.

    Args:
        case: The case.
        threads: Number of threads.
        masks: Takes the drawn masks, by component; on the processor only.
        precision: FP32, FP64 for values of double precision, or BF16 for products with factors
            rounded to bfloat16.
        device: The device.
    """
    device_nnet = DeviceNnet(
        case.nnet,
        device=device,
        seed=case.seed,
        threads=threads,
        precision=BF16 if precision == BF16 else FP32,
        dtype=np.float64 if precision == FP64 else np.float32,
        trainable=precision != BF16 and (case.seed + threads) % 3 > 0,
    )
    with _deterministic(case.nnet, masks), thresholds(case.seed + threads):
        computer = NnetComputer(device_nnet, case.optimized)
        remembers = case.request.store_component_stats or "self-repair" in case.kinds
        if case.seed % 2 and not case.is_random and not remembers:
            # Memory left by another run must not matter, except for masks and statistics.
            _run_with_other_values(computer, case)
        return run(computer, case)


def _run_with_other_values(computer: NnetComputer, case: Case) -> None:
    for inputs in case.inputs():
        computer.forward({name: 3.0 * array + 1.0 for name, array in inputs.items()})
    if case.has_backward_pass:
        derivs = case.output_derivs()
        computer.backward({name: 2.0 * array + 1.0 for name, array in derivs.items()})
    computer.reset()


@contextmanager
def _deterministic(nnet: Nnet, masks: Masks | None) -> Iterator[None]:
    """Makes kernels always record statistics, and report the masks that they draw."""
    named = zip(nnet.component_names, nnet.components, strict=True)
    names = {id(component): name for name, component in named}
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(base.Kernel, "chance", lambda _, p: _decides(p)))
        for kernel in MASKED if masks is not None else ():
            telling = _telling(kernel.propagate, names, masks)
            stack.enter_context(mock.patch.object(kernel, "propagate", telling))
        yield


def _telling(
    propagate: Callable[[Kernel, Propagation], None], names: dict[int, str], masks: Masks
) -> Callable[[Kernel, Propagation], None]:
    """The forward pass of a component, which also adds its drawn mask to `masks`."""

    def telling(kernel: Kernel, p: Propagation) -> None:
        before = np.empty(p.x.shape, p.x.dtype)
        p.tape.record(partial(np.copyto, before, p.x), reads=(p.x,), writes=(before,))
        propagate(kernel, p)
        own = masks.setdefault(names[id(kernel.component)], [])
        arrays = [before, p.y, *(p.memo or {}).values()]

        def tell() -> None:
            own.append(_mask(kernel, p, before))

        p.tape.record(tell, reads=arrays, writes=(before,))

    return telling


def _is_per_frame(kernel: Kernel) -> bool:
    return isinstance(kernel, DropoutKernel) and kernel.component.dropout_per_frame


def _mask(kernel: Kernel, p: Propagation, x: np.ndarray) -> np.ndarray:
    """The mask by which a forward pass has multiplied; 1 where the input is 0."""
    if isinstance(kernel, DropoutMaskKernel):
        return np.array(p.y)
    if p.memo and "mask" in p.memo:
        return np.array(p.memo["mask"])
    ratio = np.ones_like(x)
    np.divide(p.y, x, out=ratio, where=x != 0.0)
    if isinstance(kernel, SpecAugmentTimeMaskKernel) or _is_per_frame(kernel):
        return np.repeat(ratio.min(axis=1, keepdims=True), ratio.shape[1], axis=1)
    if not isinstance(kernel, GeneralDropoutKernel):
        return ratio
    dim = kernel.component.block_dim
    mask = np.ones((p.indexes.num_mask_rows, dim))
    told = x.reshape(-1, dim) != 0.0
    for row, values, is_told in zip(p.indexes.indexes, ratio.reshape(-1, dim), told, strict=True):
        mask[row, is_told] = values[is_told]
    return mask


# ---- comparing ----


def judge(case: Case, precision: str = FP32, device: Device = "cpu") -> Verdict:
    """Optimizes, checks and runs a case, and compares the results with the definition.

    Args:
        case: The case.
        precision: FP32; FP64, which also judges almost all cases for which float32 has too few
            digits; or BF16, which compares outputs only, and coarsely.
        device: The device whose results are compared; on the processor, those of one thread and of
            several. A device draws masks of its own, so cases with masks are skipped there.
    """
    if case.is_random and device != "cpu":
        return Verdict(is_skipped=True)
    options = case.options
    check_computation(case.nnet, case.optimized, check_unused=options.remove_dead_commands)
    masks: Masks = {}
    several = 2 + case.seed % 4
    if device == "cpu":
        found = {
            "1 thread": run_runtime(case, 1, masks, precision),
            f"{several} threads": run_runtime(case, several, None, precision),
        }
    else:
        found = {"the device": run_runtime(case, 1, None, precision, device)}
    expected = run_definition(case, case.compiled, masks)
    others = results_of_other_requests(case)
    if different := differences(others, {name: expected[name] for name in others}, EXACT):
        lines = [f"{line} (of other requests)" for line in different.values()]
        return Verdict("\n".join([*lines, "wrong is the compiled computation"]))
    tolerances = TOLERANCES[precision]
    if is_lossy(case):
        # The loss by compression is part of the definition.
        tolerances = attrs.evolve(tolerances, derivatives=LOSSY * tolerances.derivatives)
        lossy = run_definition(case, case.optimized, masks)
        expected = {k: v if k.startswith("output ") else lossy[k] for k, v in expected.items()}
    problems = {name: differences(each, expected, tolerances) for name, each in found.items()}
    if not any(problems.values()):
        return Verdict()
    names = {name for each in problems.values() for name in each}
    if names <= ill_conditioned(case, masks, precision):
        has_double = precision == FP32 and device == "cpu"
        return judge(case, FP64) if has_double else Verdict(is_skipped=True)
    lines = [f"{line} ({of})" for of, each in problems.items() for line in each.values()]
    blamed = differences(run_definition(case, case.optimized, masks), expected, tolerances)
    blame = "the optimized computation" if blamed else "what runs it"
    return Verdict("\n".join([*lines, f"wrong is {blame}"]))


def is_lossy(case: Case) -> bool:
    """Whether the backward pass reads values that were compressed to 16 bits."""
    return case.options.memory_compression_level > LOSSLESS and case.has_backward_pass


def ill_conditioned(
    case: Case, masks: Masks, precision: str = FP32, tolerances: Tolerances | None = None
) -> Collection[str]:
    """The results that a case has too few digits for in a precision, by the definition itself.

    The definition runs in float32. As its rounding errors can be small by chance, it also runs in
    float64 with random changes of the size of float32's rounding. If float32 would overflow, no
    result can be judged. For FP64 the changes have the size of float64's rounding: a loop can make
    them as large as its outputs in thirty rounds.

    Args:
        case: The case.
        masks: The drawn masks, by component.
        precision: FP32, FP64 or BF16.
        tolerances: The tolerances of the comparison; None for those of the precision.
    """
    computation = case.optimized if is_lossy(case) else case.compiled
    exact = run_definition(case, computation, masks)
    if precision != BF16:
        dtype, others = np.float64, []
        if precision == FP32:
            dtype, others = np.float32, [run_definition(case, computation, masks, np.float32)]
        rounding = _Rounding(case, dtype, LOSSY_ERRORS if is_lossy(case) else 1.0)
        changes = LOSSY_CHANGES if is_lossy(case) else CHANGES
        try:
            with (
                mock.patch.object(commands, "formula_of", rounding.formula_of),
                mock.patch.object(sequences, "formula_of", rounding.formula_of),
            ):
                others += [run_definition(case, computation, masks) for _ in range(changes)]
        except OverflowError:
            return exact.keys()
    else:
        others = [run_definition(_with_rounded_parameters(case), computation, masks)]
    share = (tolerances or TOLERANCES[precision]).scaled(ILL_CONDITIONED)
    return {name for other in others for name in differences(other, exact, share)}


class _Rounding:
    """Formulas whose results are changed at random, by the rounding error of a dtype.

    Results are values, derivatives, and the part of a gradient that one command adds: such parts
    can cancel, and be rounded in different orders. Derivatives and gradients are sums of terms that
    are linear in the output's derivative. Where terms cancel, the rounding error is a share of the
    terms and not of the sum. With random signs of the output's derivative the terms do not cancel,
    so the sum then shows their size.

    A layer may compute several frames at once by fewer products. The rounding errors of a frame are
    then those of the largest one, also if it is silent itself. In networks that normalize it is
    not allowed to.
    """

    def __init__(self, case: Case, dtype: type, errors: float) -> None:
        self._rng = np.random.default_rng([case.seed, 2])
        self._eps, self._largest = errors * np.finfo(dtype).eps, np.finfo(dtype).max
        self._joins_frames = NormalizeComponent.__name__ not in case.config

    def formula_of(self, component: Component) -> Formula:
        """The formula of a component, with its results changed."""
        exact = formula_of(component)
        changed = copy.copy(exact)
        joins_frames = self._joins_frames and isinstance(component, JOINING_FRAMES)

        def forward(call: Call) -> np.ndarray:
            values = exact.forward(call)
            largest = np.abs(values).max(axis=0, initial=0.0) if joins_frames else 0.0
            return self._changed(values, largest)

        def backward(call: Call) -> np.ndarray:
            terms = exact.backward(self._with_signs(call))
            if isinstance(exact, Normalize):
                terms = np.maximum(np.abs(terms), _terms_of_normalization(exact, call))
            return self._changed(exact.backward(call), terms)

        def gradient(call: Call) -> Results:
            terms = exact.gradient(self._with_signs(call))
            return {
                name: self._changed(part, terms[name])
                for name, part in exact.gradient(call).items()
            }

        vars(changed).update(forward=forward, backward=backward, gradient=gradient)
        return changed

    def _with_signs(self, call: Call) -> Call:
        return attrs.evolve(call, dy=call.dy * self._rng.choice([-1.0, 1.0], call.dy.shape))

    def _changed(self, values: np.ndarray, terms: np.ndarray | float = 0.0) -> np.ndarray:
        if (np.abs(values) > self._largest).any():
            raise OverflowError
        error = self._eps * np.maximum(np.abs(values), np.abs(terms))
        changed: np.ndarray = values + error * self._rng.uniform(-0.5, 0.5, values.shape)
        return changed


def _terms_of_normalization(exact: Normalize, call: Call) -> np.ndarray:
    """The size of the first term of dx = dy / r - y (y . dy) / (D target_rms^2 r).

    In a row whose x has one value other than zero, both terms cancel whatever the signs of dy.
    """
    x, square = exact.ratios(call)
    dy = call.dy.reshape(len(x), -1)[:, : x.shape[1]]
    terms: np.ndarray = np.abs(dy) / np.sqrt(square)
    return terms.reshape(call.x.shape)


def _with_rounded_parameters(case: Case) -> Case:
    """The case with parameters of 8 bits of precision."""
    arrays = case.nnet.state_dict()
    for name in parameter_names(case.nnet):
        mantissa, exponent = np.frexp(arrays[name])
        arrays[name] = np.ldexp(np.rint(mantissa * 256) / 256, exponent).astype(np.float32)
    return attrs.evolve(case, nnet=case.nnet.with_state_dict(arrays))


def differences(found: Results, expected: Results, tolerances: Tolerances) -> dict[str, str]:
    """A line of text for each result that differs too much."""
    if found.keys() != expected.keys():
        names = sorted(found.keys() ^ expected.keys())
        return {"names": f"found or expected alone: {', '.join(names)}"}
    scales: defaultdict[str, float] = defaultdict(float)
    for name, array in expected.items():
        kind = name.partition(" ")[0]
        scales[kind] = max(scales[kind], float(np.abs(array).max(initial=0.0)))
    lines = {}
    for name, array in expected.items():
        kind = name.partition(" ")[0]
        tolerance = tolerances.outputs if kind == "output" else tolerances.derivatives
        scale = max(float(np.abs(array).max(initial=0.0)), tolerances.smallest_share * scales[kind])
        scale = max(scale, tolerances.smallest)
        if found[name].shape != array.shape:
            lines[name] = f"{name} has shape {found[name].shape}, expected {array.shape}"
        elif not np.abs(found[name] - array).max(initial=0.0) <= tolerance * scale:
            error = np.abs(found[name] - array).max() / scale
            lines[name] = f"{name} differs by {error:.1e} of its largest value"
    return lines
