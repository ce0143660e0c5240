"""The denominator of LF-MMI: the probability of all phone sequences, by forward and backward sums.

As in Povey et al., "Purely sequence-trained neural networks for ASR based on lattice-free MMI"
(Interspeech 2016): a hidden Markov model of all phone sequences. It starts in each state with the
average probability of that state, may end in any state, and in each frame may leave its state for
any other (the leaky HMM). Sums run over probabilities, not their logarithms, and are scaled in each
frame.

With B(t) the products of initial and leaky probabilities, p(a) the probability of arc a, and x(t)
the exponential of the output:

    alpha(0) = initial probabilities          alpha'(t) = alpha(t) + leaky * initial * sum(alpha(t))
    alpha(t + 1, j) = sum over arcs a from i to j:  alpha'(t, i) p(a) x(t, pdf(a)) / scale(t)

Arcs that lead to the same state with the same pdf share x, and an HMM of a 'chain' model has few
such pairs for each state. So a frame is one sparse product from states to these pairs, and the
product with x is made on the pairs alone. The backward sums use the transposed product.

All of it runs where the outputs are: with NumPy and SciPy, or with CuPy on a CUDA device.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import attrs
import numpy as np
import numpy.typing as npt

from nnet3_training.chain.fsts.files import read_fst
from nnet3_training.chain.fsts.fst import Fst
from nnet3_training.egs.examples import array_of
from nnet3_training.errors import ExampleError

_HOST = -1


class ArrayModules(NamedTuple):
    """NumPy and SciPy's sparse matrices, or CuPy and its own.

    Attributes:
        arrays: The module of arrays, `numpy` or `cupy`.
        sparse: The module of sparse matrices, `scipy.sparse` or `cupyx.scipy.sparse`; its
            `csr_matrix` takes those of SciPy, and multiplies arrays.
        device: The number of the CUDA device; -1 for the processor.
    """

    arrays: Any
    sparse: Any
    device: int

    @property
    def is_host(self) -> bool:
        """Whether arrays are NumPy's."""
        return self.device == _HOST

    def current(self) -> contextlib.AbstractContextManager[object]:
        """Makes the device the current one within: CuPy works there."""
        if self.is_host:
            return contextlib.nullcontext()
        device: contextlib.AbstractContextManager[object] = self.arrays.cuda.Device(self.device)
        return device

    def put(self, array: npt.NDArray[Any]) -> Any:
        """An array of NumPy as one of the module."""
        return self.arrays.asarray(array)

    def get(self, array: Any) -> npt.NDArray[Any]:
        """An array of the module as one of NumPy; waits for the device."""
        found: npt.NDArray[Any] = array if self.is_host else self.arrays.asnumpy(array)
        return found

    def numbers(self, values: Sequence[Any]) -> list[float]:
        """Arrays of one element, moved together."""
        stacked = self.arrays.stack([value.astype(np.float64) for value in values])
        found: list[float] = self.get(stacked).tolist()
        return found

    def take_rows(self, source: Any, rows: Any, out: Any) -> None:
        """Copies rows of a matrix.

        Args:
            source: (rows, columns).
            rows: (n,) int32, rows of the source.
            out: (n, columns), the destination.
        """
        # With the default mode NumPy checks for missing rows and works on a copy of `out`, so that
        # it can undo its work. CuPy has no modes.
        mode = {"mode": "clip"} if self.is_host else {}
        source.take(rows, axis=0, out=out, **mode)


def modules_of(array: Any) -> ArrayModules:
    """The modules that compute with an array of NumPy or CuPy."""
    if isinstance(array, np.ndarray):
        import scipy.sparse  # takes a while, and only 'chain' training needs it

        return ArrayModules(arrays=np, sparse=scipy.sparse, device=_HOST)
    import cupy
    import cupyx.scipy.sparse

    return ArrayModules(arrays=cupy, sparse=cupyx.scipy.sparse, device=array.device.id)


