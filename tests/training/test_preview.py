"""The preview of a batch equals its contents, counted another way."""

import json
import re
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from contrastive_encoders.cli.preview import read_arguments, run
from contrastive_encoders.core import InputError, Ragged, ScoredTripletBatch, SentenceBatch, SpanBatch, TripletBatch
from contrastive_encoders.encoders.negative_counts import usable_negatives
from contrastive_encoders.reports.figure import Figure, draw
from contrastive_encoders.training.preview.batch import (
    examples_of,
    masking,
    most_frequent,
    pieces_of,
    sequences_of,
)
from contrastive_encoders.training.preview.span_positions import SpanLayout, span_panel
from contrastive_encoders.training.preview.summary import histogram, plural, summaries, summary


class Letters:
    """A tokenizer whose tokens are letters; 26 is the mask."""

    mask_token_id = 26

    def decode(self, ids):
        return "".join("abcdefghijklmnopqrstuvwxyz#"[one] for one in ids)


def ragged(*texts: str) -> Ragged:
    ids = ["abcdefghijklmnopqrstuvwxyz#".index(letter) for letter in "".join(texts)]
    return Ragged(torch.tensor(ids), np.array([len(text) for text in texts]))


@pytest.fixture
def spans() -> SpanBatch:
    """Make two documents of two anchors with one positive each."""
    anchors = ragged("abc", "de", "fgh", "abc")
    labels = torch.full_like(anchors.ids, -100)
    labels[1] = anchors.ids[1]
    labels[3] = anchors.ids[3]
    masked = anchors.ids.clone()
    masked[1] = 26
    return SpanBatch(anchors, masked, labels, ragged("ij", "kl", "mn", "de"), np.array([7, 9]))


def test_roles_of_spans(spans):
    first = next(examples_of(spans, Letters(), 1))
    assert first.name == "document 7, anchor 1 of 2"
    shown = [(part.role, part.text) for part in first.parts]
    assert shown[:3] == [("anchor", "abc"), ("positive", "ij"), ("hard negative", "kl")]
    assert {role for role, _ in shown[3:]} == {"easy negative"}
    assert {text for _, text in shown[3:]} <= {"mn", "de"}


def test_masks_of_spans(spans):
    pieces = next(examples_of(spans, Letters(), 1)).parts[0].pieces
    assert [(piece.text, piece.masking) for piece in pieces] == [("a", ""), ("b", "mask"), ("c", "")]
    assert masking(spans, 26) == pytest.approx({"predicted": 2 / 11, "masked": 0.5, "kept": 0.5, "replaced": 0.0})
    kept = pieces_of(np.array([0, 1]), np.array([0, 2]), np.array([0, 1]), Letters())
    assert [(piece.text, piece.masking) for piece in kept] == [("a", "kept"), ("b→c", "random")]


def test_duplicates_are_counted(spans):
    anchors, positives = sequences_of(spans)
    assert anchors.duplicates() == 1
    assert positives.duplicates() == 0
    facts = summary([spans, spans], Letters(), 1, len).facts
    assert [value[:2] for name, value in facts if "duplicate" in name] == ["1 ", "0 "]


def test_the_most_frequent_text_is_named(spans):
    assert most_frequent([spans, spans], Letters()) in [("abc", 2), ("de", 2)]
    assert most_frequent([SentenceBatch(ragged("ab", "c"), np.arange(2))], Letters()) is None


def test_negatives_of_an_anchor_are_counted_without_equal_texts(spans):
    rows = np.arange(4)
    batch = TripletBatch(ragged("ab", "cd", "ef", "ab"), ragged("x", "x", "y", "z"), None, None, rows)
    # rows 0 and 3 have the same question, rows 0 and 1 one answer: y; y and z; x, x and z; y
    assert usable_negatives(batch).tolist() == [1, 2, 3, 1]
    assert "1.8 (1 to 3)" in dict(summary([batch], Letters(), 1, len).facts).values()
    one_answer = TripletBatch(ragged("ab", "cd"), ragged("x", "x"), None, None, np.arange(2))
    assert usable_negatives(one_answer).tolist() == [0, 0]
    lists = TripletBatch(
        ragged("ab", "cd"),
        ragged("x", "y"),
        ragged("u", "v", "x", "w"),
        None,
        np.arange(2),
        all_positives=ragged("x", "y", "y", "w"),
        fillers=np.array([False, False, False, True]),
    )
    # row 0 accepts x and y: u, v of x, y, u, v, x and a filler; row 1 accepts y and w: x, u, v, x
    assert usable_negatives(lists).tolist() == [2, 4]
    assert usable_negatives(spans) is None


