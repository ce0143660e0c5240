"""What lowering changes of a computation: found by rules, one a file, and kept as a value.

`trace` says what the commands do to which part of which matrix. Each rule reads it: `known_inputs`
finds products that can be made before a recurrence, `deferred_derivatives` such as can be made
after it, `step_panels` parameters that many steps multiply by, `splices` inputs whose rows lie in
another matrix, `gathered_splices` those of the rows of many matrices. `make` puts them together to
a `Plan` (`plan`), which `text` prints.
"""
