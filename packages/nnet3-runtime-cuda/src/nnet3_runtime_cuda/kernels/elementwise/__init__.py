"""Maps of each element, or of each column, alone."""

from __future__ import annotations

from nnet3_runtime_cuda.kernels.elementwise import fixed_maps, masks, nonlinear, per_element

__all__ = ["fixed_maps", "masks", "nonlinear", "per_element"]
