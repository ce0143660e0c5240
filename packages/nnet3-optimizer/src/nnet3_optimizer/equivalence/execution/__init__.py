"""A computation that runs on symbols: its commands, and the state that they change."""
