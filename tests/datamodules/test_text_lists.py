"""Rows with lists of positives and negatives, as FlagEmbedding and Tevatron write them."""

import csv
import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from transformers import AutoTokenizer

from contrastive_encoders.core import InputError, TripletBatch
from contrastive_encoders.datamodules.sources.records import RecordSource
from contrastive_encoders.datamodules.sources.row_schemas import QA, TRIPLETS
from contrastive_encoders.losses.contrastive import info_nce
from contrastive_encoders.losses.directions import contrast_in_directions
from contrastive_encoders.losses.duplicate_masking import FILLER
from tests.data import data_module, sequences_of, write_rows

WORDS = "ferry harbour clock rain string choir fog glass comet bread".split()


TABLES = {  # the form of a column of lists in a .csv
    "json": lambda texts: json.dumps(texts),
    "pandas": lambda texts: str(texts),
}


@pytest.mark.parametrize("columns", [("query", "pos", "neg"), ("anchor", "positive", "negative"), ("q", "p", "n")])
@pytest.mark.parametrize("how", TABLES)
def test_lists_in_a_csv_are_read_under_any_names(how, columns, tmp_path):
    rows = [("a", ["it's", 'b "c", d'], ["x"]), ("e", ["[f]"], [])]
    path = tmp_path / "rows.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *([one[0], *map(TABLES[how], one[1:])] for one in rows)])
    source = read(path, columns=columns if columns[0] == "q" else None)
    assert [record.texts for record in source] == [("a", "it's", 'b "c", d', "x"), ("e", "[f]", "", "")]


def test_arrays_that_numpy_printed_are_malformed(tmp_path):
    """Python would read ['a' 'b'] as ['ab']."""
    path = tmp_path / "rows.csv"
    path.write_text(f"query,pos\nc,{np.array(['a', 'b'])}\nd,e\n")
    source = read(path, on_error="skip")
    source.row_filter.max_skipped = 1
    assert [record.texts for record in source] == [("d", "e")]
    assert source.row_filter.faults["malformed"] == 1


def test_brackets_in_texts_are_no_lists(tmp_path):
    texts = ['["one"]', "[2] two", "[three]"]
    path = write_rows(tmp_path / "rows.jsonl", [{"anchor": f"a{text}", "positive": text} for text in texts])
    assert [record.texts[1] for record in read(path)] == texts


def read(path, kind=TRIPLETS, columns=None, on_error="fail"):
    return RecordSource(path, kind, columns=columns, split="train", on_error=on_error)


FLAG = [
    {
        "query": "a",
        "pos": ["b", "c"],
        "neg": [],
        "pos_scores": [1.0, 0.9],
        "neg_scores": [],
        "prompt": "p",
        "type": "t",
    },
    {"query": "d", "pos": ["e"], "neg": ["f", "g", "h", "f"], "query_id": 7},
    {"query": "i", "pos": "j", "neg": "k"},
    {"query": "l", "pos": ["m", "n"], "neg": ["n", "", None, "o"]},
]
TEVATRON = [
    {
        "query_id": "1",
        "query": row["query"],
        "positive_passages": [{"docid": text, "title": "", "text": text} for text in row["pos"]],
        "negative_passages": [{"docid": text, "text": text} for text in row["neg"] or [] if text],
    }
    for row in FLAG
]
EXPECTED = [
    ("a", "b", "c", "", "", ""),
    ("d", "e", "", "f", "g", "h"),
    ("i", "j", "", "k", "", ""),
    ("l", "m", "n", "o", "", ""),
]


@pytest.mark.parametrize("rows", [FLAG, TEVATRON], ids=["FlagEmbedding", "Tevatron"])
@pytest.mark.parametrize("kind", [QA, TRIPLETS], ids=["qa", "triplets"])
def test_lists_are_read_without_flags(rows, kind, tmp_path):
    source = read(write_rows(tmp_path / "rows.jsonl", rows), kind)
    assert [record.texts for record in source] == EXPECTED
    assert {record.positives for record in source} == {2}


