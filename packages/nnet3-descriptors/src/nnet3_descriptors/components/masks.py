"""Components that set some of their input to zero at random while training."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnet3_descriptors.components.declaration import base, fields
from nnet3_descriptors.components.declaration.properties import CONTIGUOUS
from nnet3_descriptors.components.declaration.properties import ComponentProperties as Property
from nnet3_descriptors.components.declaration.registry import component
from nnet3_descriptors.components.index_rules import windows
from nnet3_descriptors.indexes import INT32_MAX, IndexArray, N, T, index_keys

_OF_MASKS = (
    Property.RANDOM | Property.PROPAGATE_IN_PLACE | Property.BACKPROP_IN_PLACE | Property.USES_MEMO
)
"""The promises of masks that last longer than a row."""


@component
class DropoutComponent(base.Component):
    """y = x with a random part of the elements, or rows, set to zero.

    In test mode y = (1 - dropout_proportion) x.

    Attributes:
        dim: Number of columns.
        dropout_proportion: Probability that an element, or row, becomes zero.
        dropout_per_frame: Rows are dropped, not elements.
        test_mode: Nothing is random.
    """

    PROPERTIES = (
        Property.SIMPLE
        | Property.BACKPROP_IN_PLACE
        | Property.BACKPROP_NEEDS_INPUT
        | Property.BACKPROP_NEEDS_OUTPUT
        | Property.RANDOM
    )
    BACKPROP_NEEDS_EXACT_VALUES = True  # 0 / 0 counts as 1

    dim: int = fields.integer(minimum=1)
    dropout_proportion: float = fields.real(minimum=0.0, maximum=1.0)
    dropout_per_frame: bool = fields.boolean(default=False, absent=False)
    test_mode: bool = fields.boolean(default=False, absent=False, info=None)


@component
class DropoutMaskComponent(windows.NoInputRules, base.Component):
    """y = a random mask, without an input; LstmNonlinearityComponent multiplies its gates by it.

    The mask is 0 or 1; of two or three columns, the first two of a row are never both 0. Or it is
    continuous, uniform in [1 - 2 dropout_proportion, 1 + 2 dropout_proportion]. In test mode y is
    the average of the mask.

    Attributes:
        output_dim: Number of columns.
        dropout_proportion: Probability of 0.
        test_mode: Nothing is random.
        continuous: The mask has values between.
    """

    PROPERTIES = Property.RANDOM
    INFO = ("output_dim", "dropout_proportion", "continuous")

    output_dim: int = fields.integer(minimum=1)
    dropout_proportion: float = fields.real(default=0.5, minimum=0.0, maximum=1.0)
    test_mode: bool = fields.boolean(default=False, absent=False)
    continuous: bool = fields.flag()

    @property
    def input_dim(self) -> int:
        """Number of columns that the descriptor of the unused input has to have."""
        return self.output_dim


@windows.precomputed
class GeneralDropoutPrecomputedIndexes(base.PrecomputedIndexes):
    """The mask that multiplies each block of each row.

    Attributes:
        num_mask_rows: Number of masks.
        indexes: (rows * blocks in a row,), the number of the mask.
    """

    num_mask_rows: int
    indexes: windows.RowArray = windows.row_array()

    def misfit(self, component: Any, rows_in: int, rows_out: int, *, backward: bool) -> str | None:
        """Returns a message if the number of blocks, or of masks, or a mask does not fit."""
        blocks = rows_out * (component.dim // component.block_dim)
        if not 1 <= self.num_mask_rows <= rows_out:
            return f"have {self.num_mask_rows} masks, expected 1 to {rows_out}"
        return (
            windows.wrong_count("input rows", rows_out, rows_in)
            or windows.wrong_count("blocks of columns", len(self.indexes), blocks)
            or windows.no_such_row("mask", self.indexes, self.num_mask_rows)
        )


def _is_specaugment(component: GeneralDropoutComponent) -> bool:
    return component.specaugment_max_proportion != 0.0


def _has_regions(component: GeneralDropoutComponent) -> bool:
    return _is_specaugment(component) and component.specaugment_max_regions != 1


@component
class GeneralDropoutComponent(base.Component):
    """y = x times a random mask that stays the same over the times of a sequence.

    The mask is 0 or 1 / (1 - dropout_proportion); or continuous, uniform in
    [1 - 2 dropout_proportion, 1 + 2 dropout_proportion]; or, as in SpecAugment (D. Park et al.,
    2019), 0 in bands of columns and else 1. In test mode y = x.

    Attributes:
        dim: Number of columns.
        block_dim: Columns are repeated blocks of this many, which share their mask.
        time_period: The number of frames with the same mask; 0 for whole sequences.
        dropout_proportion: Probability of 0.
        dropout_per_frame: All columns of a mask are equal; such a mask is 0 or 1 if it is not
            continuous. Only files of one old branch of Kaldi have this.
        specaugment_max_proportion: Largest part of the columns in which a mask is 0; 0 for dropout.
        specaugment_max_regions: Largest number of bands.
        test_mode: Nothing is random.
        continuous: The mask has values between.
    """

    INDEXES = GeneralDropoutPrecomputedIndexes
    PROPERTIES = _OF_MASKS
    INFO = (
        "dim",
        "block_dim",
        "dropout_proportion",
        "continuous",
        "dropout_per_frame",
        "specaugment_max_proportion",
        "specaugment_max_regions",
        "time_period",
    )

    dim: int = fields.integer(minimum=1)
    block_dim: int = fields.integer(default=lambda self: self.dim, minimum=1)
    time_period: int = fields.integer(default=0, minimum=0, shown="unless default")
    dropout_proportion: float = fields.real(default=0.5, minimum=0.0, maximum=1.0)
    dropout_per_frame: bool = fields.flag(token="<PerframeDropout>", info="per_frame")
    specaugment_max_proportion: float = fields.real(
        default=0.0,
        minimum=0.0,
        maximum=1.0,
        token="<SpecAugmentMaxProportion>",
        written="unless default",
    )
    specaugment_max_regions: int = fields.integer(
        default=1,
        minimum=1,
        token="<SpecAugmentMaxRegions>",
        written=_has_regions,
        shown=_is_specaugment,
    )
    test_mode: bool = fields.flag(info=None)
    continuous: bool = fields.flag()

    def check(self) -> None:
        """Raises NetworkError if blocks or kinds of masks do not fit each other."""
        self.require_divides("block_dim", "dim")
        self.require(
            self.continuous or self.dropout_per_frame or self.dropout_proportion < 1.0,
            "'dropout_proportion' must be below 1: kept values are divided by 1 minus it, "
            f"got {self.dropout_proportion:g}",
        )
        self.require(
            not (_is_specaugment(self) and self.continuous),
            "a mask cannot be 'continuous' and have a 'specaugment_max_proportion'",
        )
        self.require(
            not _is_specaugment(self) or self.specaugment_max_regions <= self.block_dim,
            "'specaugment_max_regions' must be at most the number of columns of a block, "
            f"{self.block_dim}, got {self.specaugment_max_regions}",
        )

    @property
    def properties(self) -> Property:
        """The promises of this component."""
        return self.PROPERTIES | CONTIGUOUS if self.block_dim != self.dim else self.PROPERTIES

    def precompute_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray, need_backprop: bool
    ) -> GeneralDropoutPrecomputedIndexes:
        """Returns a mask for each sequence, or for each period of each sequence."""
        which = output_indexes.copy()
        which[:, T] = windows.times(output_indexes) // self.time_period if self.time_period else 0
        (keys,) = index_keys(np.stack((which[:, N], which[:, T], 0 * which[:, N]), axis=1))
        masks, indexes = np.unique(keys, return_inverse=True)
        return GeneralDropoutPrecomputedIndexes(
            num_mask_rows=len(masks), indexes=np.repeat(indexes, self.dim // self.block_dim)
        )


@windows.precomputed
class SpecAugmentTimeMaskPrecomputedIndexes(base.PrecomputedIndexes):
    """The rows of each sequence.

    Attributes:
        rows: (rows,), all row numbers; the rows of a sequence lie together, in the order of time.
        splits: (sequences + 1,), sequence s has rows[splits[s]:splits[s + 1]].
    """

    rows: windows.RowArray = windows.row_array()
    splits: windows.RowArray = windows.row_array()

    def misfit(self, component: Any, rows_in: int, rows_out: int, *, backward: bool) -> str | None:
        """Returns a message if the number of rows, a row, or a begin of a sequence does not fit."""
        return (
            windows.wrong_count("input rows", len(self.rows), rows_in)
            or windows.wrong_count("output rows", len(self.rows), rows_out)
            or windows.no_such_row("row", self.rows, rows_out)
            or self._repeated_row()
            or self._wrong_splits()
        )

    def _repeated_row(self) -> str | None:
        counts = np.bincount(self.rows)
        if counts.max(initial=0) < 2:
            return None
        return f"have row {int(counts.argmax())} in several places, expected each row once"

    def _wrong_splits(self) -> str | None:
        ends = self.splits[:1].tolist(), self.splits[-1:].tolist()
        if ends == ([0], [len(self.rows)]) and (np.diff(self.splits) > 0).all():
            return None
        found = str(self.splits.tolist())[:80]
        return f"have the splits {found}, expected them to ascend from 0 to {len(self.rows)}"

    @property
    def sequences(self) -> tuple[windows.RowArray, ...]:
        """The rows of each sequence, in the order of time."""
        return tuple(np.split(self.rows, self.splits[1:-1]))


@component
class SpecAugmentTimeMaskComponent(base.Component):
    """y = x with random stretches of time set to zero (SpecAugment, D. Park et al., 2019).

    In test mode y = x.

    Attributes:
        dim: Number of columns.
        zeroed_proportion: Part of the frames that is set to zero.
        time_mask_max_frames: Largest number of frames in a stretch.
        test_mode: Nothing is random.
    """

    INDEXES = SpecAugmentTimeMaskPrecomputedIndexes
    PROPERTIES = _OF_MASKS

    dim: int = fields.integer(minimum=1)
    zeroed_proportion: float = fields.real(default=0.25, minimum=0.0, maximum=1.0)
    time_mask_max_frames: int = fields.integer(default=10, minimum=2)
    test_mode: bool = fields.flag(config=None, info=None)

    def check(self) -> None:
        """Raises NetworkError if no frame, or too many frames, would stay between two stretches."""
        zeroed, longest = self.zeroed_proportion, self.time_mask_max_frames
        self.require(
            longest * (1.0 - zeroed) >= zeroed,
            f"'zeroed_proportion' must leave some of {longest} frames, got {zeroed:g}",
        )
        self.require(
            longest * (1.0 - zeroed) < zeroed * INT32_MAX or zeroed == 0.0,
            f"'zeroed_proportion' is so small that more than {INT32_MAX} frames would stay "
            f"between two stretches of up to {longest}, got {zeroed:g}",
        )

    def precompute_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray, need_backprop: bool
    ) -> SpecAugmentTimeMaskPrecomputedIndexes:
        """Returns the rows of each sequence."""
        rows = np.lexsort((output_indexes[:, T], output_indexes[:, N]))
        sequence = output_indexes[rows, N]
        starts = np.flatnonzero(np.diff(sequence)) + 1
        return SpecAugmentTimeMaskPrecomputedIndexes(
            rows=rows.astype(np.int32),
            splits=np.concatenate([[0], starts, [len(rows)]]).astype(np.int32),
        )
