"""Constants, and masks that are drawn: dropout by elements, rows or sequences, and masks of time.

N. Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting", JMLR 15,
2014; D. S. Park et al., "SpecAugment: a simple data augmentation method for automatic speech
recognition", Interspeech 2019.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from nnet3_descriptors import ComponentProperties, components

from nnet3_runtime_reference.draws import Array, uniform
from nnet3_runtime_reference.formulas.formula import Call, Formula, formula


@formula(components.ConstantComponent, components.ConstantFunctionComponent)
class Constant(Formula):
    """y = b, in each row.

    b is output. Backward dx = 0, db = the sum of the rows of dy, if the component is updatable.
    """

    def forward(self, call: Call) -> Array:
        """Returns b for each row."""
        return np.tile(call.parameter("output"), (call.rows_out, 1))

    def backward(self, call: Call) -> Array:
        """Returns zeros."""
        return call.zeros_in()

    def gradient(self, call: Call) -> dict[str, Array]:
        """Returns db."""
        if not call.has(ComponentProperties.UPDATABLE):
            return {}
        return {"output": call.dy.sum(axis=0)}


@formula(components.DropoutComponent)
class Dropout(Formula):
    """y = m x, with the mask m = 1 where u > p, else 0.

    u is uniform in [0, 1), one for each element, or for each row if dropout_per_frame is set; p is
    dropout_proportion. The rest is not scaled up; in test mode y = (1 - p) x. Backward
    dx = dy y / x, and dx = dy where x is 0.
    """

    def forward(self, call: Call) -> Array:
        """Returns m x."""
        c = call.component
        if c.test_mode:
            return call.x * (1.0 - c.dropout_proportion)
        shape = (call.rows_in, 1 if c.dropout_per_frame else c.dim)
        return call.x * call.mask(shape, lambda rng: uniform(rng, shape) > c.dropout_proportion)

    def backward(self, call: Call) -> Array:
        """Returns dy y / x."""
        is_zero = call.x == 0
        ratio = np.where(is_zero, 1, call.y / np.where(is_zero, 1, call.x))
        return call.dy * ratio


@formula(components.DropoutMaskComponent)
class DropoutMask(Formula):
    """y = m, a mask: 1 where u > p, else 0.

    u is uniform in [0, 1), one for each element; p is dropout_proportion. A mask of two or three
    columns scales the gates of an LSTM. Its second column is 1 where u of the first column is below
    1 - p, so that for p up to 1/2 the two are never both 0 (G. Cheng et al., "An exploration of
    dropout with LSTMs", 2017). If the mask is continuous, m = 4 p u + 1 - 2 p. In test mode m is
    the average, 1 - p, or 1 if continuous. There is no input.
    """

    def forward(self, call: Call) -> Array:
        """Returns m."""
        c = call.component
        p = c.dropout_proportion
        if p == 0.0 or (c.test_mode and c.continuous):
            return call.zeros_out() + 1.0
        if c.test_mode:
            return call.zeros_out() + (1.0 - p)
        shape = (call.rows_out, c.output_dim)

        def make(rng: np.random.Generator) -> Array:
            u = uniform(rng, shape)
            if c.continuous:
                return 4.0 * p * u + 1.0 - 2.0 * p
            kept = np.array(u > p, dtype=np.float64)
            if c.output_dim in (2, 3):
                kept[:, 1] = u[:, 0] < 1.0 - p
            return kept

        return call.mask(shape, make)

    def backward(self, call: Call) -> Array:
        """Returns an empty array: there is no input."""
        return call.zeros_in()


@formula(components.GeneralDropoutComponent)
class GeneralDropout(Formula):
    """y = x m, element by element, with a random mask m.

    Each sequence, or each period of a sequence, has one mask, which blocks of columns share. The
    precomputed indexes give the number of the mask for each block of each row. Backward dx = dy m.
    In test mode, and if nothing would be dropped, y = x.
    """

    def memo(self, call: Call) -> Array | None:
        """Returns the masks, (num_mask_rows, block_dim), or None for no mask."""
        c = call.component
        nothing = c.dropout_proportion == 0.0 and c.specaugment_max_proportion == 0.0
        if c.test_mode or nothing:
            return None
        make = _bands if c.specaugment_max_proportion != 0.0 else _dropout
        shape = (call.indexes.num_mask_rows, c.block_dim)
        return call.mask(shape, lambda rng: make(c, shape, rng))

    def _masked(self, call: Call, rows: Array) -> Array:
        if call.memo is None:
            return rows
        blocks = rows.reshape(-1, call.component.block_dim)
        masked: Array = blocks * call.memo[call.indexes.indexes]
        return masked.reshape(rows.shape)

    def forward(self, call: Call) -> Array:
        """Returns x m."""
        return self._masked(call, call.x)

    def backward(self, call: Call) -> Array:
        """Returns dy m."""
        return self._masked(call, call.dy)


def _dropout(component: Any, shape: tuple[int, int], rng: np.random.Generator) -> Array:
    """Returns masks that are 0 with probability p and else 1 / (1 - p).

    Continuous masks are uniform in [1 - 2 p, 1 + 2 p]. A mask for whole frames has equal columns,
    which are 0 or 1 if it is not continuous.
    """
    p, per_frame = component.dropout_proportion, component.dropout_per_frame
    u = uniform(rng, (shape[0], 1) if per_frame else shape)
    if component.continuous:
        mask = 1.0 + 2.0 * p * (2.0 * u - 1.0)
    else:
        mask = (u > p) / (1.0 if per_frame else 1.0 - p)
    return np.broadcast_to(mask, shape)


def _bands(component: Any, shape: tuple[int, int], rng: np.random.Generator) -> Array:
    """Returns masks that are 0 in a band of columns; after the last column comes the first.

    At most specaugment_max_proportion of the columns are 0. To split the band into more regions, a
    random half of the circle of columns is reversed, specaugment_max_regions - 1 times.
    """
    mask, dim = np.ones(shape), shape[1]
    longest = int(dim * component.specaugment_max_proportion + 0.5)
    for row in mask:
        length = rng.integers(0, longest + 1)
        if length == 0:
            continue
        row[(rng.integers(dim) + np.arange(length)) % dim] = 0.0
        for _ in range(1, component.specaugment_max_regions):
            start, steps = rng.integers(dim), np.arange(dim // 2 // 2)
            near, far = (start + steps) % dim, (start + dim // 2 - steps) % dim
            row[near], row[far] = row[far], row[near]
    return mask


@formula(components.SpecAugmentTimeMaskComponent)
class SpecAugmentTimeMask(Formula):
    """y(t) = m(t) x(t), where m is 1 and 0 by turns, for stretches of random length.

    Backward dx(t) = m(t) dy(t). In test mode, and if nothing would be zeroed, y = x.
    """

    def memo(self, call: Call) -> Array | None:
        """Returns the mask, (rows, 1), or None for no mask."""
        c = call.component
        if c.test_mode or c.zeroed_proportion == 0.0:
            return None
        return call.mask((call.rows_in, 1), lambda rng: _stretches(call, rng))

    def forward(self, call: Call) -> Array:
        """Returns m x."""
        return call.x if call.memo is None else call.memo * call.x

    def backward(self, call: Call) -> Array:
        """Returns m dy."""
        return call.dy if call.memo is None else call.memo * call.dy


def _stretches(call: Call, rng: np.random.Generator) -> Array:
    """Returns 1 and 0 by turns for the rows of each sequence, in the order of time, (rows, 1).

    With z = zeroed_proportion, a stretch of 0 has 1 to time_mask_max_frames frames, a stretch of 1
    has 1 to time_mask_max_frames (1 - z) / z. A sequence begins with 1 with probability z.
    """
    # In single precision: 10 (1 - 0.1) / 0.1 is 90 there, and a little less than 90 in double.
    c = call.component
    z, longest = np.float32(c.zeroed_proportion), c.time_mask_max_frames
    longest_of = {0.0: longest, 1.0: int(np.float32(longest) * (np.float32(1.0) - z) / z)}
    mask = np.empty((call.rows_in, 1))
    for rows in call.indexes.sequences:
        begin, value = 0, 1.0 if call.chance(c.zeroed_proportion) else 0.0
        while begin < len(rows):
            length = rng.integers(1, longest_of[value] + 1)
            mask[rows[begin : begin + length]] = value
            begin, value = begin + length, 1.0 - value
    return mask
