"""The passes, a module each with its rules on top; `pipeline` has their order."""
