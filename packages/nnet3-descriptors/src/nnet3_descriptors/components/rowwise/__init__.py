"""Components whose rows of output come from the same row of the input, most of them."""
