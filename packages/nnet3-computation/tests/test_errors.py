"""What is done wrong, and the errors that say so, in errors.txt.

Each part of it is run as doctest does, with the names of the module of tests that its title begins
with, in an empty folder. An error stands there by its name and its whole text.
"""

import doctest
import importlib.util
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
PARTS = re.split("^# ", (FOLDER / "errors.txt").read_text(encoding="utf-8"), flags=re.MULTILINE)


class Checker(doctest.OutputChecker):
    """Leaves out the modules of exceptions, and what is printed where nothing is said about it."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        """Whether a text is as expected."""
        text = re.sub(r"^(\w+\.)+", "", got)
        return not want or super().check_output(want, text, optionflags)


@pytest.mark.parametrize("part", PARTS[1:], ids=lambda part: part.partition("\n")[0])
def test_errors(part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error is raised, and has this text."""
    title, _, text = part.partition("\n")
    name = f"test_{title.partition(':')[0]}"
    spec = importlib.util.spec_from_file_location(f"errors_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.chdir(tmp_path)
    names = {**vars(module), "tmp_path": Path(), "monkeypatch": monkeypatch}
    examples = doctest.DocTestParser().get_examples(text)
    for each in examples:
        each.exc_msg = each.want or None
    run = doctest.DocTestRunner(Checker(), optionflags=doctest.ELLIPSIS)
    said: list[str] = []
    test = doctest.DocTest(examples, names, title, "errors.txt", 0, text)

    assert not run.run(test, out=said.append).failed, "".join(said)
