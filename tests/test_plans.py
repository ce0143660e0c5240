"""Plans of the reference cases, of current networks and of loops pass their check.

With UPDATE_PLANS=1 in the environment, the tests write `tests/golden_plans` anew.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

import pytest
from checked_plans import REWRITES, checked_plan, rewrites_of
from nnet3 import CachingCompiler
from nnet3_compiler import compile_computation, compile_looped, looped_requests
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_descriptors import parse_config, read_nnet, set_test_mode
from nnet3_optimizer import optimize
from nnet3_runtime_cuda import DeviceNnet, Plan, check_plan, format_plan, make_plan
from nnet3_runtime_cuda.lowering.plan import (
    deferred_derivatives,
    deferred_outputs,
    known_inputs,
    splices,
    step_panels,
)
from reference_cases import ReferenceCase, computation_request, parametrize_cases

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from networks import BENCHMARKS

GOLDEN = Path(__file__).resolve().parent / "golden_plans"

SCALE = 0.03
"""Relative to the hidden sizes of benchmark networks."""


def _set_most_rows(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Limits the rows of a step to `most`, allows splices more, and makes few steps enough."""
    for module in (known_inputs, deferred_derivatives, deferred_outputs):
        monkeypatch.setattr(module, "MOST_ROWS", most)
    monkeypatch.setattr(splices, "FEWEST_ROWS", most + 1)
    monkeypatch.setattr(known_inputs, "FEWEST_STEPS", 1)
    monkeypatch.setattr(deferred_outputs, "FEWEST_STEPS", 1)
    monkeypatch.setattr(step_panels, "FEWEST_STEPS", 2)
    for module in (deferred_outputs, step_panels):
        monkeypatch.setattr(module, "FEWEST_PARAMETERS", 1)


@parametrize_cases()
def test_reference_cases(case: ReferenceCase, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan of a reference case with every rewrite passes the check, optimized or not."""
    nnet = read_nnet(case.network_path)
    if case.test_mode:
        nnet = set_test_mode(nnet)
    compiled = compile_computation(nnet, computation_request(case))
    for computation in (compiled, optimize(nnet, compiled)):
        for most in (1, 4, 48):
            _set_most_rows(monkeypatch, most)
            checked_plan(nnet, computation)


def _benchmark_plan(name: str, *, train: bool) -> Plan:
    """The checked plan of a small benchmark network, for two sequences."""
    benchmark = BENCHMARKS[name]
    nnet = parse_config(benchmark.config(SCALE))
    if not train:
        nnet = set_test_mode(nnet)
    return checked_plan(nnet, CachingCompiler(nnet).compile(benchmark.request(2, train=train)))


def test_plans_of_networks_of_today(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plans equal their golden texts, and contain every kind of rewrite."""
    for module in (deferred_outputs, step_panels):
        monkeypatch.setattr(module, "FEWEST_PARAMETERS", 1)
    occurring: Counter[str] = Counter()
    found, expected = {}, {}
    for name in BENCHMARKS:
        for what in ("use", "training"):
            plan = _benchmark_plan(name, train=what == "training")
            occurring += rewrites_of(plan)
            file = GOLDEN / f"{name}-{what}.txt"
            found[file.name] = format_plan(plan)
            if os.environ.get("UPDATE_PLANS") == "1":
                file.write_text(found[file.name])
            expected[file.name] = file.read_text()

    assert found == expected
    assert min(occurring[name] for name in REWRITES) > 0, occurring


def test_documented_lines() -> None:
    """The documentation shows lines of the golden text of a plan."""
    page = (GOLDEN.parents[1] / "docs" / "runtime.md").read_text()
    shown = page.split("```\n")[1].splitlines()

    assert len(shown) == 4
    assert set(shown) <= set((GOLDEN / "tdnn-lstm-training.txt").read_text().splitlines())


RECURRENT = """
input-node name=input dim=3
component name=affine type=AffineComponent input-dim=10 output-dim=4
component-node name=affine component=affine \
    input=Append(Offset(input, -1), input, IfDefined(Offset(tanh, -DELAY)))
component name=tanh type=TanhComponent dim=4
component-node name=tanh component=tanh input=affine
component name=last type=AffineComponent input-dim=8 output-dim=2
component-node name=last component=last input=Append(tanh, IfDefined(Offset(tanh, -1)))
output-node name=output input=last
"""


@pytest.mark.parametrize(("delay", "chunk"), [(1, 3), (1, 6), (2, 6), (3, 6)])
def test_loops(delay: int, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of an optimized loop use products computed in the same round."""
    monkeypatch.setattr(known_inputs, "FEWEST_STEPS", 1)
    nnet = parse_config(RECURRENT.replace("DELAY", str(delay)))
    looped = compile_looped(
        nnet, looped_requests(nnet, chunk), optimize=lambda compiled: optimize(nnet, compiled)
    )

    plan = checked_plan(nnet, looped)

    first = [product.steps[0].position for product in plan.early]
    assert max(first) > looped.segment_ends[0]


def test_plans_that_are_bound() -> None:
    """The plan for the capabilities of a real machine passes the check, too."""
    nnet = parse_config(RECURRENT.replace("DELAY", "1"))
    io = [
        IoSpecification.from_range(name, *times, has_deriv=True)
        for name, times in (("input", (-1, 30)), ("output", (0, 30)))
    ]
    request = ComputationRequest(inputs=(io[0],), outputs=(io[1],), need_model_derivative=True)
    computation = CachingCompiler(nnet).compile(request)

    plan = make_plan(DeviceNnet(nnet, threads=1, trainable=True), computation)

    assert plan.early
    assert plan.late
    check_plan(nnet, computation, plan)
