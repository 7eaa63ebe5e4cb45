"""The documentation corpus: read from source files without importing them, with separate held-out modules."""

import inspect
import re
import sys

import pytest
from transformers import AutoTokenizer

from contrastive_encoders.cli import download_data
from contrastive_encoders.core import InputError
from contrastive_encoders.datamodules.sources import docstrings, pydocs
from contrastive_encoders.datamodules.sources.docstrings import Module, docstrings_of
from contrastive_encoders.datamodules.sources.pydocs import (
    PydocsSource,
    is_held_out,
    split_summary,
    without_task,
)
from contrastive_encoders.datamodules.sources.row_schemas import QA
from contrastive_encoders.evaluation.catalog import load_tasks
from contrastive_encoders.evaluation.download.fetch import fetch
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.training.data_summary import account_of
from tests.data import RecordSource, batches, data_module, sequences_of

SOURCE = '''
"""Module text.

    Indented part.
"""
import does_not_exist_anywhere
class A:
    """Class text."""
    def f(self):
        r"""Method \\d text."""
        def inner():
            "Inner text."
    x = """not a docstring"""
try:
    pass
except ImportError:
    async def g(): """Async text."""
else:
    def blank():
        "   "
if x:
    def k(): "K text."
'''


def test_docstrings_in_source_order_and_cleaned():
    assert docstrings_of(SOURCE.encode()) == [
        *("Module text.\n\nIndented part.", "Class text.", "Method \\d text.", "Inner text.", "Async text.", "K text.")
    ]


@pytest.mark.parametrize("broken", [b"def f(:", b"x = '\0'", b"print 'python 2'", b"\xff\xfe", b'"\\ud800 alone"'])
def test_what_is_no_python_has_no_docstrings(broken):
    assert docstrings_of(broken) == []


