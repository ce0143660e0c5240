"""Command-line tools with the names and options of Kaldi's."""
