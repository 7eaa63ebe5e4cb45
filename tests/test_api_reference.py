"""``docs/api.md`` describes every exported name, and the examples of their docstrings run."""

import doctest
import inspect
import re
from pathlib import Path

import pytest

import contrastive_encoders

PAGE = Path(__file__).resolve().parents[1] / "docs" / "api.md"
FAQ = "question,answer\n" + "".join(f"What is thing {n}?,Thing {n} is a boat.\n" for n in range(32))
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def test_the_page_lists_exactly_the_exported_names():
    listed = re.findall(r"^\.\. auto\w+:: (\w+)$", PAGE.read_text(encoding="utf-8"), re.M)
    assert sorted(listed) == sorted(name for name in contrastive_encoders.__all__ if not name.startswith("__"))


@pytest.mark.rotates
@pytest.mark.parametrize("name", [name for name in contrastive_encoders.__all__ if not name.startswith("__")])
def test_the_example_of_an_exported_name_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WANDB_MODE")  # transformers prints that it is offline
    (tmp_path / "faq.csv").write_text(FAQ, encoding="utf-8")  # that examples name
    docstring = inspect.getdoc(getattr(contrastive_encoders, name))
    example = doctest.DocTestParser().get_doctest(docstring, {}, name, None, 0)
    assert example.examples
    report = []
    failed, _ = doctest.DocTestRunner(optionflags=FLAGS).run(example, out=report.append)
    assert failed == 0, "".join(report)
