"""From steps to commands: where values live, what they are added up from, and how all is joined."""
