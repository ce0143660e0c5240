"""Kaldi's command lines for training, and for preparing and finishing networks."""
