"""Pairs of documents without labels: passages, titles, neighbours, spans."""

import itertools
import json
import random

import pytest

from contracts import InputError
from contracts.settings import build
from datamodules.passages import LONGEST, SHORTEST, PassagePairs, pairs_of, passages_of, spans_of
from datamodules.settings import DocumentData
from datamodules.sources.raw_documents import Document
from tests.data import as_rank
from tests.objectives import settings


def sentences(number, seed=0, words=(3, 30)):
    rng = random.Random(seed)
    return " ".join(
        " ".join(f"w{rng.randrange(10**6)}" for _ in range(rng.randint(*words))) + "." for _ in range(number)
    )


@pytest.mark.parametrize(
    "text", [sentences(1), sentences(40), sentences(3, words=(300, 400)), sentences(200, 5, (1, 3))]
)
def test_passages_have_every_word_of_the_document_in_order(text):
    passages = passages_of(Document(text.replace(". ", ".\n\n"), "a:1"))
    assert " ".join(one.text for one in passages) == text
    lengths = [len(one.text.split()) for one in passages]
    assert max(lengths) <= LONGEST + SHORTEST
    assert all(length >= SHORTEST for length in lengths[1:])


def test_a_title_goes_with_each_passage_and_nothing_else_is_made_of_it():
    passages = passages_of(Document(sentences(20), "a:1", "On wings"))
    assert len(passages) > 1
    assert list(pairs_of(passages)) == [("title and passage", ("On wings", one.text)) for one in passages]


@pytest.mark.parametrize("title", ["", "12.3 --"])
def test_without_a_title_neighbours_go_with_each_other_and_spans_come_of_one_passage(title):
    passages = passages_of(Document(sentences(20), "a:1", title))
    found, texts = list(pairs_of(passages)), [one.text for one in passages]
    assert {kind for kind, _ in found} == {"neighbouring passages", "spans of a passage"}
    assert [pair for kind, pair in found if kind == "neighbouring passages"] == list(itertools.pairwise(texts))
    spans = [pair for kind, pair in found if kind == "spans of a passage"]
    long_enough = [text for text in texts if len(text.split()) >= 2 * SHORTEST]
    assert all(one in text for pair, text in zip(spans, long_enough, strict=True) for one in pair)


def test_of_a_text_before_its_first_heading_spans_are_made():
    text = f"{sentences(12)}\n\n# Wings\n\n{sentences(12, 1)}"
    kinds = [kind for kind, _ in pairs_of(passages_of(Document(text, "a:1", markdown=text)))]
    assert set(kinds) == {"neighbouring passages", "spans of a passage", "title and passage"}
    assert kinds.index("title and passage") == len(kinds) - kinds.count("title and passage")


def test_spans_lie_side_by_side_in_their_passage():
    for seed in range(200):
        words = sentences(12, seed).split()
        short, long = spans_of(words)
        text = " ".join(words)
        assert f"{short} {long}" in text or f"{long} {short}" in text
        assert 5 <= len(short.split()) <= len(long.split()) <= len(words) // 2
        assert spans_of(words) == (short, long)


def corpus(path, number=40, title=True):
    rows = ({"text": sentences(30, seed), **({"title": f"about {seed}"} if title else {})} for seed in range(number))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def module(path, tmp_path, **keys):
    cache = str(tmp_path / "cache")
    given = {"batch_size": 4, "quiet": True, "path": str(path), "cache_dir": cache, "max_length": 64, **keys}
    return PassagePairs(build(DocumentData, settings("data", "text", **given), "data."))


def test_passages_under_an_equal_title_are_of_one_group(tmp_path, tiny_bert):
    rows = ({"text": sentences(30, seed), "title": ["rain", "bread", "glass"][seed % 3]} for seed in range(12))
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = as_rank(module(path, tmp_path, tokenizer=str(tiny_bert), batch_size=8), 0, 1)
    groups = dict[tuple, set]()
    for batch in data.train_dataloader():
        for row, group in zip(batch.rows, batch.groups.tolist(), strict=True):
            groups.setdefault(tuple(data.store.text(int(row))), set()).add(group)
    assert len(groups) == 3
    assert [len(one) for one in groups.values()] == [1, 1, 1]
    assert len(set.union(*groups.values())) == 3
    assert set(data.manifest()["source"]["pairs_by_kind"]) == {"title and passage"}


@pytest.mark.parametrize(("title", "kind"), [(True, "title and passage"), (False, "spans of a passage")])
def test_no_passage_that_is_found_holds_what_another_query_asks(tmp_path, tiny_bert, title, kind):
    path = corpus(tmp_path / "corpus.jsonl", title=title)
    data = as_rank(module(path, tmp_path, tokenizer=str(tiny_bert), held_out_share=0.3), 0, 1)
    (task,) = data.held_out()
    relevant = task.relevant or [{row: 1.0} for row in range(len(task.queries))]
    for query, gain in zip(task.queries, relevant, strict=True):
        assert not any(query in found for place, found in enumerate(task.documents) if place not in gain)
    titles = {json.loads(line).get("title") for line in path.read_text().splitlines()}
    assert (set(task.queries) <= titles) == title
    assert data.manifest()["source"]["held_out"]["scored"] == kind


def test_documents_of_a_few_words_are_refused(tmp_path, tiny_bert):
    (tmp_path / "short.txt").write_text("a few words\n" * 50)
    with pytest.raises(InputError, match=r"short\.txt.*no pairs.*data=qa"):
        as_rank(module(tmp_path / "short.txt", tmp_path, tokenizer=str(tiny_bert)), 0, 1)
