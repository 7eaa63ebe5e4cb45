"""Rows kept from training: what may not be shared, which groups stay whole, and the task that they make."""

import json
import random

import pytest

from datamodules.sampling.held_out import AllButHeldOut
from datamodules.sources.records import Record
from training.data_summary import account_of

WORDS = [f"word{number}" for number in range(3_000)]


class Rows:
    """Rows in memory, as a source of the token store."""

    width = 2

    def __init__(self, rows, folder="here", where=None, made_as=None):
        self.rows, self.folder, self.where = rows, folder, where or (lambda row: row)
        self.made_as = made_as or (lambda row: "")

    def __iter__(self):
        return (
            Record(texts, None, f"{self.folder}:{self.where(row)}", self.made_as(row))
            for row, texts in enumerate(self.rows)
        )

    def fingerprint(self):
        return {"rows": json.dumps(self.rows), "folder": self.folder}

    def manifest(self):
        return {"rows": len(self.rows)}


def text(rng, words):
    return " ".join(rng.choices(WORDS, k=words))


def runs_of_eight(text):
    words = text.split()
    return {tuple(words[start : start + 8]) for start in range(len(words) - 7)}


def questions(number=600, seed=1):
    """Every third question or answer is one of an earlier row, in capitals; every fifth answer nearly repeats one."""
    rng, rows = random.Random(seed), []
    for row in range(number):
        question, answer = text(rng, 6), text(rng, 40)
        if row % 3 == 2:
            earlier = rng.choice(rows)
            question, answer = (earlier[0].upper(), answer) if row % 2 else (question, earlier[1].upper() + "!")
        elif row and row % 5 == 0:
            answer = f"{rng.choice(rows)[1]} {text(rng, 4)}"
        rows.append((question, answer))
    return rows


@pytest.mark.parametrize("share", [0.1, 0.3])
def test_no_training_row_has_or_nearly_repeats_a_text_of_the_task(tmp_path, share):
    rows = questions()
    source = AllButHeldOut(Rows(rows), share, tmp_path)
    task, trained = source.tasks(["", ""])[0], [record.texts for record in source]
    asked, found = ({one.lower().strip("!") for one in side} for side in (task.queries, task.documents))
    assert not asked & {question.lower() for question, _ in trained}
    assert not found & {answer.lower().strip("!") for _, answer in trained}
    near = {run for answer in task.documents for run in runs_of_eight(answer.lower().strip("!"))}
    for _, answer in trained:  # a text of 44 words would share 33 of its 37 runs
        assert len(near & runs_of_eight(answer.lower().strip("!"))) < 4
    counts = source.manifest()["held_out"]
    assert 0.5 * share * len(rows) <= counts["rows"] <= share * len(rows)
    assert counts["rows"] + counts["near_copies_left_out"] + len(trained) == len(rows)
    assert (counts["queries"], counts["documents"], counts["kept_apart_by"]) == (
        len(task.queries),
        len(set(task.documents)),
        "texts",
    )


def test_each_query_has_the_documents_of_its_rows(tmp_path):
    rows = [*questions(), *((question, f"{answer} once more") for question, answer in questions(60, seed=9))]
    task = AllButHeldOut(Rows(rows), 0.2, tmp_path).tasks(["ask: ", "text: "])[0]
    assert (task.queries.prompt, task.documents.prompt) == ("ask: ", "text: ")
    belong = set(rows)
    gains = task.relevant or [{row: 1.0} for row in range(len(task.queries))]
    found = {(query, task.documents[place]) for query, gain in zip(task.queries, gains, strict=True) for place in gain}
    assert found <= belong
    assert {document for _, document in found} == set(task.documents)
    assert found == {pair for pair in belong if pair[0] in task.queries}


def test_the_task_depends_on_the_texts_alone(tmp_path):
    one, other = (
        AllButHeldOut(Rows(questions(), name), 0.1, tmp_path).tasks(["", ""])[0] for name in ("here", "there")
    )
    assert one == other
    assert one.queries
    shuffled = random.Random(2).sample(questions(), 600)
    again = AllButHeldOut(Rows(shuffled), 0.1, tmp_path).tasks(["", ""])[0]
    assert {one.lower() for one in again.queries} == {two.lower() for two in one.queries}


