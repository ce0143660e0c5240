"""Kaldi's command lines for training, and for what is done with a network before and after."""
