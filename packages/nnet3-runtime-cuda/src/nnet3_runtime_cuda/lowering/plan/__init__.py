"""What lowering changes of a computation: found by rules, one a file, and kept as a value.

`trace` says what the commands do to which part of which matrix. Each rule reads it: `known_inputs`
finds products that can be made before a recurrence, `deferred_derivatives` such as can be made
after it, `step_panels` parameters that many steps multiply by, `splices` inputs whose rows lie in
another matrix. `make` puts them together to a `Plan` (`plan`).
"""
