"""Components; most of them compute a row of the output from the same row of the input."""
