"""Rows held out from training: which texts may not be shared, which groups stay together, and the resulting task."""

import json
import random
import re
from collections import Counter
from types import SimpleNamespace

import pytest
import torch

from contrastive_encoders.cli.preview import read_arguments
from contrastive_encoders.core import InputError, RetrievalData
from contrastive_encoders.datamodules.sampling.held_out import HeldOutOptions, HeldOutSplit
from contrastive_encoders.datamodules.sources.records import Record
from contrastive_encoders.evaluation.tasks.retrieval import RetrievalTask
from contrastive_encoders.training.data_summary import account_of
from contrastive_encoders.training.preview.sample import read_sample
from tests.data import write_rows

WORDS = [f"word{number}" for number in range(3_000)]


class Rows:
    """Rows in memory, as a source for the token store."""

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


def plain(text):
    return text.lower().replace("!", "")


def right_pairs(task):
    """Return each query with each of its relevant documents."""
    gains = task.relevant or [{row: 1.0} for row in range(len(task.queries))]
    return {(query, task.documents[place]) for query, gain in zip(task.queries, gains, strict=True) for place in gain}


def questions(number=600, seed=1):
    """Make rows: every third question or answer repeats one in capitals; every fifth answer nearly repeats one."""
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
    source = HeldOutSplit(Rows(rows), share, tmp_path)
    task, trained = source.tasks(["", ""])[0], [record.texts for record in source]
    asked = {plain(one) for one in task.queries}
    found = {plain(document) for _, document in right_pairs(task)}
    own = {plain(answer) for question, answer in rows if plain(question) in asked}
    assert own <= found
    assert all(any(runs_of_eight(one) & runs_of_eight(other) for other in own) for one in found)
    assert not asked & {question.lower() for question, _ in trained}
    assert not own & {plain(answer) for _, answer in trained}
    near = {run for answer in own for run in runs_of_eight(answer)}
    for _, answer in trained:  # 44 tokens would share 33 of its 37 runs
        assert len(near & runs_of_eight(plain(answer))) < 4
    assert sorted(map(plain, task.documents)) == sorted({plain(answer) for _, answer in rows})
    counts = source.manifest()["held_out"]
    assert 0.5 * share * len(rows) <= counts["rows"] <= share * len(rows)
    assert counts["rows"] + counts["near_copies_left_out"] + len(trained) == len(rows)
    assert (counts["queries"], counts["documents"], counts["kept_apart_by"]) == (
        len(task.queries),
        len(task.documents),
        "texts",
    )


def test_texts_of_the_task_are_those_of_the_rows(tmp_path):
    """Tokens of line breaks are in the training texts, so they are in the scored ones."""
    rows = [(f"{question}\n", answer.replace(" ", "\n  ", 3)) for question, answer in questions()]
    task = HeldOutSplit(Rows(rows), 0.2, tmp_path).tasks(["", ""])[0]
    assert set(task.queries) <= {question for question, _ in rows}
    assert set(task.documents) <= {answer for _, answer in rows}


