"""The four benchmark networks in PyTorch, with the parameters of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from nnet3_descriptors import Nnet
from torch import Tensor, nn
from torch.nn import functional

from peers.layers import (
    ChainOutputs,
    ConvolutionLayer,
    Lstmp,
    Splice,
    TdnnfLayer,
    TdnnLayer,
    needed,
)

if TYPE_CHECKING:
    from networks import Benchmark


class Tdnnf(nn.Module):
    """A chain TDNN-F."""

    STRIDES = (1, 1, 1, 0, *[3] * 10)

    def __init__(self, nnet: Nnet, benchmark: Benchmark) -> None:
        super().__init__()
        want = benchmark.output_times
        self.outputs = ChainOutputs(nnet, want)
        layers: list[TdnnfLayer] = []
        for number, stride in reversed(list(enumerate(self.STRIDES, 2))):
            have = TdnnfLayer.input_frames(want, stride)
            layers.insert(0, TdnnfLayer(nnet, f"tdnnf{number}", have, want, stride))
            want = have
        self.first = TdnnLayer(nnet, "tdnn1", benchmark.input_times, want, (-1, 0, 1))
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor, ivector: Tensor) -> tuple[Tensor, ...]:
        """(n, frames, 40) and (n, 1, 100) to the outputs."""
        return self.outputs(self.layers(self.first(x, ivector)))


class CnnTdnnf(nn.Module):
    """Convolutions below a TDNN-F; from the last one on, only every third frame is needed."""

    STRIDES = (0, *[3] * 8)

    def __init__(self, nnet: Nnet, benchmark: Benchmark) -> None:
        super().__init__()
        want = benchmark.output_times
        self.outputs = ChainOutputs(nnet, want)
        layers: list[TdnnfLayer] = []
        for number, stride in reversed(list(enumerate(self.STRIDES, 2))):
            have = TdnnfLayer.input_frames(want, stride)
            layers.insert(0, TdnnfLayer(nnet, f"tdnnf{number}", have, want, stride))
            want = have
        assert want[0] == benchmark.input_times[0]
        self.convolutions = nn.Sequential(
            *(ConvolutionLayer(nnet, f"cnn{k}", len(benchmark.input_times)) for k in range(1, 5)),
            ConvolutionLayer(nnet, "cnn5", 3 * len(want) - 1),
            ConvolutionLayer(nnet, "cnn6", len(want), time_step=3),
        )
        self.first = TdnnLayer(nnet, "tdnn1", want, want)
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor, ivector: Tensor) -> tuple[Tensor, ...]:
        """(n, frames, 40) and (n, 1, 100) to the outputs."""
        y = x.unsqueeze(1).to(memory_format=torch.channels_last)
        y = self.convolutions(y).permute(0, 2, 3, 1).flatten(2)
        return self.outputs(self.layers(self.first(y, ivector)))


class TdnnLstm(nn.Module):
    """TDNN layers with a projected LSTM after every second one."""

    def __init__(self, nnet: Nnet, benchmark: Benchmark) -> None:
        super().__init__()
        # The recurrence starts at the first frame that the input allows: 6 later in each layer.
        want, first = benchmark.output_times, -39
        layers: list[nn.Module] = []
        have = frames = range(first, want.stop, 3)
        for number, offset in ((6, 3), (4, 3), (2, 1)):
            offsets = (-offset, 0, offset)
            middle = needed(frames, offsets)
            below = needed(middle, offsets)
            layers = [
                TdnnLayer(nnet, f"tdnn{number}", below, middle, offsets),
                TdnnLayer(nnet, f"tdnn{number + 1}", middle, frames, offsets),
                Lstmp(nnet, f"lstm{number + 2}"),
                *layers,
            ]
            frames = below
        self.first = TdnnLayer(nnet, "tdnn1", benchmark.input_times, frames, range(-2, 3))
        self.layers = nn.Sequential(*layers)
        self.output = Splice(nnet.component("output.affine"), have, want, (0,))
        self.xent = Splice(nnet.component("output-xent.affine"), have, want, (0,))

    def forward(self, x: Tensor, ivector: Tensor) -> tuple[Tensor, ...]:
        """(n, frames, 40) and (n, 1, 100) to the outputs."""
        y = self.layers(self.first(x, ivector))
        if not self.training:
            return (self.output(y),)
        return self.output(y), functional.log_softmax(self.xent(y), dim=2)


class Xvector(nn.Module):
    """TDNN layers, mean and standard deviation over all frames, two embeddings, speakers."""

    OFFSETS = (range(-2, 3), (-2, 0, 2), (-3, 0, 3), (0,), (0,))

    def __init__(self, nnet: Nnet, benchmark: Benchmark) -> None:
        super().__init__()
        have, layers = benchmark.input_times, []
        for number, offsets in enumerate(self.OFFSETS, 1):
            want = range(have[0] - min(offsets), have[-1] - max(offsets) + 1)
            layers.append(TdnnLayer(nnet, f"tdnn{number}", have, want, offsets))
            have = want
        self.layers = nn.Sequential(*layers)
        one = range(1)
        self.segment = nn.Sequential(
            TdnnLayer(nnet, "embedding1", one, one),
            TdnnLayer(nnet, "embedding2", one, one),
            Splice(nnet.component("output.affine"), one, one, (0,)),
            nn.LogSoftmax(dim=2),
        )

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """(n, frames, 24) to (n, 1, speakers)."""
        y = self.layers(x)
        mean = y.mean(1, keepdim=True)
        variance = y.square().mean(1, keepdim=True) - mean.square()
        pooled = torch.cat([mean, variance.clamp_min(1.0e-10).sqrt()], dim=2)
        return (self.segment(pooled),)


NETWORKS: dict[str, Callable[[Nnet, Benchmark], nn.Module]] = {
    "tdnnf": Tdnnf,
    "tdnn-lstm": TdnnLstm,
    "xvector": Xvector,
    "cnn-tdnnf": CnnTdnnf,
}
