"""From steps to commands: where values live, which terms they sum, how commands are joined."""