@pytest.mark.parametrize("number", [70, 600])
def test_a_signature_below_all_answers_makes_no_near_duplicates(tmp_path, number):
    """Two answers in seven are a copy of another one with two more words; the signature is longer than each answer."""
    rng = random.Random(3)
    signature = text(rng, 30)
    answers = [f"number{n} {text(rng, 15)}" for n in range(number * 5 // 7)]
    copies = [f"{answer} {text(rng, 2)}" for answer in answers[: number - len(answers)]]
    rows = [(text(rng, 6), f"{answer} {signature}") for answer in [*answers, *copies]]
    source = HeldOutSplit(Rows(rows), 0.1, tmp_path)
    [task] = source.tasks(["", ""])
    right = {document for _, document in right_pairs(task)}
    names = {document.split()[0] for document in right}
    copied = {answer for _, answer in rows if answer.split()[0] in names} - right
    trained = [record.texts for record in source]
    assert not names & {answer.split()[0] for _, answer in trained}
    assert len(trained) == number - source.manifest()["held_out"]["rows"] - len(copied)
    answer_of = dict(right_pairs(task))
    for query, question in enumerate(task.queries):
        own = answer_of[question]
        others = {task.documents[place] for place in task.unranked_documents.get(query, ())}
        assert others == {answer for _, answer in rows if answer.split()[0] == own.split()[0]} - {own}
    assert copied
    assert task.unranked_documents


def test_right_are_the_answers_of_the_rows_of_a_query_and_near_copies_are_not_ranked(tmp_path):
    rows = [*questions(), *((question, f"{answer} again") for question, answer in questions(60, seed=9))]
    task = HeldOutSplit(Rows(rows), 0.2, tmp_path).tasks(["ask: ", "text: "])[0]
    assert (task.queries.prompt, task.documents.prompt) == ("ask: ", "text: ")
    answers = {plain(answer): runs_of_eight(plain(answer)) for _, answer in rows}
    right, copies = set(), set()
    for query in map(plain, task.queries):
        own = {plain(answer) for question, answer in rows if plain(question) == query}
        runs = {run for answer in own for run in answers[answer]}
        right |= {(query, answer) for answer in own}
        copies |= {(query, answer) for answer in answers.keys() - own if answers[answer] & runs}  # at most 4 new ones
    assert {(plain(query), plain(document)) for query, document in right_pairs(task)} == right
    unranked = task.unranked_documents
    assert (
        {(plain(task.queries[query]), plain(task.documents[place])) for query in unranked for place in unranked[query]}
        == copies
        != set()
    )


@pytest.mark.parametrize("copy", [[1.0, 0.0], [0.0, 1.0]], ids=["first", "last"])
def test_the_rank_of_a_near_copy_changes_no_score(copy):
    """Computed by hand: without document 1, a near-duplicate of document 0, the right document is the first of two."""
    vectors = {"query": [1.0, 0.0], "exact": [1.0, 0.1], "near copy": copy, "other": [1.0, 0.5]}
    task = RetrievalData("held_out", ["query"], ["exact", "near copy", "other"], None, unranked_documents={0: [1]})
    pool = SimpleNamespace(lookup=lambda texts: torch.tensor([vectors[text] for text in texts]))
    how = SimpleNamespace(device=torch.device("cpu"), intervals=False)
    scores = {name: float(found.value) for name, found in RetrievalTask(task).score(pool, how).items()}
    assert scores["held_out/cosine/ndcg@10"] == scores["held_out/cosine/mrr"] == 100.0


def test_a_large_corpus_is_a_sample_with_all_right_documents(tmp_path):
    rng = random.Random(11)
    rows = [(text(rng, 6), text(rng, 12)) for _ in range(400)]
    whole = HeldOutSplit(Rows(rows), 0.1, tmp_path).tasks(["", ""])[0]
    options = HeldOutOptions(max_documents=100)
    shuffled = random.Random(3).sample(rows, 400)
    one, other = (HeldOutSplit(Rows(some), 0.1, tmp_path, options).tasks(["", ""])[0] for some in (rows, shuffled))
    assert (len(whole.documents), len(one.documents), len(set(one.documents))) == (400, 100, 100)
    assert set(one.queries) == set(whole.queries)
    assert right_pairs(one) == right_pairs(whole) == {pair for pair in rows if pair[0] in whole.queries}
    assert set(one.documents) == set(other.documents) < {answer for _, answer in rows}


def trained_pairs(source):
    """Return each anchor of a training row with each of its positives, without their case and punctuation."""
    return {
        (plain(one.texts[0]), plain(other)) for one in source for other in one.texts[1 : 1 + one.positives] if other
    }


@pytest.mark.parametrize(
    ("titles", "spans", "kind"),
    [
        (40, True, "span"),  # each title is that of ten documents, so none is a query
        (100, False, "title"),  # without another kind, the documents of a title are held out together
        (350, True, "title"),  # 50 documents share their title with another one, and the other 300 titles are queries
    ],
)
def test_no_right_pair_is_trained_on_if_documents_share_titles(tmp_path, titles, spans, kind):
    """Random words under random titles: a brute force over the training rows finds no right pair and no query."""
    rng, rows, kinds, places = random.Random(12), [], [], []
    for place in range(400):
        title, passage = f"Title {place % titles}", text(rng, 24)
        rows += [(title.upper() if place % 2 else title, passage), *([(text(rng, 5), text(rng, 12))] if spans else [])]
        kinds += KINDS[: 1 + spans]
        places += [place] * (1 + spans)
    data = Rows(rows, "", lambda row: places[row], lambda row: kinds[row])
    source = HeldOutSplit(data, 0.1, tmp_path, HeldOutOptions((1,), "title"))
    (task,), trained = source.tasks(["", ""]), trained_pairs(source)
    right = {(plain(query), plain(document)) for query, document in right_pairs(task)}
    assert task.query_kind == kind
    assert len(task.queries) >= 6
    assert not right & trained
    assert not {plain(query) for query in task.queries} & {anchor for anchor, _ in trained}
    everywhere = {(plain(one), plain(other)) for one, other in rows if plain(one) in {query for query, _ in right}}
    assert right == everywhere
    counts = source.manifest()["held_out"]
    assert len(trained) == len({(plain(one), plain(other)) for one, other in rows}) - counts["rows"]


def test_versions_of_a_document_do_not_divide_its_passages(tmp_path):
    """Each document has five versions that differ in one word, so most rows are near-duplicates of held-out rows."""
    rng, rows, places = random.Random(15), [], []
    for document in range(120):
        title, opening, rest = text(rng, 4), text(rng, 60), text(rng, 60)
        for version in range(5):
            passages = [f"{opening} version{version}", f"{rest} version{version}"]
            rows += [(title, passages[0]), (title, passages[1]), tuple(passages)]
            places += [5 * document + version] * 3
    data = Rows(rows, "here", lambda row: places[row], lambda row: "neighbor" if row % 3 == 2 else "title")
    source = HeldOutSplit(data, 0.1, tmp_path, HeldOutOptions((1,), "title"))
    [task] = source.tasks(["", ""])
    trained = {one for record in source for one in record.texts}
    assert task.queries
    assert not trained.intersection(document for _, document in right_pairs(task))


@pytest.mark.parametrize("preferred", ["title", ""])
@pytest.mark.parametrize("passages", [50, 60, 66])
def test_a_long_document_is_not_the_test(tmp_path, preferred, passages):
    """The titles, if there are any, are all in the long one of 601 documents."""
    sizes = [1] * 600 + [passages]
    sizes = random.Random(passages).sample(sizes, len(sizes))
    rng, rows, kinds, places = random.Random(14), [], [], []
    for place, size in enumerate(sizes):
        rows += [(text(rng, 5), text(rng, 30)) for _ in range(size)]
        kinds += [KINDS[size == 1]] * size
        places += [place] * size
    data = Rows(rows, f"{passages}", lambda row: places[row], lambda row: kinds[row])
    source = HeldOutSplit(data, 0.1, tmp_path, HeldOutOptions((1,), preferred))
    counts, trained = source.manifest()["held_out"], Counter(record.where for record in source)
    assert counts["rows"] == round(0.1 * len(rows))
    assert max(trained.values()) == passages


def test_the_chance_of_a_document_to_be_held_out_does_not_depend_on_its_size(tmp_path):
    """Of 150 documents with one row and 150 with five, a fifth of the rows has the same share of each, on average over
    20 data sets: 30 of each, with a standard deviation of 4.9 for one data set, 1.1 for the average. At most four more
    documents with one row use the last rows.
    """
    held = Counter()
    for seed in range(20):
        rng, sizes = random.Random(seed), [1, 5] * 150
        places = [place for place, size in enumerate(sizes) for _ in range(size)]
        rows = Rows([(text(rng, 5), text(rng, 10)) for _ in places], f"{seed}", lambda row, at=places: at[row])
        source = HeldOutSplit(rows, 0.2, tmp_path, HeldOutOptions((1,)))
        trained = {int(record.where.split(":")[1]) for record in source}
        held.update(size for place, size in enumerate(sizes) if place not in trained)
    assert -3.3 < held[1] / 20 - 30 < 4 + 3.3
    assert -3.3 < held[5] / 20 - 30 < 3.3


def test_the_task_depends_on_the_texts_alone(tmp_path):
    one, other = (HeldOutSplit(Rows(questions(), name), 0.1, tmp_path).tasks(["", ""])[0] for name in ("here", "there"))
    assert one == other
    assert one.queries
    shuffled = random.Random(2).sample(questions(), 600)
    again = HeldOutSplit(Rows(shuffled), 0.1, tmp_path).tasks(["", ""])[0]
    assert {one.lower() for one in again.queries} == {two.lower() for two in one.queries}
    assert {plain(one) for one in again.documents} == {plain(two) for two in one.documents}


def test_rows_of_one_place_stay_together(tmp_path):
    rng = random.Random(3)
    rows = [(text(rng, 5), text(rng, 30)) for _ in range(400)]
    document_of = {texts: row // 8 for row, texts in enumerate(rows)}
    source = HeldOutSplit(Rows(rows, where=lambda row: row // 8), 0.2, tmp_path, HeldOutOptions((1,)))
    trained = {document_of[record.texts] for record in source}
    asked = {
        document_of[question, answer] for question, answer in rows if question in source.tasks(["", ""])[0].queries
    }
    assert len(asked) == 10  # among 50 documents
    assert trained == set(range(50)) - asked


def test_answers_that_many_questions_share_are_in_the_task_and_in_training(tmp_path):
    rng = random.Random(4)
    answers = [text(rng, 20) for _ in range(4)]
    rows = [(text(rng, 6), answers[row % 4]) for row in range(400)]
    source = HeldOutSplit(Rows(rows), 0.1, tmp_path)
    task, trained = source.tasks(["", ""])[0], [record.texts for record in source]
    assert (len(task.queries), len(trained)) == (40, 360)
    assert not set(task.queries) & {question for question, _ in trained}
    assert set(task.documents) == set(answers)
    assert source.manifest()["held_out"]["kept_apart_by"] == "anchors"


@pytest.mark.parametrize("counts", [(90, 6), (80, 8, 8), (20,) * 5])
def test_an_answer_is_not_held_out_with_all_its_questions_if_there_are_few(tmp_path, counts):
    rng = random.Random(5)
    rows = [(text(rng, 6), f"answer {answer}") for answer, number in enumerate(counts) for _ in range(number)]
    source = HeldOutSplit(Rows(rng.sample(rows, len(rows))), 0.1, tmp_path)
    (task,) = source.tasks(["", ""])
    assert {record.texts[1] for record in source} == set(task.documents) == {answer for _, answer in rows}
    assert len(task.queries) == round(0.1 * len(rows))


def test_hard_negatives_of_the_task_are_documents_that_belong_to_nothing(tmp_path):
    rng = random.Random(6)
    rows = Rows([(text(rng, 5), text(rng, 10), text(rng, 10)) for _ in range(100)])
    rows.width = 3
    task = HeldOutSplit(rows, 0.1, tmp_path).tasks(["", "", ""])[0]
    assert (len(task.queries), len(task.documents)) == (10, 200)
    assert right_pairs(task) == {texts[:2] for texts in rows.rows if texts[0] in task.queries}
    assert sorted(task.documents) == sorted(document for texts in rows.rows for document in texts[1:])


def test_of_one_long_document_its_sections_are_kept_apart(tmp_path):
    rng = random.Random(7)
    passages = [text(rng, 30) for _ in range(300)]
    rows = [(f"section {number // 3} of it", passage) for number, passage in enumerate(passages)]
    source = HeldOutSplit(Rows(rows, where=lambda row: 0), 0.1, tmp_path, HeldOutOptions((1,)))
    (task,), trained = source.tasks(["", ""]), [record.texts for record in source]
    assert (len(task.queries), len(task.documents), len(right_pairs(task)), len(trained)) == (10, 300, 30, 270)
    assert not set(task.queries) & {title for title, _ in trained}


@pytest.mark.parametrize(
    "rows",
    [
        [("a question", "an answer"), ("another", "one more")],
        [(f"question {row}", f"answer {row}") for row in range(54)],  # five queries are never significant
        [("the same question", "the same answer")] * 400,
        [(f"question {row}", "Yes.") for row in range(400)],  # nothing else can be found
    ],
)
def test_of_a_few_rows_or_texts_none_is_held_out(tmp_path, rows):
    source = HeldOutSplit(Rows(rows), 0.1, tmp_path)
    assert source.tasks(["", ""]) == []
    assert len(list(source)) == len(rows)
    held = source.manifest()["held_out"]
    assert set(held.values()) - {0} == {held["kept_apart_by"]}
    assert dict(account_of({"source": {"held_out": held}}))["held out"].startswith("none, ")


def test_a_text_is_asked_or_found_but_not_both(tmp_path):
    rng = random.Random(8)
    texts = [text(rng, 12) for _ in range(900)]
    pairs = [(texts[row], texts[row + 1]) for row in range(0, 900, 3)]
    paraphrases = [*pairs, *((other.upper(), one) for one, other in pairs)]
    chains = [(texts[row], texts[row + 1]) for row in range(899) if row % 9 < 8]  # neighboring sentences of documents
    for name, rows in (("both", paraphrases), ("chains", chains)):
        source = HeldOutSplit(Rows(rows, name), 0.2, tmp_path)
        (task,) = source.tasks(["", ""])
        assert not {one.lower() for one in task.queries} & {one.lower() for one in task.documents}
        assert len(task.queries) > 30
        asked = {(query.lower(), document.lower()) for query, document in right_pairs(task)}
        assert asked == {(one.lower(), other.lower()) for one, other in rows if one.lower() in dict(asked)}
        trained = {one.lower() for record in source for one in record.texts}
        assert not trained & {one for pair in asked for one in pair}


KINDS = ("title", "span")


def of_two_kinds(tmp_path, titles, spans, share=0.2, preferred="title"):
    """Make documents with a title pair and a span pair each, then documents with a span pair alone."""
    rng, rows, kinds, places = random.Random(9), [], [], []
    for place in range(spans):
        passage = text(rng, 40)
        pairs = [(" ".join(passage.split()[:8]), " ".join(passage.split()[10:]))]
        if place < titles:
            pairs.insert(0, (text(rng, 3), passage))
        rows += pairs
        kinds += KINDS[-len(pairs) :]
        places += [place] * len(pairs)
    source = HeldOutSplit(
        Rows(rows, f"{titles} {spans}", lambda row: places[row], lambda row: kinds[row]),
        share,
        tmp_path,
        HeldOutOptions((1,), preferred),
    )
    return source, [[pair for pair, kind in zip(rows, kinds, strict=True) if kind == one] for one in KINDS]


@pytest.mark.parametrize(
    ("titles", "spans", "kind", "fewest"),
    [
        (60, 600, "title", 30),  # half of the titles, although a fifth of the rows contains 12 of them
        (120, 600, "title", 50),
        (50, 600, "title", 25),
        (49, 600, "span", 100),
        (0, 100, "span", 20),
        (200, 200, "title", 40),  # 80 rows
    ],
)
def test_titles_are_the_queries_if_there_are_50(tmp_path, titles, spans, kind, fewest):
    source, pairs = of_two_kinds(tmp_path, titles, spans)
    (task,), held = source.tasks(["", ""]), source.manifest()["held_out"]
    of_kind = pairs[KINDS.index(kind)]
    assert (task.query_kind, held["scored"], held["queries"]) == (kind, kind, len(task.queries))
    assert right_pairs(task) == {pair for pair in of_kind if pair[0] in task.queries}
    assert sorted(task.documents) == sorted(document for _, document in of_kind)
    assert held["rows"] <= round(0.2 * (titles + spans))
    assert len(task.queries) >= fewest
    assert len({record.texts[0] for record in source} & {title for title, _ in pairs[0]}) >= titles // 3


def test_documents_with_the_most_titles_for_their_rows_are_held_out_first(tmp_path):
    """60 documents with a title and a span, 60 with a title and nine spans: a tenth of 720 rows has 36 short ones."""
    rng = random.Random(13)
    sizes = [size for _ in range(60) for size in (2, 10)]
    places = [place for place, size in enumerate(sizes) for _ in range(size)]
    kinds = [KINDS[number > 0] for size in sizes for number in range(size)]
    rows = Rows([(text(rng, 8), text(rng, 30)) for _ in kinds], "", lambda row: places[row], lambda row: kinds[row])
    (task,) = HeldOutSplit(rows, 0.1, tmp_path, HeldOutOptions((1,), "title")).tasks(["", ""])
    anchors = {pair[0]: sizes[place] for pair, place in zip(rows.rows, places, strict=True)}
    assert [anchors[query] for query in task.queries] == [2] * 36


def test_of_a_document_all_pairs_are_held_out(tmp_path):
    source, (titles, _) = of_two_kinds(tmp_path, 120, 120)
    (task,) = source.tasks(["", ""])
    places = {place for place, (title, _) in enumerate(titles) if title in task.queries}
    assert {int(record.where.split(":")[1]) for record in source} == set(range(120)) - places


def test_without_a_preferred_kind_the_most_frequent_one_is_scored(tmp_path):
    source, _ = of_two_kinds(tmp_path, 60, 600, preferred="")
    assert source.manifest()["held_out"]["scored"] == "span"


@pytest.mark.parametrize(("equal", "reason"), [(120, r"\b120 .*\b120 "), (70, r"\b70 .*\b120 "), (0, "few")])
def test_the_reason_that_none_is_held_out(tmp_path, equal, reason):
    """The other answers are the same text, so these rows make no test either."""
    rows = [(f"Question {row}", f"question {row}!" if row < equal else "Yes.") for row in range(120)]
    held = HeldOutSplit(Rows(rows), 0.1, tmp_path).manifest()["held_out"]
    assert held["rows"] == 0
    assert re.search(reason, dict(account_of({"source": {"held_out": held}}))["held out"])


@pytest.mark.parametrize("templates", [20, 80])
def test_answers_from_templates_leave_rows_for_training(tmp_path, templates):
    """Of 60 words of an answer, three are its own."""
    rng = random.Random(15)
    parts = [(text(rng, 30), text(rng, 27)) for _ in range(templates)]
    rows = [(text(rng, 6), f"{{}} {text(rng, 3)} {{}}".format(*parts[row % templates])) for row in range(400)]
    source = HeldOutSplit(Rows(rows), 0.1, tmp_path)
    (task,), trained = source.tasks(["", ""]), [record.texts for record in source]
    assert (len(task.queries), len(trained)) == (40, 360)
    assert not set(task.queries) & {question for question, _ in trained}
    assert right_pairs(task) == {pair for pair in rows if pair[0] in task.queries}
    for query in range(40):  # the other answers from its template are neither right nor wrong
        (right,) = task.relevant[query] if task.relevant else [query]
        first = task.documents[right].split()[:30]
        others = {place for place, document in enumerate(task.documents) if document.split()[:30] == first} - {right}
        assert set(task.unranked_documents[query]) == others
    assert source.manifest()["held_out"]["kept_apart_by"] == "anchors"


@pytest.mark.advice("contrastive_encoders.datamodules.sampling.held_out:HeldOutSplit._build")
def test_rows_that_are_all_near_duplicates_of_held_out_rows_are_refused(tiny_bert, tmp_path):
    """Seven questions and answers, ten variants of each: of every question and answer, a variant is held out."""
    rng = random.Random(5)
    texts = [(text(rng, 20), text(rng, 20)) for _ in range(7)]
    rows = [
        {"question": f"{question} {text(rng, 3)}", "answer": f"{answer} {text(rng, 3)}"}
        for question, answer in texts * 10
    ]
    path = write_rows(tmp_path / "qa.jsonl", rows)
    overrides = ["data=qa", f"data.path={path}", f"backbone={tiny_bert}", f"data.cache_dir={tmp_path / 'cache'}"]
    overrides += ["batch_size=8", "data.held_out_fraction=0.4"]
    with pytest.raises(InputError) as error:
        read_sample(read_arguments(overrides).run, 1, 1)
    assert (error.value.location, "28 held-out rows" in error.value.value) == ("data", True)
    with pytest.raises(InputError, match="28 held-out rows"):  # also where a tokenizer is trained on the rows
        next(iter(HeldOutSplit(Rows([tuple(row.values()) for row in rows]), 0.4, tmp_path)))
    [advised] = re.findall(r"\S+=\S+", error.value.hint)
    assert len(read_sample(read_arguments([*overrides, advised]).run, 1, 1).summaries) == 1
