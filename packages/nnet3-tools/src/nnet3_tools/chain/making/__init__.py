"""Command lines that make graphs, supervisions and examples of chain models."""
