"""Types of components, formulas and kernels that other installed packages offer."""

from nnet3_descriptors.extensions.entry_points import load_extensions

__all__ = ["load_extensions"]
