"""Formulas for sequences: attention, nonlinearities of recurrences, limits of derivatives."""

from nnet3_runtime_reference.formulas.sequences import attention, recurrent, truncation

__all__ = ["attention", "recurrent", "truncation"]
