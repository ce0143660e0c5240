"""Kaldi's command lines that make, merge, shuffle, choose and copy examples."""
