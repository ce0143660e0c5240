"""Networks and acoustic models in Kaldi's files."""
