"""Command lines that make what chain models are trained on."""
