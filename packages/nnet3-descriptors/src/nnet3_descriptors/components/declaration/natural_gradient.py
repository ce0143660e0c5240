"""The settings of the natural-gradient update, which many types have in different order.

A class declares its settings at the place where its files have them: `rank_in: int = rank_in()`.
Keywords change a declaration.
"""

from functools import partial
from typing import Any, Final

from nnet3_descriptors.components.declaration.fields import boolean, integer, real

_LARGEST_RANK_IN = 20
_LARGEST_RANK_OUT = 80

_LONGEST_HISTORY = 1e6
"""The largest value, as in Kaldi: an estimate that forgets nothing learns nothing."""


def _default_rank_in(component: Any) -> int:
    return int(min(_LARGEST_RANK_IN, (component.linear_params.shape[1] + 1) // 2))


def _default_rank_out(component: Any) -> int:
    return int(min(_LARGEST_RANK_OUT, (component.linear_params.shape[0] + 1) // 2))


rank_in = partial(integer, default=_default_rank_in, unset_below=0, minimum=1)
"""The rank of the Fisher-matrix estimate for the input side."""

rank_out = partial(integer, default=_default_rank_out, unset_below=0, minimum=1)
"""The same for the output side."""

update_period = partial(integer, default=4, minimum=1)
"""The number of minibatches between updates of the estimate."""

num_samples_history = partial(real, default=2000.0, above=0.0, maximum=_LONGEST_HISTORY)
"""The number of frames over which the estimate forgets."""

num_minibatches_history = partial(real, default=4.0, above=1.0, maximum=_LONGEST_HISTORY)
"""The number of minibatches over which the estimate forgets.

The newest minibatch has a weight of one over this number. The number must be above 1, or the
estimate would keep nothing of earlier minibatches.
"""

alpha = partial(real, default=4.0, minimum=0.0)
"""The weight of the unit matrix that smooths the estimate."""

use_natural_gradient = partial(boolean, default=True)
"""Whether the update uses the natural gradient."""

orthonormal_constraint = partial(real, default=0.0, written="unless default")
"""The scale of the semi-orthonormal matrix to which training holds the parameters.

0 for none, negative for a scale that floats.
"""

INFO: Final = ("rank_in", "rank_out", "num_samples_history", "update_period", "alpha")
"""What affine maps show of the settings."""
