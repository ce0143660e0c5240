"""The base of all kernels: operands, and the stores of their arrays."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from nnet3_descriptors.components import Component
from nnet3_descriptors.files import maps_of

from nnet3_runtime_cuda.operations import Array, Tape
from nnet3_runtime_cuda.operations.gradients import FisherEstimate, Sides, TimeSplice
from nnet3_runtime_cuda.operations.panels import Panels

_T = TypeVar("_T")

CACHE_LINE = 64
"""Bytes that processors read from memory at a time."""


Memo = dict[str, Array]
"""The arrays, by name, that the forward pass of a component stores for its backward pass.

One object serves one memo number of a computation; it is filled when Propagate is lowered and read
when StoreStats and Backprop are."""


class Propagation(NamedTuple):
    """The operands of a Propagate command.

    Attributes:
        tape: Records the arithmetic.
        x: Input, (rows in, input_dim).
        y: Output, (rows out, output_dim); the same array as x if the component may work in place.
        add: Whether to add the result to the values of y (only for components that add).
        indexes: The precomputed indexes, of the type that the component makes; or None.
        memo: The memo for arrays that Backprop needs, if the component uses a memo and Backprop
            runs.
        skipped: Number of first columns of x that `propagate_known` has taken; only for kernels
            that can split their input.
        known: Their product, with the bias: (rows, output_dim); None if there are none.
        panels: A^T in panels, for the other columns of x; only for the same kernels.
        splice: The rows of which x is made, if x is a splice that makes the kernel faster; x itself
            may then hold anything.
    """

    tape: Tape
    x: Array
    y: Array
    add: bool = False
    indexes: Any = None
    memo: Memo | None = None
    skipped: int = 0
    known: Array | None = None
    panels: Panels | None = None
    splice: TimeSplice | None = None

    def remembered(self, name: str, *shape: int, dtype: npt.DTypeLike | None = None) -> Array:
        """Memory for an array that later commands find in the memo, if there is one."""
        if self.memo is None:
            return self.tape.scratch(*shape, dtype=dtype)
        self.memo[name] = self.tape.persistent(*shape, dtype=dtype)
        return self.memo[name]


class Backpropagation(NamedTuple):
    """The operands of a Backprop command.

    Attributes:
        tape: Records the arithmetic.
        x: Input of the forward pass; only for components that say that they need it.
        y: Output of the forward pass; only for components that say that they need it.
        dy: Derivative of the objective with respect to the output, (rows out, output_dim).
        dx: Derivative with respect to the input, (rows in, input_dim), to be computed; None if it
            is not wanted; the same array as dy if the component may work in place.
        add: Whether to add the result to the values of dx (only for components that add).
        indexes: As in `Propagation`.
        memo: The memo of the forward pass.
        signs: The signs of y, as `Tape.pack_signs` gives them, in place of y, which is not
            set (only for kernels that take them). Their memory may be that of dx.
        update: Whether parameters and statistics are to be updated.
        first: Whether this is the only gradient of this pass, so that it replaces the content of
            the directions (only for kernels that set their gradient).
        skipped: Number of first columns of dx that are left to `backprop_known`; only for kernels
            that can split their input.
        panels: The parameters A in panels, without the skipped columns; only for the same kernels.
        splice: As in `Propagation`.
        dx_splice: The derivative of the rows of which the splice is made, to be set instead of dx,
            which is None then.
    """

    tape: Tape
    x: Array
    y: Array
    dy: Array
    dx: Array | None
    add: bool = False
    indexes: Any = None
    memo: Memo | None = None
    signs: Array | None = None
    update: bool = False
    first: bool = False
    skipped: int = 0
    panels: Panels | None = None
    splice: TimeSplice | None = None
    dx_splice: TimeSplice | None = None


class ComponentStore:
    """The arrays on the device for the kernel of a component.

    Attributes:
        parameters: The trainable parameters by field name; training changes them in place.
        natural_gradient: Backprop computes the natural gradient, where the type has one.
        dtype: Of values and parameters.
        is_fixed: The parameters will not change.
        has_exact_zeros: Outputs must be zero where all inputs are, not a rounding error.
        draw: Draws a random number in [0, 1), for decisions.
        states: The arrays that `state` has returned.
        estimates: The estimates that the kernel uses.
    """

    def __init__(
        self,
        *,
        parameters: dict[str, Array],
        directions: Callable[[], dict[str, Array]],
        natural_gradient: bool,
        rng: Callable[[], np.random.Generator],
        draw: Callable[[], float],
        dtype: np.dtype[Any],
        new_tape: Callable[[], Tape],
        is_fixed: bool = False,
        has_exact_zeros: bool = False,
    ) -> None:
        self.parameters = parameters
        self.states: list[Array] = []
        self.estimates: list[FisherEstimate] = []
        self.is_fixed = is_fixed
        self.has_exact_zeros = has_exact_zeros
        self._kept: dict[tuple[object, ...], Any] = {}
        self._directions = directions
        self.natural_gradient = natural_gradient
        self._rng = rng
        self.draw = draw
        self.dtype = dtype
        self._new_tape = new_tape

    @cached_property
    def rng(self) -> np.random.Generator:
        """The source of masks, made on first use."""
        return self._rng()

    @property
    def forward_is_precise(self) -> bool:
        """Whether the forward pass must round as little as direct sums do.

        In training the outputs decide which rectifiers pass a derivative, so that errors of outputs
        grow in the gradient.
        """
        return not self.is_fixed

    def takes_tiles(self, tape: Tape) -> bool:
        """Whether products may be computed by minimal filtering, which has no exact zeros."""
        return tape.uses_tiles() and not self.has_exact_zeros

    @cached_property
    def directions(self) -> dict[str, Array]:
        """For each parameter an array of the same shape, to which Backprop adds the gradient.

        Their memory is allocated on first use.
        """
        return self._directions()

    def constant(self, values: Array) -> Array:
        """Puts a fixed array of the component on the device."""
        return np.asarray(values, dtype=self.dtype)

    def values(self, name: str, fixed: Array) -> Array:
        """The parameters of that name, or the component's values of a type without parameters."""
        return self.parameters[name] if self.parameters else self.constant(fixed)

    def state(self, values: npt.ArrayLike) -> Array:
        """A float64 array that starts from values, for sums over minibatches."""
        array: Array = np.array(values, dtype=np.float64)
        self.states.append(array)
        return array

    def estimate(self, estimate: FisherEstimate) -> FisherEstimate:
        """Notes that the kernel uses an estimate, which is returned."""
        self.estimates.append(estimate)
        return estimate

    def both_estimates(self, sides: Sides) -> Sides:
        """The same for the estimates of an affine map."""
        self.estimates += sides
        return sides

    def transposed(self, matrix: Array, *, pays: bool) -> Array:
        """The transpose of parameters, or of some columns of them.

        Args:
            matrix: (rows, cols).
            pays: Whether a product is faster with a copy that has the columns of `matrix` as rows;
                one is made, for all products, if the parameters are fixed.

        Returns:
            (cols, rows), a view or a copy.
        """
        # NumPy copies factors that are not aligned for each product, and who reads a file that was
        # cut off ends the process.
        pays = pays or not matrix.flags.aligned or any(maps_of([matrix]))
        if not (self.is_fixed and pays):
            return matrix.T

        def make() -> Array:
            copy = self._rows_apart(*matrix.T.shape)
            copy[...] = matrix.T
            copy.flags.writeable = False
            return copy

        return self.kept(matrix, ("transposed",), make)

    def panels(self, matrix: Array) -> Panels:
        """The transpose of fixed parameters, or of some columns of them, as panels."""
        return self.kept(matrix, ("panels",), lambda: Panels.of(matrix.T))

    def kept(self, matrix: Array, key: tuple[object, ...], make: Callable[[], _T]) -> _T:
        """A value that is made once from fixed parameters, or from some of their columns.

        Args:
            matrix: The parameters.
            key: Distinguishes different values made from the same parameters.
            make: Makes it.
        """
        key = matrix.__array_interface__["data"][0], matrix.shape, *key
        if key not in self._kept:
            self._kept[key] = make()
        kept: _T = self._kept[key]
        return kept

    def fixed_factors(
        self,
        matrix: Array,
        key: tuple[object, ...],
        record: Callable[[Tape], Iterable[Iterable[Array]]],
        *,
        in_panels: bool,
    ) -> list[list[Array | Panels]]:
        """Groups of factors that are computed once from fixed parameters, transposed.

        Args:
            matrix: The parameters.
            key: Everything else that the factors depend on.
            record: Records the operations that make the factors.
            in_panels: Whether they are laid out in panels.
        """
        form = Panels.of if in_panels else np.ascontiguousarray

        def make() -> list[list[Array | Panels]]:
            tape = self._new_tape()
            groups = record(tape)
            tape.run()
            return [[form(factor.T) for factor in group] for group in groups]

        kept: list[list[Array | Panels]] = self.kept(matrix, (*key, form), make)
        return kept

    def _rows_apart(self, rows: int, columns: int) -> Array:
        """An uninitialised (rows, columns) matrix whose rows are an odd number of lines apart.

        Rows at a distance of many lines of the cache, divided by a power of two, share few of its
        sets; products of few rows with such a matrix take a quarter longer.
        """
        line = CACHE_LINE // self.dtype.itemsize
        distance = -(-columns // line)
        distance += 1 - distance % 2
        memory: Array = np.empty((rows, distance * line), dtype=self.dtype)
        return memory[:, :columns]

    def part(self, prefix: str) -> ComponentStore:
        """The store of one part of a composite component; states and estimates are in both."""

        def own(arrays: dict[str, Array]) -> dict[str, Array]:
            return {
                name.removeprefix(prefix): array
                for name, array in arrays.items()
                if name.startswith(prefix)
            }

        store = copy.copy(self)
        vars(store).pop("directions", None)
        store.parameters, store._directions = own(self.parameters), lambda: own(self.directions)
        return store


class Kernel:
    """The arithmetic of one component. Subclasses exist for each component type.

    Attributes:
        component: The component, whose options the arithmetic follows.
        store: Its arrays on the device.
        can_split_input: Whether the output is a sum over the columns of the input (and a bias).
            Then `propagate_known` can compute the part of the first columns, and `backprop_known`
            their derivatives.
        sets_gradient: Whether Backprop can replace the content of the directions, instead of
            adding.
        takes_signs: Whether Backprop needs only the signs of y, and takes them packed.
        parts: The kernels of the parts of a composite component.
    """

    component: Any
    parts: Sequence[Kernel] = ()
    can_split_input: ClassVar[bool] = False
    sets_gradient: bool = False
    takes_signs: ClassVar[bool] = False

    def __init__(self, component: Component, store: ComponentStore) -> None:
        self.component = component
        self.store = store
        self.prepare()

    def prepare(self) -> None:
        """Makes the arrays that all commands share."""

    def follow(self, component: Component) -> None:
        """Takes over the options of a component, for later recordings."""
        self.component = component

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        raise NotImplementedError

    def gains_by_splice(self, tape: Tape, num_rows: int, offsets: Sequence[int]) -> bool:
        """Whether `splice` and `dx_splice` pay for `num_rows` rows at these offsets."""
        return False

    def factor(self, skipped: int) -> Array:
        """The parameters (output_dim, input_dim), without the first columns: a view.

        Only for kernels that can split their input.
        """
        raise NotImplementedError

    def propagate_known(self, tape: Tape, x: Array, out: Array) -> None:
        """Records the product of the first columns of the input, x; see `can_split_input`."""
        raise NotImplementedError

    def backprop_known(self, tape: Tape, dy: Array, out: Array) -> None:
        """Records the derivative of the first columns of the input; see `can_split_input`."""
        raise NotImplementedError

    def backprop(self, b: Backpropagation) -> None:
        """Records the backward pass; without parameters, that is the derivative of the input."""
        if self.store.parameters:
            raise NotImplementedError
        if b.dx is not None:
            self.backprop_input(b, b.dx)

    def backprop_input(self, b: Backpropagation, out: Array) -> None:
        """Records the derivative of the input, of a component without parameters.

        Args:
            b: The backward pass.
            out: Its dx: (rows, input_dim), to be set, or added to.
        """
        raise NotImplementedError

    def store_stats(self, tape: Tape, y: Array, memo: Memo | None) -> None:
        """Records the update of the statistics of activations.

        Args:
            tape: Records the arithmetic.
            y: Output of the forward pass.
            memo: The memo of the forward pass.
        """

    def with_statistics(self) -> Component:
        """The component with the statistics that have been recorded so far."""
        return self.replaced()

    def replaced(self, **values: Any) -> Component:
        """The component with other values of some fields."""
        component: Component = self.component.replace(**values) if values else self.component
        return component

    def natural(self, estimate: _T) -> _T | None:
        """An estimate, if the store and the component, if it has a say, want natural gradients."""
        is_wanted = getattr(self.component, "use_natural_gradient", True)
        return estimate if is_wanted and self.store.natural_gradient else None

    def chance(self, probability: float) -> bool:
        """True with the given probability."""
        return self.store.draw() < probability


def same_array(a: Array | None, b: Array | None) -> bool:
    """Whether two views are of the very same memory."""
    if a is b:
        return True
    if a is None or b is None or a.shape != b.shape:
        return False
    left, right = a.__array_interface__, b.__array_interface__
    return bool(left["data"] == right["data"] and a.strides == b.strides)


def copy_unless_same(tape: Tape, source: Array, out: Array) -> None:
    """Records out = source, unless they are the very same memory."""
    if not same_array(source, out):
        tape.copy(source, out)


def column_blocks(a: Array, dim: int) -> list[Array]:
    """The blocks of dim columns, side by side in a matrix: views."""
    return [a[:, k : k + dim] for k in range(0, a.shape[1], dim)]


def as_blocks(a: Array, dim: int) -> Array:
    """A view of (rows, k dim) as rows of dim columns: (rows k, dim), or (rows, k, dim).

    The second form is for an `a` with gaps between its rows.
    """
    rows, cols = a.shape
    if cols == dim:
        return a
    if a.flags.c_contiguous:
        return a.reshape(rows * (cols // dim), dim)
    return a.reshape(rows, cols // dim, dim)


def contiguous(tape: Tape, a: Array) -> Array:
    """An array, or a copy in scratch memory if its elements lie apart."""
    if a.flags.c_contiguous:
        return a
    copy = tape.scratch(*a.shape)
    tape.copy(a, copy)
    return copy


def flat_blocks(tape: Tape, a: Array, dim: int) -> Array:
    """(rows, k dim) as (rows k, dim), copied to scratch memory if there is no such view."""
    return a if a.shape[1] == dim else as_blocks(contiguous(tape, a), dim)


def same_blocks(a: Array, b: Array, dim: int) -> tuple[Array, Array]:
    """Views of two matrices of one shape by `as_blocks`, of one shape too."""
    blocks = as_blocks(a, dim), as_blocks(b, dim)
    if blocks[0].ndim == blocks[1].ndim:
        return blocks
    rows, cols = a.shape
    return a.reshape(rows, cols // dim, dim), b.reshape(rows, cols // dim, dim)
