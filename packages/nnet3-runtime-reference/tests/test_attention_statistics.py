"""The statistics of attention: sums of weights and of their entropies."""

import math

import attrs
import numpy as np
from formula_calls import NO_TIME, SameDraws, setting

OPTIONS = (
    "type=RestrictedAttentionComponent num-heads=2 key-dim=1 value-dim=1 num-left-inputs=1 "
    "num-right-inputs=0 num-left-inputs-required=0 output-context=true"
)


def test_statistics_are_sums_over_rows() -> None:
    """Weights and entropies of all rows are added, and the rows are counted."""
    rng = np.random.default_rng(0)
    outputs = np.array([[0, 0, 0], [0, 1, 0], [1, 1, 0]], np.int32)
    made = setting(OPTIONS, outputs, rng)
    call = made.propagated(made.random_x(rng))
    assert (made.output_indexes[:, 1] == NO_TIME).sum() == 1  # padding counts as well
    weights = call.y.reshape(4, 2, 3)[:, :, 1:]

    for times in (1, 2):
        call = attrs.evolve(call, component=call.component.replace(**made.formula.statistics(call)))
        after = call.component
        assert after.stats_count == 4.0 * times
        for head in range(2):
            entropy = -sum(c * math.log(c) for row in weights[:, head] for c in row)
            np.testing.assert_allclose(after.entropy_stats[head], times * entropy)
            for place in range(2):
                expected = times * sum(row[place] for row in weights[:, head])
                np.testing.assert_allclose(after.posterior_stats[head, place], expected)


class Asked(SameDraws):
    """Always decides yes, and remembers the probability."""

    def chance(self, component: str, probability: float) -> bool:
        """Returns True."""
        self.probability = probability
        return True


def test_a_third_of_the_minibatches_does_not_count() -> None:
    """A minibatch that does not count changes nothing."""
    rng, asked = np.random.default_rng(0), Asked(decision=True)
    made = setting(OPTIONS, np.array([[0, 0, 0]], np.int32), rng)
    made = attrs.evolve(made, draws=asked)

    assert made.formula.statistics(made.propagated(made.random_x(rng))) == {}
    assert asked.probability == 1 / 3


def test_a_weight_of_nothing_has_no_entropy() -> None:
    """A weight that is 0 in floating point adds nothing to the entropy."""
    made = setting(OPTIONS, np.array([[0, 0, 0]], np.int32), np.random.default_rng(0))
    x = np.zeros((2, 10))  # for each head: key, value, query and two biases
    x[:, [3, 8]] = 2000.0

    changed = made.formula.statistics(made.propagated(x))
    assert changed["posterior_stats"].tolist() == [[1.0, 0.0], [1.0, 0.0]]
    assert not changed["entropy_stats"].any()
