"""Reading and writing Kaldi files."""
