"""Heights as patches, with the methods of `HeightTiles`."""

from __future__ import annotations

import numpy as np
from nnet3_descriptors.components import TimeHeightConvolutionComponent

from nnet3_runtime_cuda.kernels.height_patches import HeightPatches
from nnet3_runtime_cuda.operations import Array, Operations


class UntiledHeights:
    """Output heights, each with one product: of a patch. See `HeightTiles`.

    Attributes:
        num_products: 1.
        taps: (1, 1), one: patches are multiplied by the parameters as they are.
        used: The columns of the input that the output depends on: all.
    """

    num_products = 1
    used = slice(None)

    def __init__(
        self, component: TimeHeightConvolutionComponent, dtype: np.dtype[np.floating]
    ) -> None:
        """Plans the patches of one time offset; those of the others are equal."""
        self.taps = np.ones((1, 1), dtype)
        self._input_dim = component.num_filters_in * component.height_in
        self._height_out = component.height_out
        self._patches = HeightPatches(component, num_times=1)

    def frames(self, tape: Operations, *shape: int, is_set: bool) -> Array:
        """Scratch memory for rows of the input: (*shape, input_dim)."""
        return tape.scratch(*shape, self._input_dim)

    def inside(self, frames: Array) -> Array:
        """All columns of the frames."""
        return frames

    def input_memory(self, tape: Operations, rows: int, parts: int, *, is_set: bool) -> Array:
        """Scratch memory for patches: (1, rows, height_out, columns of a patch).

        Args:
            tape: Records zeros where a patch reaches beyond the input.
            rows: Number of rows.
            parts: 1.
            is_set: Whether the caller will write the patches.
        """
        return self._patches.memory(tape, rows, is_zeroed=is_set)[None]

    def output_memory(self, tape: Operations, rows: int, filters: int) -> Array:
        """No memory: the products lie where the output does."""
        return tape.scratch(0, 0)

    def output_products(self, memory: Array, output: Array) -> Array:
        """The output itself: (1, rows, height_out, filters)."""
        return output.reshape(1, len(output), self._height_out, -1)

    def record_inputs(self, tape: Operations, frames: Array, products: Array) -> None:
        """Records copies of the patches; frames: (1, rows, input_dim)."""
        self._patches.record(tape, [*frames], products[0])

    def record_input_derivatives(
        self, tape: Operations, products: Array, memory: Array, frames: Array
    ) -> None:
        """Records frames = for each element, the sum of its copies in patches."""
        tape.fill(0.0, frames)
        self._patches.record_scatter(tape, products[0], [*frames])

    def record_outputs(self, tape: Operations, products: Array, output: Array) -> None:
        """Records nothing: the products are the output."""

    def record_output_derivatives(self, tape: Operations, output: Array, products: Array) -> None:
        """Records nothing: the products are the output."""
