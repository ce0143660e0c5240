"""Kaldi's command lines for examples: made, merged, shuffled, chosen, copied."""
