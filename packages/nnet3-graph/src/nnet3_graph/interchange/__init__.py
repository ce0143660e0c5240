"""Fingerprints of requests, for other stages."""

from nnet3_graph.interchange.request_fingerprint import IoFingerprint, RequestFingerprint

__all__ = ["IoFingerprint", "RequestFingerprint"]
