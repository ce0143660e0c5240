"""Command-line tools with the names and options of Kaldi's."""

__version__ = "0.2.0"

__all__: list[str] = []
