"""Tools for what stands around a network: features, i-vectors, speaker recognition."""
