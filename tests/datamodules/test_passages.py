"""Pairs of documents without labels: passages, titles, neighbors, spans."""

import itertools
import json
import random
import re

import pytest

from contrastive_encoders.core import InputError
from contrastive_encoders.core.config_schema import build
from contrastive_encoders.datamodules.data_configs import DocumentDataConfig
from contrastive_encoders.datamodules.passages import (
    LONGEST,
    NEIGHBORS,
    SHORTEST,
    SPANS,
    TITLES,
    PassagePairs,
    pairs_of,
    passages_of,
    spans_of,
)
from contrastive_encoders.datamodules.sources.raw_documents import RawDocument
from contrastive_encoders.training.data_summary import account_of
from tests.data import as_rank, write_rows
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
    passages = passages_of(RawDocument(text.replace(". ", ".\n\n"), "a:1"))
    assert " ".join(one.text for one in passages) == text
    lengths = [len(one.text.split()) for one in passages]
    assert max(lengths) <= LONGEST + SHORTEST
    assert all(length >= SHORTEST for length in lengths[1:])


def test_a_title_goes_with_each_passage_and_neighbors_with_each_other():
    passages = passages_of(RawDocument(sentences(20), "a:1", "On wings"))
    found = list(pairs_of(passages))
    texts = [one.text for one in passages]
    assert [pair for _, kind, pair in found if kind == TITLES] == [("On wings", text) for text in texts]
    assert [pair for _, kind, pair in found if kind == NEIGHBORS] == list(itertools.pairwise(texts))
    assert all(pair[1] in texts[place] for place, _, pair in found)


def test_a_title_without_letters_is_none():
    assert {kind for _, kind, _ in pairs_of(passages_of(RawDocument(sentences(20), "a:1", "12.3 --")))} == {
        NEIGHBORS,
        SPANS,
    }


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
    given = {
        "batch_size": 4,
        "quiet": True,
        "path": path if isinstance(path, list) else str(path),
        "cache_dir": cache,
        "max_length": 64,
        **keys,
    }
    return PassagePairs(build(DocumentDataConfig, settings("data", "text", **given), "data."))


def test_pairs_of_one_passage_are_of_one_group(tmp_path, tiny_bert):
    data = as_rank(module(corpus(tmp_path / "corpus.jsonl"), tmp_path, tokenizer=str(tiny_bert), batch_size=8), 0, 1)
    groups = dict[int, set]()
    for batch in data.train_dataloader():
        for row, group in zip(batch.rows, batch.groups.tolist(), strict=True):
            groups.setdefault(group, set()).add(int(row))
    found = data.manifest()["source"]
    assert len(groups) <= found["passages"]
    assert max(map(len, groups.values())) == 3
    assert all(max(rows) - min(rows) < 3 for rows in groups.values())
    assert set(found["pairs_by_kind"]) == {TITLES, NEIGHBORS, SPANS}


def test_pairs_that_are_made_are_no_copies_of_the_user(tmp_path, tiny_bert):
    """Each document occurs twice, and so does each pair; the report of duplicates names no row of a file."""
    rows = [{"title": f"On {n}", "text": sentences(20, n)} for n in range(4)] * 2
    path = write_rows(tmp_path / "twice.jsonl", rows)
    data = as_rank(module(path, tmp_path, tokenizer=str(tiny_bert), batch_size=4), 0, 1)
    texts = [tuple(data.store.text(row, column).tobytes() for column in (0, 1)) for row in range(len(data.store))]
    assert len(set(texts)) == len(texts) // 2
    assert data.manifest()["repeated"] == 0


@pytest.mark.parametrize(
    ("title", "kind", "query_kind"),
    [(True, TITLES, "titles"), (False, SPANS, "spans")],
)
def test_no_passage_that_is_found_holds_what_another_query_asks(tmp_path, tiny_bert, title, kind, query_kind):
    path = corpus(tmp_path / "corpus.jsonl", title=title)
    data = as_rank(module(path, tmp_path, tokenizer=str(tiny_bert), held_out_fraction=0.3), 0, 1)
    (task,) = data.held_out()
    relevant = task.relevant or [{row: 1.0} for row in range(len(task.queries))]
    for query, gain in zip(task.queries, relevant, strict=True):
        assert not any(query in found for place, found in enumerate(task.documents) if place not in gain)
    titles = {json.loads(line).get("title") for line in path.read_text().splitlines()}
    assert (set(task.queries) <= titles) == title
    assert (data.manifest()["source"]["held_out"]["scored"], task.query_kind) == (kind, query_kind)


def test_titles_are_ranked_among_all_passages_also_of_documents_without_a_title(tmp_path, tiny_bert):
    titled, plain = corpus(tmp_path / "titled.jsonl"), tmp_path / "plain.jsonl"
    plain.write_text("".join(json.dumps({"text": sentences(30, seed)}) + "\n" for seed in range(100, 200)))
    data = module([str(titled), str(plain)], tmp_path, tokenizer=str(tiny_bert), held_out_fraction=0.1)
    (task,) = as_rank(data, 0, 1).held_out()
    rows = [json.loads(line) for path in (titled, plain) for line in path.read_text().splitlines()]
    passages = [one.text for row in rows for one in passages_of(RawDocument(row["text"], "a:1"))]
    assert sorted(task.documents) == sorted(passages)
    assert task.query_kind == "titles"
    assert 10 <= len(task.queries) <= 20, "titled documents are held out first: a tenth of the rows has 10 of them"


def test_documents_that_give_no_pair_are_counted(tmp_path, tiny_bert):
    """39 words without a title give no pair, and neither does a title without letters; 40 words give two spans."""
    words = [f"w{number}" for number in range(40)]
    rows = [{"text": " ".join(words[n % 2 :])} for n in range(9)]  # 5 of 40 words, 4 of 39 words
    rows += [{"title": "On brevity", "text": "Short."}, {"title": "12.3", "text": "Short."}]
    data = as_rank(module(write_rows(tmp_path / "documents.jsonl", rows), tmp_path, tokenizer=str(tiny_bert)), 0, 1)
    found = data.manifest()
    source = found["source"]
    assert (source["documents"], source["documents_without_pairs"]) == (11, 5)
    assert source["pairs_by_kind"] == {SPANS: 5, TITLES: 1}
    assert re.search(r"\b5 of 11 documents\b.*\b40 words", dict(account_of(found))["pairs"])


def test_documents_of_a_few_words_are_refused(tmp_path, tiny_bert):
    (tmp_path / "short.txt").write_text("a short line\n" * 50)
    with pytest.raises(InputError) as error:
        as_rank(module(tmp_path / "short.txt", tmp_path, tokenizer=str(tiny_bert)), 0, 1)
    assert error.value.location == str(tmp_path / "short.txt")
    assert "data=qa" in error.value.hint
