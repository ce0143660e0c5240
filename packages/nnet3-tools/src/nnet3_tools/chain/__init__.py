"""Kaldi's command lines for 'chain' models."""
