"""Platforms for programs of the CUDA runtime where there is no device: run, or counted."""

from __future__ import annotations

from emulated_device.dry_run import DryRun
from emulated_device.host_platform import HostPlatform, compiler, kernel_names, tiling_in_parts

__all__ = ["DryRun", "HostPlatform", "compiler", "kernel_names", "tiling_in_parts"]
