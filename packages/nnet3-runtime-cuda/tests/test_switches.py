"""The environment variables that choose how products are computed."""

from pathlib import Path

import pytest
from computations import single
from nnet3 import Model
from nnet3_runtime_cuda import DeviceNnet, RunError
from nnet3_runtime_cuda.cpu import products
from nnet3_runtime_cuda.cpu.products import BLAS, PANELS, TILES, Switch
from nnet3_runtime_cuda.cpu.tape import NumpyTape

SWITCHES = (BLAS, PANELS, TILES)
each_switch = pytest.mark.parametrize("switch", SWITCHES, ids=lambda switch: switch.variable)


@each_switch
def test_values(switch: Switch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each allowed value is chosen; without the variable, or if it is empty, none is."""
    monkeypatch.delenv(switch.variable, raising=False)
    assert switch.chosen() is None
    for value in ("", *switch.values):
        monkeypatch.setenv(switch.variable, value)
        assert switch.chosen() == (value or None)


@each_switch
@pytest.mark.parametrize("kind", [Model, DeviceNnet])
def test_unknown_values(
    switch: Switch, kind: type[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown value is refused at once, with the variable, the allowed values, and the value."""
    nnet = single("type=AffineComponent input-dim=2 output-dim=3", dim=2)
    monkeypatch.setenv(switch.variable, "foo")

    *others, last = map(repr, switch.values)
    message = f"^{switch.variable}: expected {', '.join(others)} or {last}, found 'foo'$"
    with pytest.raises(RunError, match=message):
        kind(nnet)


@pytest.mark.parametrize(("value", "wanted"), [("0", False), ("1", True), ("", True)])
def test_tiles(value: str, wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles are used unless the variable is 0."""
    monkeypatch.setenv(TILES.variable, value)

    assert NumpyTape().uses_tiles() is wanted


def test_all_are_described() -> None:
    """The README names every variable, with its values."""
    readme = (Path(__file__).parents[1] / "README.md").read_text()

    assert {each for each in vars(products).values() if isinstance(each, Switch)} == set(SWITCHES)
    for switch in SWITCHES:
        values = ", ".join(f"`{value}`" for value in switch.values)
        assert f"| `{switch.variable}` | {values} |" in readme
