"""A pass has one name: that of its module, its function, its option, and in messages."""

import pkgutil
from importlib import import_module

import attrs
from nnet3_optimizer import OptimizeOptions, passes
from nnet3_optimizer.pipeline import PIPELINE

FAMILIES = {"backward", "matrices", "rows", "sums"}
"""The folders of `passes` that are not passes themselves."""

WITHOUT_OPTION = {"consolidate_io", "renumber"}
SEVERAL_OPTIONS = {"limit_derivative_times", "trim_matrices", "merge_variables"}
OPTION_OF_ANOTHER_NAME = {
    "memory_compression": "memory_compression_level",
    "order_additions": "convert_addition",
}
OPTIONS_OF_SEVERAL = {
    "min_deriv_time",
    "max_deriv_time",
    "max_deriv_time_relative",
    "remove_assignments",
    "propagate_in_place",
    "backprop_in_place",
    "allow_left_merge",
    "allow_right_merge",
}


def test_a_pass_is_called_like_its_module() -> None:
    """Each module in `passes` and its folders has one pass of its name; the pipeline runs all."""
    folders = [passes, *(import_module(f"{passes.__name__}.{name}") for name in FAMILIES)]
    modules = {
        module.name for folder in folders for module in pkgutil.iter_modules(folder.__path__)
    }

    assert sorted(each.name for each in PIPELINE) == sorted(modules - FAMILIES)
    for each in PIPELINE:
        parts = each.function.__module__.split(".")[2:]
        assert next(part for part in parts if part not in FAMILIES) == each.name


def test_a_pass_is_called_like_its_option() -> None:
    """An option has the name of its pass, unless Kaldi has another name for it."""
    options = {field.name for field in attrs.fields(OptimizeOptions)} - {"optimize", "verify"}
    single = {each.name for each in PIPELINE} - WITHOUT_OPTION - SEVERAL_OPTIONS

    assert options - OPTIONS_OF_SEVERAL == {OPTION_OF_ANOTHER_NAME.get(n, n) for n in single}
    for name in single - {"memory_compression"}:
        option = OPTION_OF_ANOTHER_NAME.get(name, name)
        [each] = [each for each in PIPELINE if each.name == name]
        assert each.wanted(OptimizeOptions(**{option: True}))
        assert not each.wanted(OptimizeOptions(**{option: False}))


def test_what_runs_without_optimization() -> None:
    """`optimize=False` keeps only moving inputs and outputs, and what other options request."""
    options = OptimizeOptions(optimize=False, memory_compression_level=1, max_deriv_time=3)

    assert [each.name for each in PIPELINE if each.wanted(options)] == [
        "limit_derivative_times",
        "trim_matrices",
        "consolidate_io",
        "memory_compression",
        "renumber",
    ]
