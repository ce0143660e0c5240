"""The common parts of tools that compute objectives: options, training steps, log lines."""