def test_each_span_is_drawn_next_to_its_document():
    documents = [SpanLayout(row, 100, [("anchor", 5, 20), ("positive", 60, 10)]) for row in range(3)]
    picture = draw([Figure("spans", "", "", [span_panel(documents)])])["spans"].svg
    lines, bars = {}, []
    for mark in ElementTree.fromstring(picture).iter():
        about = dict(re.findall(r"(\w+): ([^;]+)", mark.get("aria-label", "")))
        if mark.get("aria-roledescription") == "rule mark":
            lines[about["document"]] = float(re.search(r",([\d.]+)\)", mark.get("transform"))[1])
        elif mark.get("aria-roledescription") == "bar":
            bars.append((about["document"], about["role"], float(re.match(r"M[\d.]+,([\d.]+)L", mark.get("d"))[1])))
    apart = np.diff([*lines.values()])
    assert (len(lines), len(bars), apart.min()) == (3, 6, apart.max())
    for document, role, top in bars:
        place = top + 4 - lines[document]  # bars are eight pixels high
        assert -apart[0] / 2 < place < 0 if role == "anchor" else 0 < place < apart[0] / 2


@pytest.mark.parametrize("groups", [None, torch.tensor([4, 1, 4])])
def test_triplets_show_hard_and_easy_negatives(groups):
    batch = TripletBatch(ragged("ab", "cd", "ab"), ragged("e", "f", "g"), ragged("h", "i", "j"), groups, np.arange(3))
    first = next(examples_of(batch, Letters(), 1))
    assert [(part.role, part.text) for part in first.parts] == [
        ("anchor", "ab"),
        ("positive", "e"),
        ("hard negative", "h"),
        ("easy negative", "f"),
    ]
    assert "1 more" in first.name
    assert "times" not in first.name


class OwnBatch(NamedTuple):
    """A kind of batch that the preview does not know."""

    titles: Ragged
    abstracts: Ragged
    rows: np.ndarray
    part: None = None

    def roles(self) -> dict[str, Ragged | None]:
        return {"title": self.titles, "abstract": self.abstracts, "keyword": None}


def test_a_batch_class_defines_its_roles():
    batch = OwnBatch(ragged("ab", "cd"), ragged("e", "f"), np.array([3, 8]))
    found = summary([batch], Letters(), 2, len)
    assert [[(part.role, part.text) for part in one.parts] for one in found.examples] == [
        [("title", "ab"), ("abstract", "e")],
        [("title", "cd"), ("abstract", "f")],
    ]
    assert [one.name for one in found.examples] == ["row 3", "row 8"]


def test_scored_triplets_show_their_scores():
    scores = torch.tensor([[0.5, 0.25], [0.75, 0.125]])
    batch = ScoredTripletBatch(ragged("ab", "cd"), ragged("e", "f"), ragged("g", "h"), scores, np.arange(2))
    [first] = summary([batch], Letters(), 1, len).examples
    assert [(part.role, part.text) for part in first.parts] == [
        ("anchor", "ab"),
        ("positive", "e"),
        ("hard negative", "g"),
    ]
    assert first.name == "row 0, scores 0.50, 0.25"


def test_parts_of_a_mixture_are_named(spans):
    rows = SentenceBatch(ragged("a", "b", "c", "d"), np.array([4, 5, 6, 7]))
    batches = [rows._replace(part="x"), spans._replace(part="y"), rows._replace(part="x")]
    found = {one.title: [example.name for example in one.examples] for one in summaries(batches, Letters(), 1, len)}
    assert list(found) == ["x: SentenceBatch, 2 batches", "y: SpanBatch, 1 batches"]
    assert found["y: SpanBatch, 1 batches"] == ["y, document 7, anchor 1 of 2"]
    [mixed] = summaries([rows._replace(part=np.array(["x", "x", "x", "y"]))], Letters(), 2, len)
    assert [example.name.partition(", its")[0] for example in mixed.examples] == ["x, row 4", "y, row 7"]
    assert [value for name, value in mixed.facts if " x " in name] == ["3"]


def test_histograms_hold_every_length(spans):
    for one in sequences_of(spans):
        found = histogram(one)
        assert sum(found.counts) == len(one.ids)
        assert found.edges[0] == found.shortest == one.lengths.min()
        assert found.edges[-1] > found.longest
        assert len(set(np.diff(found.edges))) == 1  # bars with one width
    lengths = [3] * 5 + [40] * 7 + [41]
    found = histogram(sequences_of(SentenceBatch(ragged(*["a" * one for one in lengths]), np.arange(13)))[0])
    assert len(set(np.diff(found.edges))) == 1
    assert (sum(found.counts), found.counts[0], found.counts[-1]) == (13, 5, 8)