@pytest.mark.parametrize("module", ["argparse", "json.decoder", "pathlib"])
def test_agrees_with_the_imported_module(module):
    __import__(module)
    imported = sys.modules[module]
    texts = docstrings_of(inspect.getsource(imported).encode())
    if imported.__doc__:
        assert texts[0] == inspect.cleandoc(imported.__doc__)
    for _, thing in inspect.getmembers(imported, lambda x: inspect.isclass(x) or inspect.isfunction(x)):
        if thing.__module__ == module and thing.__doc__:
            assert inspect.cleandoc(thing.__doc__) in texts


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Make an environment of forty documented modules and some that must be left out."""
    root = tmp_path / "site"

    def write(name, *texts):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        body = "\n".join(f'def f{i}():\n    """{text}"""' for i, text in enumerate(texts))
        path.write_text(f"raise SystemExit('imported')\n{body}\n")

    for i in range(40):
        write(f"pack/m{i:02}.py", *(_docstring(i, j) for j in range(4)))
    write("pack/short.py", "Too short.")
    write("pack/tests/test_x.py", *(_docstring(98, j) for j in range(4)))
    write("pack/_vendor/v.py", *(_docstring(99, j) for j in range(4)))
    write("pack/copy.py", *(_docstring(3, j) for j in range(4)), "and more")
    (root / "pack-1.0.dist-info").mkdir()
    monkeypatch.setattr(docstrings, "roots", lambda: [root])
    monkeypatch.setattr(pydocs, "HELD_OUT_PACKAGES", {"pack"})
    return root


def _docstring(i, j):
    body = "\n".join(f"    Line {k} of part {j} in module {i} tells of thing {i * j + k}." for k in range(8))
    return f"Return the value number{j} of module number{i} here.\n\n{body}\n    "


def make(tmp_path, **kwargs):
    return PydocsSource(tmp_path / "cache", **{"held_out_every": 5, "held_out_part": 0, "min_words": 150, **kwargs})


def test_documents_are_the_modules_that_are_not_held_out(site, tmp_path):
    source = make(tmp_path)
    named = {document.where: document.text for document in source.documents()}
    trained = [f"pack.m{i:02}" for i in range(40) if not is_held_out(f"pack.m{i:02}", 5)]
    expected = [f"docstrings of {name}:1" for name in trained]
    if not is_held_out("pack.m03", 5):  # sorted before its original, the copy has the text
        expected = ["docstrings of pack.copy:1", *(name for name in expected if "m03" not in name)]
    assert sorted(named) == sorted(expected)
    assert 20 < len(named) < 40
    text = named[f"docstrings of {trained[-1]}:1"]
    assert text == "\n\n".join(inspect.cleandoc(_docstring(int(trained[-1][-2:]), j)) for j in range(4))
    assert list(source.texts()) == list(named.values())


def test_held_out_task_is_of_other_modules(site, tmp_path):
    source = make(tmp_path)
    (task,) = source.held_out()
    held = [i for i in range(40) if is_held_out(f"pack.m{i:02}", 5)]
    assert len(task.queries) == len(task.documents) == 4 * len(held) > 0
    for query, document in zip(task.queries, task.documents, strict=True):
        assert int(query.split("module number")[1].split()[0]) in held
        assert f"of part {query.split('number')[1].split()[0]} in module" in document
        assert document == " ".join(document.split())
        assert not any(document in " ".join(text.split()) or query in text for text in source.texts())
    assert make(tmp_path, held_out_every=0).held_out() == []
    (other,) = make(tmp_path, held_out_part=1).held_out()
    assert other.queries
    assert not set(other.queries) & set(task.queries)
    with pytest.raises(InputError) as error:
        make(tmp_path, held_out_part=5)
    assert (error.value.key, error.value.value) == ("data.held_out_part", 5)
    assert "0 to 4" in error.value.expected


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("{query}\n\n{start} and what was never said before, in words that fill this line.", False),  # half of it
        ("QUITE ANOTHER SUMMARY.\n\n  {upper}", False),  # white space and case
        ("{query}\n\nOther words than those of what is asked for stand below this very same summary.", False),
        ("Quite another summary.\n\n{start8} {other}", True),  # one common run of tokens
    ],
)
def test_near_copies_of_the_task_are_not_trained_on(text, taken):
    words = [f"word{n}" for n in range(40)]
    task = [("Compute the mean of rows.", " ".join(words))]
    given = {"query": "Compute the  mean of ROWS", "start": " ".join(words[3:25]), "upper": " ".join(words).upper()}
    given |= {"start8": " ".join(words[:8]), "other": " ".join(f"else{n}" for n in range(40))}
    (module,) = without_task([Module("m", [text.format(**given)])], task)
    assert bool(module.docstrings) is taken


def test_pairs_are_summaries_and_what_follows_them(site, tmp_path, tiny_bert):
    keys = {"held_out_every": 5, "min_words": 150, "cache_dir": tmp_path / "cache", "tokenizer": tiny_bert}
    data = data_module("pydocs_pairs", max_length=64, batch_size=8, **keys)
    first, *_ = batches(data, 1)
    tokens = AutoTokenizer.from_pretrained(tiny_bert)
    known = {
        tuple(tuple(tokens(side, truncation=True, max_length=64)["input_ids"]) for side in split_summary(text))
        for document in make(tmp_path).documents()
        for text in split(document.text)
    }
    drawn = list(zip(sequences_of(first.anchors), sequences_of(first.positives), strict=True))
    assert len(drawn) == 8
    assert {(tuple(anchor), tuple(positive)) for anchor, positive in drawn} <= known
    assert first.negatives is None
    assert len(data.held_out()[0].queries) > 0
    # The vocabulary of the tiny tokenizer covers docstrings badly.
    assert [name for name, _ in account_of(data.manifest())] == ["length", "unknown"]


def split(document):
    """Return the docstrings of a document that `_docstring` has written."""
    return [f"Return{part}" for part in document.split("Return")[1:]]


def test_too_little_documentation_is_refused(site, tmp_path):
    with pytest.raises(InputError) as caught:
        list(make(tmp_path, min_words=100_000).documents())
    assert (caught.value.key, caught.value.value) == ("data.min_words", 100_000)
    with pytest.raises(InputError) as caught:
        make(tmp_path, held_out_every=1)
    assert (caught.value.key, caught.value.value) == ("data.held_out_every", 1)


@pytest.mark.advice("contrastive_encoders.evaluation.download.registry:_sets")
def test_prepare_writes_the_pairs_and_the_table_of_their_task(site, tmp_path, tiny_bert):
    for i in range(40):
        body = "\n".join(f'def f{j}():\n    """{_docstring(i, j)}"""' for j in range(16))
        (site / f"pack/m{i:02}.py").write_text(body)
    output = tmp_path / "eval"
    table = output / "STSBenchmark" / "test.tsv"  # not written by this package
    table.parent.mkdir(parents=True)
    table.write_text("as it was")
    with pytest.raises(InputError) as refused:
        fetch(output, ["pydocs"])
    [advised] = re.findall(r"contrastive-encoders download-data (.*)\.", refused.value.hint)
    arguments = advised.replace("DATA_ROOT", str(output)).split()
    assert download_data.prepare(download_data.read_arguments(arguments)) == 0
    data = data_module("pydocs_pairs", cache_dir=tmp_path / "cache", tokenizer=tiny_bert)
    (wanted,) = data.held_out()
    (task,) = load_tasks(output, "pydocs", EvaluateConfig()).tasks
    assert (task.queries, task.documents) == (wanted.queries, wanted.documents)
    assert len(task.queries) > 20
    rows = [one.texts for one in RecordSource(str(output / "pydocs" / "pairs.jsonl"), QA)]
    trained = {query for text in make(tmp_path, held_out_every=10, min_words=1024).texts() for query in summaries(text)}
    assert {query for query, _ in rows} == trained
    assert table.read_text() == "as it was"


def test_download_data_names_the_packages_that_pydocs_needs(site, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(pydocs, "HELD_OUT_PACKAGES", {"another"})
    with pytest.raises(SystemExit) as ended:
        download_data.main(["pydocs", f"output={tmp_path / 'out'}"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("contrastive-encoders download-data: pydocs: ")


def test_prepare_does_not_change_a_foreign_directory(tmp_path):
    (tmp_path / "pydocs").mkdir()
    (tmp_path / "pydocs" / "mine.txt").write_text("as it was")
    with pytest.raises(InputError) as error:
        download_data.prepare(download_data.read_arguments(["pydocs", f"output={tmp_path}"]))
    assert all(name in str(error.value) for name in (str(tmp_path / "pydocs"), "mine.txt"))
    assert [path.name for path in tmp_path.rglob("*")] == ["pydocs", "mine.txt"]


def test_prepare_does_not_change_a_foreign_list_of_sources(tmp_path):
    (tmp_path / "sources.json").write_text('["mine"]')
    with pytest.raises(InputError) as error:
        download_data.prepare(download_data.read_arguments(["pydocs", f"output={tmp_path}"]))
    assert all(name in str(error.value) for name in (str(tmp_path), "sources.json"))
    assert [path.name for path in tmp_path.rglob("*")] == ["sources.json"]


def summaries(document):
    return {split_summary(text)[0] for text in split(document)}


def test_neighbors_are_held_out_together_and_about_one_in_ten(monkeypatch):
    monkeypatch.setattr(pydocs, "HELD_OUT_PACKAGES", {"scipy", *(f"package{i}" for i in range(5000))})
    assert {is_held_out(f"scipy.stats._x{i}", 10) for i in range(50)} == {is_held_out("scipy.stats", 10)}
    share = sum(is_held_out(f"package{i}.part", 10) for i in range(5000)) / 5000
    assert 0.08 < share < 0.12