def test_a_title_stands_before_its_text(tmp_path):
    passage = {"docid": "1", "title": "Ferries", "text": "They sail."}
    rows = [{"query": "q", "positive_passages": [passage], "negative_passages": []}]
    assert next(iter(read(write_rows(tmp_path / "rows.jsonl", rows)))).texts == ("q", "Ferries They sail.")


def test_other_names_and_cells_that_hold_json(tmp_path):
    rows = [{"q": "a", "good": ["b", "c"], "bad": ["d"]}, {"q": "e", "good": "f", "bad": []}]
    named = read(write_rows(tmp_path / "rows.jsonl", rows), columns=["q", "good", "bad"])
    assert [record.texts for record in named] == [("a", "b", "c", "d"), ("e", "f", "", "")]
    (tmp_path / "rows.csv").write_text('query,pos,neg\na,"[""b"", ""c""]",[]\nd,[in brackets,"[""e""]"\n')
    found = read(tmp_path / "rows.csv")
    assert [record.texts for record in found] == [("a", "b", "c", ""), ("d", "[in brackets", "", "e")]


def test_a_row_without_a_positive_is_left_out_and_another_value_refused(tmp_path):
    rows = [{"query": "a", "pos": [], "neg": ["b"]}, {"query": "c", "pos": ["d"], "neg": []}]
    source = read(write_rows(tmp_path / "rows.jsonl", rows))
    assert [record.texts for record in source] == [("c", "d")]
    assert list(source.manifest()["left_out"].values()) == [1]
    with pytest.raises(InputError) as error:
        list(read(write_rows(tmp_path / "rows.jsonl", [rows[1], {"query": "a", "pos": [True], "neg": []}])))
    assert error.value.location == f"{tmp_path / 'rows.jsonl'}:2"


def text(number):
    return f"{WORDS[number % 10]} {WORDS[number // 10 % 10]}"


ROWS = [
    {
        "query": text(row),
        "pos": [text(20 + row * 3 + one) for one in range(1 + row % 3)],
        "neg": [text(60 + row * 3 + one) for one in range(row % 4)],
    }
    for row in range(8)
]


@pytest.mark.parametrize("name", ["qa", "triplets"])
def test_one_positive_is_drawn_each_epoch_and_all_negatives_are_used(name, tmp_path, tiny_bert):
    path = write_rows(tmp_path / "rows.jsonl", ROWS)
    data = data_module(name, path=path, tokenizer=tiny_bert, cache_dir=tmp_path, batch_size=8)
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    drawn = [set() for _ in ROWS]
    for epoch in range(30):
        batch = data.batch(epoch, np.arange(8))
        assert isinstance(batch, TripletBatch)
        positives = tokenizer.batch_decode(sequences_of(batch.positives), skip_special_tokens=True)
        again = data.batch(epoch, np.arange(8))
        assert torch.equal(batch.positives.ids, again.positives.ids)
        for place, row in enumerate(batch.rows.tolist()):
            assert positives[place] in ROWS[row]["pos"]
            drawn[row].add(positives[place])
        negatives = np.array(tokenizer.batch_decode(sequences_of(batch.negatives), skip_special_tokens=True))
        kept = negatives.reshape(8, -1), ~batch.fillers.reshape(8, -1)
        for place, row in enumerate(batch.rows.tolist()):
            assert kept[0][place][kept[1][place]].tolist() == ROWS[row]["neg"]
    assert drawn == [set(row["pos"]) for row in ROWS], "each positive comes in some epoch"


