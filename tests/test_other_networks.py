"""Programs of networks beyond the reference cases cost no more than Kaldi's, and are proven.

Each small network of other_networks.txt has a feature that costs more if merges, sums or copies are
chosen badly. Kaldi's cost was counted on programs of its own nnet3, as for the reference cases.
"""

import attrs
import pytest
from catalogues import parts_of
from nnet3_compiler import compile_computation
from nnet3_computation import ComputationRequest, peak_bytes
from nnet3_optimizer import OptimizeOptions, check_computation, optimize
from optimizer_trials import KALDIS_PASSES, working_commands
from small_networks import network, request_for


def config_of(layers: list[str]) -> str:
    """The config lines of a network with six columns as input."""
    lines = ["input-node name=input dim=6"]
    for layer in layers:
        words, _, source = layer.partition(" <- ")
        name, kind, options = f"{words}  ".split(" ", 2)
        if name == "output":
            lines.append(f"output-node name=output input={source}")
            continue
        if kind == "Affine":
            kind, columns = "NaturalGradientAffine", options.split()
            options = f"input-dim={columns[0]} output-dim={columns[1]}"
        elif options.strip().isdigit():
            options = f"dim={options}"
        lines.append(f"component name={name} type={kind}Component {options}")
        lines.append(f"component-node name={name} component={name} input={source}")
    return "\n".join(lines)


def request_of(settings: dict[str, str]) -> ComputationRequest:
    """The request; indexes are sorted by sequence, then by time."""
    is_training = settings["training"] == "yes"
    given, wanted = (map(int, settings[name].split(":")) for name in ("inputs", "outputs"))
    return request_for(
        *(range(first, last + 1) for first, last in (given, wanted)),
        int(settings["sequences"]),
        derivs=("output",) if is_training else (),
        need_model_derivative=is_training,
        store_component_stats=is_training,
    )


NETWORKS = parts_of("other_networks.txt")
"""The settings and layers of each network, as text."""


@pytest.mark.parametrize("text", NETWORKS.values(), ids=NETWORKS.keys())
def test_costs_no_more_than_kaldi(text: str) -> None:
    """Programs have no more working commands with Kaldi's passes, and never use more memory."""
    line, *layers = text.splitlines()
    settings = dict(word.split("=") for word in line.split())
    nnet = network(config_of(layers))
    compiled = compile_computation(nnet, request_of(settings))
    level = int(settings["level"])

    few, optimized = (
        optimize(nnet, compiled, attrs.evolve(options, memory_compression_level=level))
        for options in (KALDIS_PASSES, OptimizeOptions(verify=True))
    )

    for each in (few, optimized):
        check_computation(nnet, each)
        assert peak_bytes(each) <= int(settings["peak"])
    assert working_commands(few) <= int(settings["working"])
