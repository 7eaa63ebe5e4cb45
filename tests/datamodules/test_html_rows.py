"""HTML in rows: what is trained on, what is counted, and when the message names the key."""

import csv
import json
import re

import pytest

from contrastive_encoders.cli.preview import read_arguments
from contrastive_encoders.core import InputError
from contrastive_encoders.training.data_summary import account_of
from contrastive_encoders.training.preview.sample import read_sample
from tests.data import data_module, write_rows

ROWS = {
    "qa": {"question": "<p>Where &amp; when?</p>", "answer": "a < b<br>now"},
    "triplets": {"anchor": "<p>Where &amp; when?</p>", "positive": "a < b<br>now"},
    "nli": {"premise": "<p>Where &amp; when?</p>", "hypothesis": "a < b<br>now", "label": 0},
    "dino": {"sentence1": "<p>Where &amp; when?</p>", "sentence2": "a < b<br>now", "score": 0.25},
    "scored_triplets": {
        "anchor": "<p>Where &amp; when?</p>",
        "positive": "a < b<br>now",
        "negative": "no",
        "scores": [1, 0],
    },
    "sentences": {"text": "<p>Where &amp; when?</p>"},
    "text": {"text": "<p>Where &amp; when?</p>"},
}


def module(kind, path, backbone, tmp_path, **keys):
    return data_module(kind, path=path, tokenizer=backbone, cache_dir=tmp_path / "cache", **keys)


def rows_of(data):
    """Return the texts as they are read, before pairs are post-processed."""
    return list(getattr(data, "records", data).texts())


@pytest.mark.parametrize("kind", ROWS)
def test_every_kind_of_rows(kind, tiny_bert, tmp_path):
    path = write_rows(tmp_path / "rows.jsonl", [ROWS[kind]])
    texts = rows_of(module(kind, path, tiny_bert, tmp_path, strip_html=True))
    assert texts[:2] == ["Where & when?", "a < b\nnow"][: len(texts)]
    assert rows_of(module(kind, path, tiny_bert, tmp_path))[0] == "<p>Where &amp; when?</p>"


def test_lists_in_a_table(tiny_bert, tmp_path):
    path = tmp_path / "lists.csv"
    with path.open("w", newline="") as stream:
        lists = [json.dumps(["<p>a</p>\n<p>b</p>", '<a href="x">c</a>']), json.dumps(["<br>", "<b>d</b>"])]
        csv.writer(stream).writerows([["query", "pos", "neg"], ["<i>q</i>", *lists]])
    assert list(module("qa", path, tiny_bert, tmp_path, strip_html=True).texts()) == ["q", "a\nb", "c", "d"]


def test_an_emptied_cell_is_empty(tiny_bert, tmp_path):
    rows = [{"question": "one", "answer": "<p>&nbsp;</p>"}, {"question": "two", "answer": "<p>2</p>"}]
    path = write_rows(tmp_path / "qa.jsonl", rows)
    with pytest.raises(InputError):
        list(module("qa", path, tiny_bert, tmp_path, strip_html=True).texts())
    data = module("qa", path, tiny_bert, tmp_path, strip_html=True, on_error="skip")
    assert list(data.texts()) == ["two", "2"]
    assert data.records.manifest()["empty"] == 1


@pytest.mark.parametrize("kind", ["qa", "text"])
def test_the_key_is_part_of_the_fingerprint(kind, tiny_bert, tmp_path):
    path = write_rows(tmp_path / "rows.jsonl", [ROWS[kind]])
    prints = [
        module(kind, path, tiny_bert, tmp_path, **keys).source().fingerprint()
        for keys in ({}, {"strip_html": False}, {"strip_html": True})
    ]
    assert prints[0] == prints[1] != prints[2]


@pytest.mark.parametrize(
    ("cells", "keys", "is_shown"),
    [
        (["<p>x</p>"] * 2 + ["x"] * 8, {}, True),
        (["<p>x</p>"] * 1 + ["x"] * 9, {}, False),
        (["a < b", "x <- 3", "List<String>"] + ["x"] * 7, {}, False),
        (["<p>x</p>"] * 2 + ["x"] * 8, {"strip_html": True}, False),
        (["<p>&lt;p&gt;</p>"] * 10, {"strip_html": True}, False),
    ],
)
@pytest.mark.parametrize("kind", ["qa", "sentences", "dino"])
def test_rows_with_tags_are_counted(kind, cells, keys, is_shown, tiny_bert, tmp_path):
    rows = {
        "qa": [{"question": f"q {place}", "answer": cell} for place, cell in enumerate(cells)],
        "sentences": [{"text": f"{place} {cell}"} for place, cell in enumerate(cells)],
        "dino": [{"sentence1": f"{n}", "sentence2": cell, "score": 0.3 + n / 20} for n, cell in enumerate(cells)],
    }
    data = module(kind, write_rows(tmp_path / "rows.jsonl", rows[kind]), tiny_bert, tmp_path, **keys)
    data.prepare_data()
    data.setup()
    manifest = data.manifest()
    line = dict(account_of(manifest)).get("HTML")
    assert (line is not None) == is_shown
    if is_shown:
        assert "2 of 10 rows" in line
        assert "data.strip_html=true" in line
        assert "data.parts.faq.strip_html=true" in dict(account_of({"parts": {"faq": manifest}}))["HTML"]


@pytest.mark.advice("contrastive_encoders.training.data_summary:_html")
def test_the_hint_works_on_the_command_line(tiny_bert, tmp_path):
    path = write_rows(tmp_path / "qa.jsonl", [{"question": f"q {n}", "answer": f"<p>{n}</p>"} for n in range(10)])
    overrides = ["data=qa", f"data.path={path}", f"backbone={tiny_bert}", f"data.cache_dir={tmp_path / 'cache'}"]
    overrides += ["batch_size=2"]
    facts = read_sample(read_arguments(overrides).run, 1, 1).facts
    [hint] = re.findall(r"Set (\S+=\S+)\.", dict(facts)["HTML"])
    facts = read_sample(read_arguments([*overrides, hint]).run, 1, 1).facts
    assert "HTML" not in dict(facts)
