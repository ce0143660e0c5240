"""Limits on sizes, and how callers set others."""

import threading

from nnet3_descriptors import Limits, current_limits, parse_config, use_limits

CONFIG = """\
input-node name=input dim=3
component name=a type=LinearComponent input-dim=3 output-dim=4
component name=b type=LinearComponent input-dim=4 output-dim=5
component-node name=a component=a input=input
component-node name=b component=b input=a
output-node name=output input=Append(b, a)
"""


def test_limits_are_exact() -> None:
    """A size equal to the limit is accepted."""
    with use_limits(Limits(parameters=32, dim=9, nodes=6)):
        assert parse_config(CONFIG).num_parameters == 32


def test_limits_hold_for_a_statement_and_a_thread() -> None:
    """After the statement, and in other threads, the previous limits hold."""
    default, seen = current_limits(), []
    with use_limits(Limits(dim=5)):
        thread = threading.Thread(target=lambda: seen.append(current_limits()))
        thread.start()
        thread.join()
        seen.append(current_limits())

    assert seen == [default, Limits(dim=5)]
    assert current_limits() == default
