"""What is done wrong, and the errors that say so, in the errors.txt beside tests.

Each part of such a text is run as doctest does, with the names of the module of tests that its
title begins with, in an empty folder. An error stands there by its name and its whole text. The
source archive of a package has this file beside its text.
"""

import doctest
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

HERE = Path(__file__).parent


def parts() -> Iterator[Any]:
    """The parts of all texts, each with the module that its title names."""
    texts = (HERE.glob(f"{place}errors.txt") for place in ("", "../tests/", "*/tests/"))
    for path in sorted({path.resolve() for paths in texts for path in paths}):
        for part in re.split("^# ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
            title, _, text = part.partition("\n")
            module = path.with_name(f"test_{title.partition(':')[0]}.py")
            yield pytest.param(module, text, id=f"{path.parts[-3]}: {title}")


class Checker(doctest.OutputChecker):
    """Leaves out the modules of exceptions, and what is printed where nothing is said about it."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        """Whether a text is as expected."""
        text = re.sub(r"^(\w+\.)+", "", got)
        return not want or super().check_output(want, text, optionflags)


def imported(path: Path) -> ModuleType:
    """A module of tests."""
    spec = importlib.util.spec_from_file_location(f"errors_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def differences(text: str, names: dict[str, Any]) -> str:
    """What Python says of examples in place of what is written there, or nothing."""
    examples = doctest.DocTestParser().get_examples(text)
    for each in examples:
        each.exc_msg = each.want or None
    run = doctest.DocTestRunner(Checker(), optionflags=doctest.ELLIPSIS)
    said: list[str] = []
    run.run(doctest.DocTest(examples, names, "errors", None, 0, text), out=said.append)
    return "".join(said)


@pytest.mark.parametrize(("module", "text"), [*parts()])
def test_errors(module: Path, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error is raised, and has this text."""
    monkeypatch.syspath_prepend(module.parent)
    names = vars(imported(module))
    monkeypatch.chdir(tmp_path)
    names = {**names, "tmp_path": Path(), "monkeypatch": monkeypatch}

    assert not differences(text, names)
