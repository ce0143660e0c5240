"""A computation belongs to the network."""

from __future__ import annotations

from nnet3_computation.checks.subject import Subject


def check_network(subject: Subject) -> None:
    """Checks that the computation was made for this network, if it has a fingerprint.

    The comparison leaves out parameters and names; see `NetworkFingerprint`.
    """
    fingerprint = subject.computation.network
    difference = None if fingerprint is None else fingerprint.difference(subject.nnet)
    if difference is not None:
        subject.fail(f"the computation is of another network: {difference}")
