"""Layers of the benchmark networks in PyTorch.

Values are (n, frames, columns) tensors. A layer is given the `range` of its frames when it is made,
so that slices are fixed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from nnet3_descriptors import Nnet
from torch import Tensor, nn
from torch.nn import functional


def parameter(array: np.ndarray) -> nn.Parameter:
    """A trainable copy of an array."""
    return nn.Parameter(torch.from_numpy(np.array(array)))


def needed(frames: range, offsets: Sequence[int]) -> range:
    """The frames of a layer's input for these frames of its output, evenly spaced."""
    step = frames.step if len(frames) > 1 else 0
    step = math.gcd(step, *(offset - offsets[0] for offset in offsets)) or 1
    return range(frames[0] + min(offsets), frames[-1] + max(offsets) + 1, step)


def part(have: range, want: range, offset: int = 0) -> slice:
    """The places of the frames `want`, moved by the offset, among the frames `have`."""
    first, last = (have.index(frame + offset) for frame in (want[0], want[-1]))
    return slice(first, last + 1, max(1, want.step // have.step))


class Splice(nn.Module):
    """An affine map of the input at several time offsets, side by side, in one product."""

    def __init__(self, component: Any, have: range, want: range, offsets: Sequence[int]) -> None:
        super().__init__()
        self.weight = parameter(component.linear_params)
        bias = getattr(component, "bias_params", np.zeros(0))
        self.bias = parameter(bias) if bias.size else None
        self.slices = [part(have, want, offset) for offset in offsets]

    def forward(self, x: Tensor, ivector: Tensor | None = None) -> Tensor:
        """(n, frames in, columns) to (n, frames out, columns); an i-vector is (n, 1, columns)."""
        parts = [x[:, where] for where in self.slices]
        if ivector is not None:
            parts.append(ivector.expand(-1, parts[0].shape[1], -1))
        spliced = parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)
        return functional.linear(spliced, self.weight, self.bias)


class Norm(nn.Module):
    """Batch normalisation of blocks of columns."""

    def __init__(self, component: Any) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(component.block_dim, eps=component.epsilon, affine=False)
        self.norm.running_mean.copy_(torch.from_numpy(np.array(component.stats_mean)))
        self.norm.running_var.copy_(torch.from_numpy(np.array(component.stats_var)))

    def forward(self, x: Tensor) -> Tensor:
        """(n, frames, columns) to the same shape."""
        return self.norm(x.reshape(-1, self.norm.num_features)).view(x.shape)


class TdnnLayer(nn.Module):
    """Splice, rectified linear units, batch normalisation."""

    def __init__(
        self, nnet: Nnet, name: str, have: range, want: range, offsets: Sequence[int] = (0,)
    ) -> None:
        super().__init__()
        self.affine = Splice(nnet.component(f"{name}.affine"), have, want, offsets)
        self.norm = Norm(nnet.component(f"{name}.batchnorm"))

    def forward(self, x: Tensor, ivector: Tensor | None = None) -> Tensor:
        """(n, frames in, columns) to (n, frames out, columns)."""
        return self.norm(functional.relu(self.affine(x, ivector)))


class TdnnfLayer(nn.Module):
    """A factorised layer with bypass: 0.66 x + norm(relu(affine(linear(x))))."""

    def __init__(self, nnet: Nnet, name: str, have: range, want: range, stride: int) -> None:
        super().__init__()
        down, up = ((-stride, 0), (0, stride)) if stride else ((0,), (0,))
        middle = needed(want, up)
        self.linear = Splice(nnet.component(f"{name}.linear"), have, middle, down)
        self.affine = Splice(nnet.component(f"{name}.affine"), middle, want, up)
        self.norm = Norm(nnet.component(f"{name}.batchnorm"))
        self.bypass = part(have, want)

    def forward(self, x: Tensor) -> Tensor:
        """(n, frames in, columns) to (n, frames out, columns)."""
        y = functional.relu(self.affine(self.linear(x)))
        return torch.add(self.norm(y), x[:, self.bypass], alpha=0.66)

    @staticmethod
    def input_frames(want: range, stride: int) -> range:
        """The needed frames of the input."""
        return needed(want, (-stride, 0, stride) if stride else (0,))


class Lstmp(nn.Module):
    """A projected LSTM with peepholes, whose recurrence goes back one frame of its input.

    The input's part of the gates, and the part of the projection that is not recurrent, are
    computed for all frames at once.
    """

    def __init__(self, nnet: Nnet, name: str) -> None:
        super().__init__()
        gates, projection = (nnet.component(f"{name}.{end}") for end in ("W_all", "rp"))
        self.recurrent = projection.output_dim // 2
        width = gates.input_dim - self.recurrent
        self.cells = projection.input_dim
        self.input_weight = parameter(gates.linear_params[:, :width])
        self.input_bias = parameter(gates.bias_params)
        self.recurrent_weight = parameter(gates.linear_params[:, width:])
        self.peepholes = parameter(nnet.component(f"{name}.lstm_nonlin").params)
        self.projection = parameter(projection.linear_params)
        self.projection_bias = parameter(projection.bias_params)

    def forward(self, x: Tensor) -> Tensor:
        """(n, frames, columns) to (n, frames, 2 recurrent)."""
        gates = functional.linear(x, self.input_weight, self.input_bias)
        n = self.recurrent
        weight, bias = self.projection[:n], self.projection_bias[:n]
        cell = x.new_zeros(x.shape[0], self.cells)
        state = x.new_zeros(x.shape[0], n)
        states, outputs = [], []
        for step in gates.unbind(1):
            i, f, c, o = torch.addmm(step, state, self.recurrent_weight.t()).chunk(4, dim=1)
            i = torch.sigmoid(i + self.peepholes[0] * cell)
            f = torch.sigmoid(f + self.peepholes[1] * cell)
            cell = f * cell + i * torch.tanh(c)
            output = torch.sigmoid(o + self.peepholes[2] * cell) * torch.tanh(cell)
            state = torch.addmm(bias, output, weight.t())
            states.append(state)
            outputs.append(output)
        rest = functional.linear(
            torch.stack(outputs, 1), self.projection[n:], self.projection_bias[n:]
        )
        return torch.cat([torch.stack(states, 1), rest], dim=2)


class ConvolutionLayer(nn.Module):
    """A 3 by 3 convolution over time and height, zero outside; then relu and normalisation."""

    def __init__(self, nnet: Nnet, name: str, frames: int, time_step: int = 1) -> None:
        super().__init__()
        c = nnet.component(f"{name}.conv")
        weight = c.linear_params.reshape(c.num_filters_out, 3, 3, c.num_filters_in)
        self.weight = parameter(weight.transpose(0, 3, 1, 2))
        self.bias = parameter(c.bias_params)
        self.stride = time_step, c.height_subsample_out
        self.frames = frames
        self.norm = nn.BatchNorm2d(c.num_filters_out, eps=1.0e-3, affine=False)
        batchnorm = nnet.component(f"{name}.batchnorm")
        self.norm.running_mean.copy_(torch.from_numpy(np.array(batchnorm.stats_mean)))
        self.norm.running_var.copy_(torch.from_numpy(np.array(batchnorm.stats_var)))

    def forward(self, x: Tensor) -> Tensor:
        """(n, filters in, frames, height) to (n, filters out, frames, height)."""
        y = functional.conv2d(x, self.weight, self.bias, stride=self.stride, padding=1)
        return self.norm(functional.relu(y[:, :, : self.frames]))


class ChainOutputs(nn.Module):
    """The two outputs of a chain network; for inference, only the first."""

    def __init__(self, nnet: Nnet, frames: range) -> None:
        super().__init__()
        self.shared = Splice(nnet.component("prefinal-l"), frames, frames, (0,))
        self.branches = nn.ModuleList(
            nn.Sequential(
                Splice(nnet.component(f"prefinal-{branch}.affine"), frames, frames, (0,)),
                nn.ReLU(),
                Norm(nnet.component(f"prefinal-{branch}.1.batchnorm")),
                Splice(nnet.component(f"prefinal-{branch}.linear"), frames, frames, (0,)),
                Norm(nnet.component(f"prefinal-{branch}.2.batchnorm")),
                Splice(nnet.component(f"{output}.affine"), frames, frames, (0,)),
            )
            for branch, output in (("chain", "output"), ("xent", "output-xent"))
        )

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """(n, frames, columns) to one or two outputs, (n, frames, targets) each."""
        shared = self.shared(x)
        if not self.training:
            return (self.branches[0](shared),)
        xent = functional.log_softmax(self.branches[1](shared), dim=2)
        return self.branches[0](shared), xent
