"""Plans: the changes that lowering makes to a computation, found by rules in a file each.

`trace` lists the accesses of commands to parts of matrices. Each rule reads it: `known_inputs`
finds products that can be computed before a recurrence, `deferred_derivatives` products that can be
computed after it, `step_panels` parameters that many steps multiply by, and `splices` inputs whose
rows lie in another matrix. `make` combines these changes in a `Plan` (`plan`).

They are for training, and for networks that `nnet3_descriptors.editing.for_inference` has not
rewritten.
"""
