"""Compares optimized computations with the compiled one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import attrs
import numpy as np
from nnet3_compiler import compile_computation
from nnet3_computation import SCHEMA, ComputationRequest, NnetComputation
from nnet3_descriptors import ComponentProperties, Nnet, vectorize
from nnet3_optimizer import OptimizeOptions, check_computation, optimize, verify_equivalent
from nnet3_runtime_cuda import NnetComputer

Arrays = Mapping[str, np.ndarray]

SWITCHES = [
    field.name
    for field in attrs.fields(OptimizeOptions)
    if field.default is True and field.name != "optimize"
]
"""The options that are on by default and can be turned off."""

TOLERANCE = 1e-5
"""The largest difference of results, relative to the largest value of an array. Sums of float32
numbers in another order differ by less."""


KALDIS_PASSES = OptimizeOptions(
    verify=True,
    order_rows_early=False,
    split_statistics=False,
    gather_early=False,
    recompute_activations=False,
)
"""Kaldi's set of passes, each of which is checked and proven."""

_WORKING = {
    *("Propagate", "Backprop", "BackpropNoModelUpdate", "MatrixCopy", "MatrixAdd"),
    *("CopyRows", "AddRows", "CopyRowsMulti", "AddRowsMulti"),
    *("CopyToRowsMulti", "AddToRowsMulti", "AddRowRanges"),
}


def working_commands(computation: NnetComputation) -> int:
    """The number of commands that do arithmetic, as tests/reference/README.md counts them."""
    opcodes = computation.command_table[:, 0].tolist()
    return sum(SCHEMA.types[opcode].__name__ in _WORKING for opcode in opcodes)


@attrs.frozen(kw_only=True, slots=False)
class Trial:
    """A network, a request, and values to run them on.

    Attributes:
        nnet: The network.
        request: The request.
        inputs: Values of the inputs, (rows, dim) each.
        output_derivs: Derivatives of the outputs that have one, (rows, dim) each.
    """

    nnet: Nnet
    request: ComputationRequest
    inputs: Arrays
    output_derivs: Arrays

    @cached_property
    def compiled(self) -> NnetComputation:
        """The computation as compiled."""
        return compile_computation(self.nnet, self.request)

    @cached_property
    def expected(self) -> dict[str, np.ndarray]:
        """The results of the compiled computation."""
        return self.results(self.compiled)

    def results(self, computation: NnetComputation) -> dict[str, np.ndarray]:
        """Outputs, derivatives of inputs and parameters, statistics."""
        computer = NnetComputer(self.nnet, computation)
        found = {f"output {k}": v for k, v in computer.forward(self.inputs).items()}
        if self.output_derivs:
            derivatives = computer.backward(self.output_derivs)
            found |= {f"derivative {k}": v for k, v in derivatives.items()}
        if self.request.need_model_derivative:
            found["gradient"] = vectorize(computer.gradient)
        if self.request.store_component_stats:
            found |= statistics(computer.nnet)
        return found

    def difference(self, computation: NnetComputation) -> str:
        """The result in which a computation differs from the compiled one; "" if all agree."""
        found = self.results(computation)
        if found.keys() != self.expected.keys():
            return f"results {sorted(found)}, expected {sorted(self.expected)}"
        for name, expected in self.expected.items():
            if found[name].shape != expected.shape:
                return f"{name} has shape {found[name].shape}, expected {expected.shape}"
            scale = max(np.abs(expected).max(initial=0.0), 1e-3)
            error = np.abs(found[name] - expected).max(initial=0.0) / scale
            if not error <= TOLERANCE:
                return f"{name} differs by {error:.1e} of its largest value"
        return ""

    def optimized(
        self, options: OptimizeOptions, *, known: NnetComputation | None = None
    ) -> NnetComputation:
        """Optimizes, and checks, proves and runs the result.

        Args:
            options: The options; with `verify` an error names the pass at fault.
            known: A computation known to be correct; an equal result is not checked again.
        """
        computation = optimize(self.nnet, self.compiled, options)
        if computation != known:
            check_computation(self.nnet, computation, check_unused=options.remove_dead_commands)
            if not options.verify:  # else each pass has been proven
                verify_equivalent(self.nnet, self.compiled, computation)
            assert not self.difference(computation)
        return computation


def statistics(nnet: Nnet) -> dict[str, np.ndarray]:
    """The statistics that StoreStats has stored in a network.

    Statistics of backward passes (.oderiv_rms, and all of LSTM and GRU) are left out: as in Kaldi,
    only some calls store them, so they depend on how rows are grouped into calls.
    """
    stored = {
        name
        for name, component in zip(nnet.component_names, nnet.components, strict=True)
        if component.properties & ComponentProperties.STORES_STATS
    }
    return {
        f"stored {key}": array
        for key, array in nnet.state_dict().items()
        if key.rpartition(".")[0] in stored and not key.endswith(".oderiv_rms")
    }
