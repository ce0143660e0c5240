"""What the tools that compute objectives on examples share: options, training steps, log lines."""
