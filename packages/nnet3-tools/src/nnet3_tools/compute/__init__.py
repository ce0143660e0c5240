"""Tools that run a model over features, and the loop over a table that they share."""
