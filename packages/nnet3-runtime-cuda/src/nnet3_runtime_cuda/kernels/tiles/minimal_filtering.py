"""Minimal filtering: filters with few taps, computed with fewer multiplications.

Winograd's minimal filtering F(m, r) computes m outputs of a filter with r taps,

    y_i = sum over k of w_k x_(i+k),    0 <= i < m,    0 <= k < r,

with m + r - 1 products of sums of inputs and sums of taps:

    y = A^T ((G w) * (B^T x)).

S. Winograd, Arithmetic Complexity of Computations (1980); for convolutions, whose products are
products of matrices, A. Lavin and S. Gray, Fast Algorithms for Convolutional Neural Networks
(2015). The matrices are those of the Toom-Cook algorithm, which multiplies polynomials by their
values at some points and at infinity.
"""

from __future__ import annotations

import functools
import math

import attrs
import numpy as np

from nnet3_runtime_cuda.operations import Array

FEW_POINTS = (0.0, 1.0, -1.0)
"""The points at which F(2, 3) evaluates polynomials, beside infinity."""

POINTS = (*FEW_POINTS, 0.5, -2.0)
"""The points at which F(4, 3) evaluates polynomials, beside infinity.

Among points that need few multiplications these round least: B. Barabasz, A. Anderson,
K. Soodhalter and D. Gregg, Error Analysis and Improving the Accuracy of Winograd Convolution for
Deep Neural Networks (2018). With three taps, errors are three to five times those of direct sums.
"""


@attrs.frozen(eq=False)
class MinimalFiltering:
    """The matrices of F(m, r).

    Attributes:
        inputs: B^T, (products, products).
        taps: G, (products, r): powers of the points. If the first point is 0, the first row is one
            at the first tap and zero elsewhere; the last row is one at the last tap only.
        outputs: A^T, (m, products).
    """

    inputs: Array
    taps: Array
    outputs: Array

    @property
    def num_products(self) -> int:
        """Number of products, m + r - 1; the number of inputs is the same."""
        return len(self.inputs)

    @property
    def num_outputs(self) -> int:
        """Number of outputs, m."""
        return len(self.outputs)


@functools.cache
def minimal_filtering(
    num_taps: int, dtype: np.dtype[np.floating], points: tuple[float, ...] = POINTS
) -> MinimalFiltering:
    """F(m, r), whose number of products is the number of points plus one.

    Args:
        num_taps: r, at least 1 and at most the number of products.
        dtype: The type of the matrices.
        points: The points at which polynomials are evaluated, beside infinity.
    """
    num_products = len(points) + 1
    num_outputs = num_products + 1 - num_taps
    inputs = np.zeros((num_products, num_products))
    for number, point in enumerate(points):
        others = [other for other in points if other != point]
        scale = math.prod(point - other for other in others)
        inputs[number, :-1] = _coefficients(others) / scale
    inputs[-1] = _coefficients(points)
    taps = _powers(points, num_taps)
    outputs = _powers(points, num_outputs).T
    return MinimalFiltering(*(matrix.astype(dtype) for matrix in (inputs, taps, outputs)))


def _coefficients(roots: tuple[float, ...] | list[float]) -> Array:
    """The coefficients of the polynomial with these roots, the highest power last."""
    return np.poly(roots)[::-1]


def _powers(points: tuple[float, ...], count: int) -> Array:
    """(points and infinity, count): the powers of each point; infinity has only the highest one."""
    last = np.zeros((1, count))
    last[0, -1] = 1.0
    return np.concatenate([np.vander(np.array(points), count, increasing=True), last])
