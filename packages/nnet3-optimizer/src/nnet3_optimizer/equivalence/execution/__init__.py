"""A computation run on symbols: what its commands do, and the state that they change."""
