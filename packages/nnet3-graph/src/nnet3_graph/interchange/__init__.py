"""The forms of requests and graphs for other stages: fingerprints, and stored graphs."""

from nnet3_graph.interchange.request_fingerprint import IoFingerprint, RequestFingerprint

__all__ = ["IoFingerprint", "RequestFingerprint"]
