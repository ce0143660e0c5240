"""The command-line tools, under the names of their Kaldi models."""