def test_rows_of_one_place_stay_together(tmp_path):
    rng = random.Random(3)
    rows = [(text(rng, 5), text(rng, 30)) for _ in range(400)]
    document_of = {texts: row // 8 for row, texts in enumerate(rows)}
    source = AllButHeldOut(Rows(rows, where=lambda row: row // 8), 0.2, tmp_path, columns=(1,))
    trained = {document_of[record.texts] for record in source}
    asked = {
        document_of[question, answer] for question, answer in rows if question in source.tasks(["", ""])[0].queries
    }
    assert len(asked) == 10  # of 50 documents
    assert trained == set(range(50)) - asked


def test_answers_that_many_questions_share_are_in_the_task_and_in_training(tmp_path):
    rng = random.Random(4)
    answers = [text(rng, 20) for _ in range(4)]
    rows = [(text(rng, 6), answers[row % 4]) for row in range(400)]
    source = AllButHeldOut(Rows(rows), 0.1, tmp_path)
    task, trained = source.tasks(["", ""])[0], [record.texts for record in source]
    assert (len(task.queries), len(trained)) == (40, 360)
    assert not set(task.queries) & {question for question, _ in trained}
    assert set(task.documents) == set(answers)
    assert source.manifest()["held_out"]["kept_apart_by"] == "anchors"


def test_hard_negatives_of_the_task_are_documents_that_belong_to_nothing(tmp_path):
    rng = random.Random(6)
    rows = Rows([(text(rng, 5), text(rng, 10), text(rng, 10)) for _ in range(100)])
    rows.width = 3
    task = AllButHeldOut(rows, 0.1, tmp_path).tasks(["", "", ""])[0]
    assert len(task.documents) == 2 * len(task.queries) == 20
    relevant = {place for gain in task.relevant for place in gain}
    negatives = {row[2] for row in rows.rows}
    assert all((task.documents[place] in negatives) == (place not in relevant) for place in range(20))


def test_of_one_long_document_its_sections_are_kept_apart(tmp_path):
    rng = random.Random(7)
    passages = [text(rng, 30) for _ in range(300)]
    rows = [(f"section {number // 3} of it", passage) for number, passage in enumerate(passages)]
    source = AllButHeldOut(Rows(rows, where=lambda row: 0), 0.1, tmp_path, columns=(1,))
    (task,), trained = source.tasks(["", ""]), [record.texts for record in source]
    assert (len(task.queries), len(task.documents), len(trained)) == (10, 30, 270)
    assert not set(task.queries) & {title for title, _ in trained}


@pytest.mark.parametrize(
    "rows",
    [
        [("a question", "an answer"), ("another", "one more")],
        [(f"question {row}", f"answer {row}") for row in range(54)],  # five queries are never told apart
        [("the same question", "the same answer")] * 400,
        [(f"question {row}", "Yes.") for row in range(400)],  # nothing else could be found
    ],
)
def test_of_a_few_rows_or_texts_none_is_held_out(tmp_path, rows):
    source = AllButHeldOut(Rows(rows), 0.1, tmp_path)
    assert source.tasks(["", ""]) == []
    assert len(list(source)) == len(rows)
    held = source.manifest()["held_out"]
    assert set(held.values()) - {0} == {held["kept_apart_by"]}
    assert dict(account_of({"source": {"held_out": held}}))["held out"].startswith("none: ")


def test_a_text_is_asked_or_found_but_not_both(tmp_path):
    rng = random.Random(8)
    texts = [text(rng, 12) for _ in range(900)]
    pairs = [(texts[row], texts[row + 1]) for row in range(0, 900, 3)]
    paraphrases = [*pairs, *((other.upper(), one) for one, other in pairs)]
    chains = [(texts[row], texts[row + 1]) for row in range(899) if row % 9 < 8]  # neighbouring sentences of documents
    for name, rows in (("both", paraphrases), ("chains", chains)):
        source = AllButHeldOut(Rows(rows, name), 0.2, tmp_path)
        (task,) = source.tasks(["", ""])
        assert not {one.lower() for one in task.queries} & {one.lower() for one in task.documents}
        assert len(task.queries) >= len(source.tasks(["", ""])[0].documents) > 30
        gains = task.relevant or [{row: 1.0} for row in range(len(task.queries))]
        asked = {
            (query.lower(), task.documents[one].lower())
            for query, gain in zip(task.queries, gains, strict=True)
            for one in gain
        }
        assert asked <= {(one.lower(), other.lower()) for one, other in rows}
        trained = {one.lower() for record in source for one in record.texts}
        assert not trained & {one.lower() for one in (*task.queries, *task.documents)}


def test_of_pairs_of_several_kinds_the_most_frequent_is_scored_and_all_are_held_out(tmp_path):
    rng, rows = random.Random(9), []
    for _ in range(120):
        passage = text(rng, 40)
        rows += [(text(rng, 3), passage), (passage[:80], passage[90:])]
    kinds = ("title", "span")
    source = AllButHeldOut(
        Rows(rows[:-1], where=lambda row: row // 2, made_as=lambda row: kinds[row % 2]),
        0.2,
        tmp_path,
        columns=(1,),
    )
    (task,) = source.tasks(["", ""])
    asked = set(task.queries)
    assert asked <= {title for title, _ in rows[::2]}
    places = {place for place, (title, _) in enumerate(rows[::2]) if title in asked}
    assert {int(record.where.split(":")[1]) for record in source} == set(range(120)) - places
    held = source.manifest()["held_out"]
    assert (held["scored"], held["queries"]) == ("title", len(asked))
    assert held["rows"] in (2 * len(asked), 2 * len(asked) - 1)
