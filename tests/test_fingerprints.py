"""Any setting that changes the program of a request changes the fingerprint of the network."""

from collections.abc import Iterator

import attrs
from nnet3_descriptors import NetworkError, Nnet, read_nnet
from nnet3_descriptors.structure import NetworkFingerprint
from reference_cases import ReferenceCase, parametrize_cases
from reference_programs import optimized


def with_other_settings(nnet: Nnet) -> Iterator[tuple[str, Nnet]]:
    """The network with one number or flag of one component changed; and its name."""
    for number, component in enumerate(nnet.components):
        for spec in component.FIELDS:
            value = getattr(component, spec.name)
            if isinstance(value, bool):
                others: tuple[float, ...] = (not value,)
            elif isinstance(value, int):
                others = (value + 1, 2 * value)
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
def test_equal_fingerprints_mean_equal_programs(case: ReferenceCase) -> None:
    """A setting that leaves the fingerprint alone leaves the program alone."""
    nnet, request = read_nnet(case.network_path), case.request
    expected, fingerprint = optimized(nnet, request), NetworkFingerprint.of(nnet)

    for setting, other in with_other_settings(nnet):
        if NetworkFingerprint.of(other) == fingerprint:
            assert optimized(other, request) == expected, setting