def float_array(values: Any) -> Any:
    """Values as a C-contiguous array: float64 stays float64, any other type becomes float32.

    Args:
        values: A NumPy array, or values that NumPy can read as one; or an array on a CUDA device
            (CuPy, PyTorch or another library), which stays there as a CuPy array.

    Raises:
        ExampleError: they are not an array of real numbers, or are masked.
    """
    arrays: Any = np
    if hasattr(values, "__cuda_array_interface__"):
        import cupy

        arrays = cupy
        array = arrays.asarray(values)
    else:
        array = array_of(values, "outputs (rows, pdfs)")
    if array.dtype.kind not in "fiub":
        raise ExampleError(f"expected outputs of real numbers, found {array.dtype}")
    wanted = np.float64 if array.dtype == np.float64 else np.float32
    return arrays.ascontiguousarray(array, dtype=wanted)


OUTPUT_LIMIT = 30.0
"""Outputs are cut to this size before their exponential is taken."""
_ITERATIONS = 100
"""Frames over which the probabilities of states are averaged."""
_BLOCK = 16
"""Number of sequences that the processor computes at a time, so that the data of a frame stays in
the cache. A device computes all of them at once."""


class _Products(NamedTuple):
    """The sparse products of a frame, in one precision, on one device.

    Attributes:
        pairs_from_states: (pairs, states), probabilities of arcs.
        states_from_pairs: Its transpose.
        states_of_pairs: (states, pairs), 1 where a pair leads to a state.
        pdfs_of_pairs: (pdfs, pairs), 1 where a pair has a pdf.
        destinations: (pairs,) int32, the state of each pair.
        pdfs: (pairs,) int32, the pdf of each.
        initial: (states, 1), the initial probabilities.
    """

    pairs_from_states: Any
    states_from_pairs: Any
    states_of_pairs: Any
    pdfs_of_pairs: Any
    destinations: Any
    pdfs: Any
    initial: Any


