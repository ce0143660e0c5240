"""The examples of the package's README run and print the output shown."""

from pathlib import Path

from nnet3_descriptors import component_class, component_types
from nnet3_descriptors.components import UpdatableComponent

PACKAGE = Path(__file__).resolve().parents[1]


def component_table() -> str:
    """Returns the table of component types, from their declarations."""
    training = {spec.name for spec in UpdatableComponent.FIELDS}
    lines = ["| type | parameters | other fields |", "|---|---|---|"]
    for name in component_types():
        cls = component_class(name)
        parameters = [f"`{spec.name}`" for spec in cls.FIELDS if spec.parameter]
        others = ["*training*"] if issubclass(cls, UpdatableComponent) else []
        others += [
            f"`{spec.name}`"
            for spec in cls.FIELDS
            if not spec.parameter and spec.name not in training
        ]
        lines.append(
            f"| {name.removesuffix('Component')} | {', '.join(parameters)} | {', '.join(others)} |"
        )
    return "\n".join(lines) + "\n"


def test_component_table() -> None:
    """The table of component types and their fields is that of the code."""
    text = (PACKAGE / "README.md").read_text()

    assert len(component_types()) == 46
    assert component_table() in text
