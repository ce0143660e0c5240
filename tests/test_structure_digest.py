"""Whatever changes the program of a request changes the digest that caches compare."""

from collections.abc import Iterator

import attrs
from nnet3_compiler import NnetComputation, compile_computation
from nnet3_descriptors import NetworkError, Nnet, read_nnet
from nnet3_graph import ComputationRequest
from nnet3_optimizer import optimize
from nnet3_optimizer.caching import structure_digest
from reference_cases import ReferenceCase, computation_request, parametrize_cases


def program(nnet: Nnet, request: ComputationRequest) -> NnetComputation:
    """What users run."""
    return optimize(nnet, compile_computation(nnet, request))


def with_other_settings(nnet: Nnet) -> Iterator[tuple[str, Nnet]]:
    """The network with one true-or-false or real setting of one component changed; and its name."""
    for number, component in enumerate(nnet.components):
        for spec in component.FIELDS:
            value = getattr(component, spec.name)
            if isinstance(value, bool):
                others: tuple[bool | float, ...] = (not value,)
            elif isinstance(value, float):
                others = (0.0, 2 * value + 1)
            else:
                continue
            for other in others:
                try:
                    changed = attrs.evolve(component, **{spec.name: other})
                except NetworkError:
                    continue
                components = [*nnet.components]
                components[number] = changed
                try:
                    yield f"{spec.name}={other}", attrs.evolve(nnet, components=components)
                except NetworkError:
                    continue


@parametrize_cases(kind="component")
def test_equal_digests_mean_equal_programs(case: ReferenceCase) -> None:
    """A setting that leaves the digest alone leaves the program alone."""
    nnet, request = read_nnet(case.network_path), computation_request(case)
    expected, digest = program(nnet, request), structure_digest(nnet)

    for setting, other in with_other_settings(nnet):
        if structure_digest(other) == digest:
            assert program(other, request) == expected, setting
