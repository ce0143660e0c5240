"""The nonlinearities of recurrent networks."""

from __future__ import annotations

from nnet3_runtime_cuda.kernels.recurrent import gru, lstm

__all__ = ["gru", "lstm"]
