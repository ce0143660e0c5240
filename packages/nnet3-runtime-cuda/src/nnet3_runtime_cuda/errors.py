"""The errors of this package; all derive from Nnet3Error (a ValueError)."""

from __future__ import annotations

from nnet3_descriptors import Nnet3Error


class RunError(Nnet3Error):
    """Something given to a computation, a model or a tool does not fit it."""


class UnsupportedComponentError(Nnet3Error):
    """A network holds a component type that has no arithmetic here."""


class PlanError(Nnet3Error):
    """A plan changes the results of a computation, or belongs to another computation."""


class DeviceError(Nnet3Error):
    """The device does not exist, or the library that drives it is missing."""


class DeviceMemoryError(DeviceError):
    """A device has too little memory."""


class TrainingError(Nnet3Error):
    """A setting of training is not valid, or training has diverged."""
