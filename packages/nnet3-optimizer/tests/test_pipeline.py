"""The names of passes, and the passes of other packages, which run after the optimizer's."""

import pkgutil

import attrs
from nnet3_compiler import compile_computation
from nnet3_computation import ComputationBuilder, MatrixAdd, MatrixCopy, NnetComputation
from nnet3_computation.commands import CompressMatrix
from nnet3_descriptors import Nnet
from nnet3_optimizer import OptimizeOptions, optimize, passes
from nnet3_optimizer.pipeline import PIPELINE
from small_networks import network, request_for, stacked

SECOND_MODULES = {"merge_candidates", "recompute_recipes"}
"""Modules of `passes` that belong to passes whose rules take two."""

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
    """Each module in `passes` has one pass of its name, with few exceptions."""
    modules = {module.name for module in pkgutil.iter_modules(passes.__path__)}

    assert {each.name for each in PIPELINE} == modules - SECOND_MODULES
    for each in PIPELINE:
        assert each.function.__module__ == f"{passes.__name__}.{each.name}"


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
    """`optimize=False` keeps the limits of times and moving inputs and outputs; none compresses."""
    options = OptimizeOptions(optimize=False, memory_compression_level=2, max_deriv_time=3)

    assert [each.name for each in PIPELINE if each.wanted(options)] == [
        "limit_derivative_times",
        "trim_matrices",
        "consolidate_io",
        "renumber",
    ]


def test_nothing_is_compressed_without_optimization() -> None:
    """A program of training keeps its matrices whole at each level of compression."""
    config = stacked(2, AFFINE, "relu RectifiedLinear dim=2")
    nnet = network(config.replace("input=relu", "input=Sum(relu, Scale(2, relu))"))
    request = request_for(range(4), range(4), derivs=["output"], need_model_derivative=True)
    compiled = compile_computation(nnet, request)

    for level in (0, 1, 2):
        options = OptimizeOptions(memory_compression_level=level)
        for each in (options, attrs.evolve(options, optimize=False)):
            kinds = list(map(type, optimize(nnet, compiled, each).commands))
            assert (CompressMatrix in kinds) == (each.optimize and level > 0), each


AFFINE = "affine Affine input-dim=2 output-dim=2"
NNET = network(stacked(2, AFFINE, splice="Sum(input, Offset(input, -1))"))
COMPILED = compile_computation(NNET, request_for(range(-1, 3), range(3)))
PLAIN = OptimizeOptions(optimize=False)


def swap_halves(nnet: Nnet, computation: NnetComputation) -> NnetComputation:
    """Splits each sum into two commands, for the left columns and the right ones."""
    builder = ComputationBuilder(computation)
    commands = []
    for command in builder.commands:
        if isinstance(command, MatrixCopy | MatrixAdd):
            for columns in ((1, 2), (0, 1)):
                output, given = (
                    builder.part(each, columns=columns) for each in (command.output, command.input)
                )
                fields = vars(command) | {"output": output, "input": given}
                commands.append(type(command)(**fields))
        else:
            commands.append(command)
    builder.commands = commands
    builder.matrix(5, 5)  # unused
    return builder.build()


def test_a_pass_of_ones_own_changes_the_computation() -> None:
    """The result is proven, keeps its network and request, and has nothing unused."""
    before = optimize(NNET, COMPILED, PLAIN)
    after = optimize(NNET, COMPILED, PLAIN, passes=[swap_halves])

    assert len(after.commands) > len(before.commands)
    assert len(after.matrices) == len(before.matrices)
    assert after.network == COMPILED.network
    assert after.requests == COMPILED.requests


def doubled(nnet: Nnet, computation: NnetComputation) -> NnetComputation:
    """Doubles copies, which is wrong."""
    builder = ComputationBuilder(computation)
    builder.commands = [
        type(each)(**vars(each) | {"alpha": 2.0}) if hasattr(each, "alpha") else each
        for each in builder.commands
    ]
    return builder.build()


def nothing(nnet: Nnet, computation: NnetComputation) -> None:
    """Returns nothing, by mistake."""
