"""Kernels and products bound to memory of a device."""