class DenominatorGraph:
    """The hidden Markov model of all phone sequences, made from den.fst.

    It owns its working memory, so threads that share it take turns.

    Attributes:
        num_states: Number of its states.
        num_arcs: Number of its arcs.
        num_pdfs: Number of pdfs, the columns of the output.
        initial_probs: (states,) float32, the probability of each state on average over the first
            100 frames from the start state, with arcs and final costs scaled to sum to one.
    """

    def __init__(self, fst: Fst | str | os.PathLike[str], num_pdfs: int) -> None:
        """Takes the probabilities of arcs from an FST.

        Args:
            fst: den.fst, or its path; labels are 1 + the number of a pdf.
            num_pdfs: Number of pdfs.

        Raises:
            ExampleError: the number of pdfs is not a positive integer; the FST is empty, has a
                label that is not a pdf, or the probabilities of a state sum to 0 or less, or to 100
                or more.
            FileError, ModelFileError: it cannot be read.
        """
        if not isinstance(num_pdfs, int | np.integer) or num_pdfs < 1:
            raise ExampleError(f"num_pdfs must be an integer >= 1 (got {num_pdfs!r})")
        fst = fst if isinstance(fst, Fst) else read_fst(fst)
        if not fst.num_states or not fst.num_arcs:
            raise ExampleError("the denominator FST has no arcs")
        wrong = np.flatnonzero((fst.labels < 1) | (fst.labels > num_pdfs))
        if wrong.size:
            raise ExampleError(
                f"the denominator FST has the label {fst.labels[wrong[0]]} on an arc from state "
                f"{fst.sources[wrong[0]]}; expected 1 to {num_pdfs}, one for each column of the "
                "output"
            )
        self.num_states, self.num_arcs, self.num_pdfs = fst.num_states, fst.num_arcs, num_pdfs
        probs = _probabilities(fst.costs)
        self.initial_probs = _initial_probs(fst, probs)
        pairs, pair_of_arc = np.unique(
            fst.destinations.astype(np.int64) * num_pdfs + (fst.labels - 1), return_inverse=True
        )
        self._destinations = (pairs // num_pdfs).astype(np.int32)
        self._pdfs = (pairs % num_pdfs).astype(np.int32)
        self._arcs = probs, pair_of_arc.astype(np.int32), fst.sources.astype(np.int32)
        # By device and precision.
        self._made: dict[tuple[int, np.dtype[Any]], _Products] = {}
        self._memory: dict[tuple[int, np.dtype[Any]], Any] = {}
        self._turn = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        """All but the lock, which cannot be copied or sent, and what is made when it is used."""
        made = ("_turn", "_made", "_memory")
        return {name: value for name, value in vars(self).items() if name not in made}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _turn=threading.Lock(), _made={}, _memory={})

    def __repr__(self) -> str:
        """Its size."""
        size = f"{self.num_states} states, {self.num_arcs} arcs, {self.num_pdfs} pdfs"
        return f"<DenominatorGraph: {size}>"

    @property
    def num_pairs(self) -> int:
        """Number of pairs of a state and a pdf that leads to it."""
        return len(self._pdfs)

    def _products(self, modules: ArrayModules, dtype: np.dtype[Any]) -> _Products:
        """The products for a device and a precision, made at their first use."""
        key = modules.device, dtype
        if key in self._made:
            return self._made[key]
        from scipy.sparse import csr_array  # takes a while, and only 'chain' training needs it

        probs, pair_of_arc, sources = self._arcs
        pairs, states = self.num_pairs, self.num_states
        forward = csr_array((probs, (pair_of_arc, sources)), shape=(pairs, states)).astype(dtype)
        numbers, ones = np.arange(pairs, dtype=np.int32), np.ones(pairs, dtype=dtype)
        entered = csr_array((ones, (self._destinations, numbers)), (states, pairs))
        read = csr_array((ones, (self._pdfs, numbers)), (self.num_pdfs, pairs))
        matrix = modules.sparse.csr_matrix
        self._made[key] = _Products(
            pairs_from_states=matrix(forward),
            states_from_pairs=matrix(forward.T.tocsr()),
            states_of_pairs=matrix(entered),
            pdfs_of_pairs=matrix(read),
            destinations=modules.put(self._destinations),
            pdfs=modules.put(self._pdfs),
            initial=modules.put(self.initial_probs[:, None].astype(dtype)),
        )
        return self._made[key]

    def forward_backward(
        self, output: Any, num_sequences: int, leaky: float, *, derivative: bool = True
    ) -> DenominatorResult:
        """Computes the log-probability of all sequences, and its derivative.

        Args:
            output: (frames * sequences, pdfs) float32 or float64, the rows of a frame side by side,
                of NumPy or CuPy; the precision is that of the computation.
            num_sequences: Number of sequences.
            leaky: Kaldi's leaky-hmm-coefficient.
            derivative: Whether the derivative is wanted.
        """
        modules = modules_of(output)
        frames = output.reshape(-1, num_sequences, self.num_pdfs)
        size = _BLOCK if modules.is_host else num_sequences
        found: list[Any] = []
        # `is_sound` tells whether results are finite. `numbers` waits for a device, which works in
        # the memory that threads share.
        with self._turn, np.errstate(all="ignore"):
            result = modules.arrays.empty_like(frames) if derivative else None
            products = self._products(modules, output.dtype)
            for begin in range(0, num_sequences, size):
                block = slice(begin, min(begin + size, num_sequences))
                part = None if result is None else result[:, block]
                found += self._block(modules, products, frames[:, block], leaky, part)
            numbers = modules.numbers(found)
        total = sum(numbers[::2])
        return DenominatorResult(
            log_prob=total,
            derivative=None if result is None else result.reshape(output.shape),
            is_sound=all(numbers[1::2]) and math.isfinite(total),
        )

    def _block(
        self, modules: ArrayModules, products: _Products, output: Any, leaky: float, result: Any
    ) -> tuple[Any, Any]:
        """The forward and backward sums of a block of sequences; fills `result`, if given.

        Returns:
            The sum of log-probabilities, and whether posteriors of each frame sum to one. Both are
            arrays of one element, so that the processor does not wait for a device.
        """
        xp = modules.arrays
        num_frames, num_sequences, _ = output.shape
        initial, ones = products.initial, xp.ones(self.num_states, dtype=output.dtype)
        # exponentials[t] is (pdfs, sequences), so that rows of it can be taken.
        exponentials = xp.exp(xp.clip(output, -OUTPUT_LIMIT, OUTPUT_LIMIT).transpose(0, 2, 1))
        exponentials = xp.ascontiguousarray(exponentials)
        entering, factors, weighted, leaks = self._workspace(modules, output)
        alpha = xp.repeat(initial, num_sequences, axis=1)
        scales = xp.empty((num_frames, num_sequences), dtype=output.dtype)
        for frame in range(num_frames + 1):
            scale = ones @ alpha
            xp.multiply(initial, leaky * scale, leaks)
            alpha += leaks
            if frame == num_frames:
                break
            scales[frame] = scale
            entering[frame] = products.pairs_from_states @ alpha
            modules.take_rows(exponentials[frame], products.pdfs, factors)
            xp.multiply(entering[frame], factors, weighted)
            alpha = products.states_of_pairs @ weighted
            alpha /= scale
        totals = ones @ alpha
        log_prob = xp.log(totals.astype(np.float64)).sum()
        log_prob = log_prob + xp.log(scales.astype(np.float64)).sum()
        if result is None:
            return log_prob, xp.isfinite(log_prob)
        beta = xp.repeat((1.0 / totals)[None], self.num_states, axis=0)
        for frame in reversed(range(num_frames)):
            beta += leaky * (initial.T @ beta)
            beta /= scales[frame]
            modules.take_rows(beta, products.destinations, weighted)
            modules.take_rows(exponentials[frame], products.pdfs, factors)
            weighted *= factors
            beta = products.states_from_pairs @ weighted
            weighted *= entering[frame]
            result[frame] = (products.pdfs_of_pairs @ weighted).T
        sums = result.sum(axis=2)
        return log_prob, (xp.abs(sums - 1.0) < 0.5).all()

    def _workspace(self, modules: ArrayModules, output: Any) -> tuple[Any, Any, Any, Any]:
        """Working memory: (frames, pairs, n), twice (pairs, n), and (states, n).

        It is reused: with new memory for each minibatch the sums take 1.1 times as long.
        """
        num_frames, num_sequences, _ = output.shape
        rows = (num_frames + 2) * self.num_pairs + self.num_states
        needed = rows * num_sequences
        key = modules.device, output.dtype
        if key not in self._memory or len(self._memory[key]) < needed:
            self._memory[key] = modules.arrays.empty(needed, dtype=output.dtype)
        values = self._memory[key][:needed].reshape(rows, num_sequences)
        first, second, third = ((num_frames + more) * self.num_pairs for more in range(3))
        entering = values[:first].reshape(num_frames, self.num_pairs, num_sequences)
        return entering, values[first:second], values[second:third], values[third:]