def test_the_command_on_documents(corpus_file, tiny_mlm, tmp_path, capsys):
    overrides = [
        "data=text",
        f"data.path={corpus_file}",
        f"backbone={tiny_mlm}",
        "data.min_span=4",
        "data.max_span=16",
        "batch_size=4",
        "batches=2",
        "examples=1",
        f"output={tmp_path / 'batch.svg'}",
    ]
    assert run(overrides) == 0
    out = capsys.readouterr().out
    assert "documents" in out
    marks = [mark.get("aria-label", "") for mark in ElementTree.parse(tmp_path / "batch.svg").iter()]
    roles = [found[1] for mark in marks if "document: document" in mark and (found := re.search(r"role: (\w+)", mark))]
    assert (roles.count("anchor"), roles.count("positive")) == (8, 16)  # of 4 documents: A = 2 anchors, P = 2 positives


@pytest.mark.parametrize(("given", "longest"), [([], 24), (["data.max_length=20"], 20), (["data.max_length=40"], None)])
def test_lengths_are_those_of_a_run_with_this_backbone(given, longest, corpus_file, capsys):
    """Such a run trains on no more than its 24 positions, and refuses a greater length."""
    overrides = ["data=text", f"data.path={corpus_file}", "backbone=tiny", "tiny.max_length=24", "tiny.vocab_size=400"]
    overrides += ["data.min_span=4", "data.max_span=30", "batch_size=4", "batches=2", "examples=1", *given]
    if longest is None:
        with pytest.raises(InputError) as refused:
            run(overrides)
        assert (refused.value.key, refused.value.value) == ("data.max_length", 40)
        assert "24" in refused.value.expected
        return
    assert run(overrides) == 0
    assert max(map(int, re.findall(r": \d+ to (\d+) ", capsys.readouterr().out))) == longest


def triplets_file(folder, entailment="He {} walks.") -> str:
    rows = [
        {
            "premise": f"A man number {place} walks.",
            "entailment": entailment.format(place),
            "contradiction": "He sits.",
        }
        for place in range(40)
    ]
    path = folder / "triplets.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def test_the_command_on_triplets(tiny_mlm, tmp_path, capsys):
    path = triplets_file(tmp_path, "He walks & <b>talks</b>.")
    overrides = [
        "data=triplets",
        f"data.path={path}",
        f"backbone={tiny_mlm}",
        "batches=1",
        f"output={tmp_path / 'batch.png'}",
    ]
    assert run(overrides) == 0
    out = capsys.readouterr().out
    assert "positives" in out
    assert (tmp_path / "batch.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        ([], "data"),
        (["data=text"], "data.path"),
        (["data=text", "data.path=x", "batches=0"], "batches"),
        (["data=text", "data.path=x", "output=page.txt"], "output"),
    ],
)
def test_wrong_arguments_are_refused(overrides, key):
    with pytest.raises(InputError) as refused:
        run(overrides)
    assert refused.value.key == key


def test_data_that_needs_a_models_prompts_brings_the_model(tiny_t5, tmp_path, capsys):
    overrides = ["data=nli_generation", f"data.path={triplets_file(tmp_path)}", f"backbone={tiny_t5}", "batches=1"]
    assert read_arguments(overrides[:2]).run.backbone == "tiny"
    assert run(overrides) == 0
    assert "sources" in capsys.readouterr().out


def test_a_stage_is_shown(tiny_t5, tmp_path, capsys):
    path = triplets_file(tmp_path)
    overrides = [
        "experiment=gense",
        f"stages.open.data.path={path}",
        f"stages.nli.data.path={path}",
        "batch_size=8",
        f"backbone={tiny_t5}",
        "batches=1",
    ]
    assert read_arguments(overrides).run.stage_name == "open"
    assert read_arguments([*overrides, "only_stage=nli"]).run.stage_name == "nli"
    assert run(overrides) == 0
    assert "Stage open" in capsys.readouterr().out
    with pytest.raises(InputError) as refused:
        read_arguments([*overrides, "only_stage=nil"])
    assert (refused.value.key, refused.value.value) == ("only_stage", "nil")
    assert " nli. " in refused.value.hint


def test_roles_have_their_plural():
    assert [plural(one) for one in ("anchor", "hypothesis", "hard negative")] == [
        "anchors",
        "hypotheses",
        "hard negatives",
    ]