def by_hand(anchors, positives, negatives, texts, lists, fillers, back):
    """Return the mean of -log softmax, computed for each pair of texts."""
    losses = []
    candidates = [(vector, number) for vector, number in zip(positives, texts[1], strict=True)]
    candidates += [
        (vector, number)
        for vector, number, is_filler in zip(negatives, texts[2], fillers, strict=True)
        if not is_filler
    ]
    for row, anchor in enumerate(anchors):
        own = F.cosine_similarity(anchor, positives[row], dim=0)
        logits = [own] + [
            F.cosine_similarity(anchor, vector, dim=0) for vector, number in candidates if number not in lists[row]
        ]
        losses.append(-torch.log_softmax(torch.stack(logits), 0)[0])
        if back:
            logits = [own] + [
                F.cosine_similarity(positives[row], other, dim=0)
                for place, other in enumerate(anchors)
                if texts[1][row] not in lists[place]
            ]
            losses.append(-torch.log_softmax(torch.stack(logits), 0)[0])
    return torch.stack(losses).mean()


@pytest.mark.parametrize("form", ["info_nce", "one direction", "two directions"])
def test_other_positives_and_fillers_are_no_negatives(form):
    generator = torch.Generator().manual_seed(3)
    anchors, positives = (torch.randn(3, 4, dtype=torch.float64, generator=generator) for _ in range(2))
    negatives = torch.randn(6, 4, dtype=torch.float64, generator=generator)
    texts = [[1, 2, 3], [11, 12, 13], [12, 30, 13, 31, 0, 0]]  # 0: filler
    lists = [{11, 13}, {12, 30}, {13, 14}]
    fillers = [number == 0 for number in texts[2]]
    numbers = [torch.tensor(one) for one in texts]
    numbers[2] = numbers[2].masked_fill(torch.tensor(fillers), FILLER)
    accepted = torch.tensor([[11, 13, FILLER], [12, 30, FILLER], [13, 14, FILLER]])
    keys = {"temperature": 1.0, "text_hashes": numbers, "accepted": accepted}
    if form == "info_nce":
        loss = info_nce(anchors, positives, negatives, **keys).loss
    else:
        directions = ["query_to_doc", "doc_to_query"][: 2 if form == "two directions" else 1]
        keys |= {"directions": directions, "partition_mode": "per_direction"}
        loss = contrast_in_directions(anchors, positives, negatives, **keys).loss
    expected = by_hand(anchors, positives, negatives, texts, lists, fillers, back=form == "two directions")
    torch.testing.assert_close(loss, expected)


def test_a_joint_softmax_leaves_them_out_too():
    """Without other candidates, only the pair itself remains: the loss is log 2, because it occurs twice."""
    generator = torch.Generator().manual_seed(4)
    anchors, positives = (torch.randn(2, 4, dtype=torch.float64, generator=generator) for _ in range(2))
    texts = [torch.tensor([1, 2]), torch.tensor([11, 12])]
    keys = {"temperature": 1.0, "directions": ["query_to_doc", "doc_to_query"], "partition_mode": "joint"}
    both = torch.tensor([[11, 12], [11, 12]])
    alone = contrast_in_directions(anchors, positives, text_hashes=texts, accepted=both, **keys).loss
    torch.testing.assert_close(alone, torch.tensor(2.0, dtype=torch.float64).log())
    assert contrast_in_directions(anchors, positives, text_hashes=texts, **keys).loss > alone + 0.1


def test_all_positives_of_a_held_out_query_are_right(tmp_path, tiny_bert):
    rows = [
        {"query": f"query {row}", "pos": [f"answer {row}", f"other answer {row} again"], "neg": [f"wrong {row} thing"]}
        for row in range(60)
    ]
    path = write_rows(tmp_path / "rows.jsonl", rows)
    data = data_module("qa", path=path, tokenizer=tiny_bert, cache_dir=tmp_path, held_out_fraction=0.2)
    (task,) = data.held_out()
    assert "" not in task.documents
    for query, right in zip(task.queries, task.relevant, strict=True):
        number = query.split()[1]
        expected = {f"answer {number}", f"other answer {number} again"}
        assert {task.documents[place] for place in right} >= expected
    data.setup()
    trained = {query for query, *_ in data.used_texts()}
    assert trained.isdisjoint(task.queries)
    assert json.dumps(data.manifest())
