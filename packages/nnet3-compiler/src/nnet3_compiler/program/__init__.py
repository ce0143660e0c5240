"""From steps to commands: where values live, what they are added up from, and the whole program."""
