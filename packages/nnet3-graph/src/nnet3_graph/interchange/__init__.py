"""The form in which other stages get requests and graphs: fingerprints, and stored graphs."""

from nnet3_graph.interchange.request_fingerprint import IoFingerprint, RequestFingerprint

__all__ = ["IoFingerprint", "RequestFingerprint"]