@attrs.frozen(eq=False)
class DenominatorResult:
    """The denominator's result for a minibatch.

    Attributes:
        log_prob: The log-probability, summed over sequences.
        derivative: Its derivative by the output: the posteriors of pdfs, in the shape of the output
            and on its device.
        is_sound: Whether the log-probability is finite, and the posteriors of each frame sum to
            one, up to rounding.
    """

    log_prob: float
    derivative: Any
    is_sound: bool


def _probabilities(costs: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """The probabilities of costs; infinite for those far below 0, which sums show."""
    with np.errstate(over="ignore"):
        found: npt.NDArray[np.float64] = np.exp(-costs.astype(np.float64))
    return found


def _initial_probs(fst: Fst, probs: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """The average probability of each state over the first frames."""
    states, sources, destinations = fst.num_states, fst.sources, fst.destinations
    sums = _probabilities(fst.final_costs)
    sums += np.bincount(sources, probs, minlength=states)
    wrong = np.flatnonzero(~((sums > 0.0) & (sums < 100.0)))
    if wrong.size:
        raise ExampleError(
            f"the probabilities of arcs and end of state {wrong[0]} of the denominator FST sum to "
            f"{sums[wrong[0]]:g}; expected more than 0, and below 100"
        )
    scaled = probs / sums[sources]
    current: npt.NDArray[np.float64] = np.zeros(states)
    current[fst.start] = 1.0
    average = np.zeros(states)
    for _ in range(_ITERATIONS):
        average += current / _ITERATIONS
        moved = current[sources] * scaled
        current = np.bincount(destinations, moved, minlength=states).astype(np.float64)
        total = current.sum()
        if not total > 0.0:
            raise ExampleError("the denominator FST ends: no arc leaves the states it can be in")
        current /= total
    return average.astype(np.float32)
