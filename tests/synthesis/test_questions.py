"""Passages, parts, scores and rules of ``recipe=queries`` against loops and handmade examples; no language model."""

import json
import random
import re
from collections import Counter
from dataclasses import replace
from itertools import combinations, permutations

import numpy as np
import pytest

from contrastive_encoders.core import InputError
from contrastive_encoders.datamodules.near_duplicates import NearDuplicateIndex, boilerplate_of, words_of
from contrastive_encoders.datamodules.passages import passages_of
from contrastive_encoders.datamodules.sources.raw_documents import RawDocument
from contrastive_encoders.synthesis.questions.generation import question_in
from contrastive_encoders.synthesis.questions.passages import (
    PARTS,
    Collection,
    CorpusPassage,
    divide,
    groups_of,
    read_collection,
)
from contrastive_encoders.synthesis.questions.prompts import parse_question_prompts
from contrastive_encoders.synthesis.questions.rules import (
    COPIED,
    CUT,
    DUPLICATE,
    EMPTY,
    FEW,
    KEPT,
    NOT_NEAREST,
    REPEATED,
    apply_rules,
)
from contrastive_encoders.synthesis.questions.scores import NO_RANK, copied, find_neighbors, no_ranks
from contrastive_encoders.synthesis.recipe_configs import QuestionRules, Windows

WINDOWS = Windows(max_words=40, overlap=0, min_words=5)
RULES = {
    "min_p_yes": None,
    "max_rank": None,
    "max_copied": None,
    "max_from_prompt": None,
    "duplicates": False,
    "min_words": 0,
    "max_words": None,
}
TOPICS = "bees bridges loans stars tides violins glaciers orchids tunnels turbines".split()


def story(topic, version=0):
    words = [f"{topic}{(7 * place + version * (place == 30)) % 97}" for place in range(60)]
    return " ".join(words)


@pytest.fixture
def documents(tmp_path):
    path = tmp_path / "corpus.jsonl"
    rows = [{"_id": f"d{n}", "title": f"On {topic}", "text": story(topic)} for n, topic in enumerate(TOPICS)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def candidate(passage, text, **more):
    return {
        "passage": passage,
        "style": "s",
        "number": 0,
        "text": text,
        "whole": True,
        "cut": False,
        "p_yes": 0.5,
    } | more


def collection_of(*texts, groups=None):
    passages = [CorpusPassage(place, 0, "", text) for place, text in enumerate(texts)]
    found = Collection(passages, [str(place) for place in range(len(texts))], groups or list(range(len(texts))), {})
    found.part_of = dict.fromkeys(range(len(texts)), "train")
    return found


@pytest.mark.parametrize(
    ("question", "share"),
    [
        ("How do honey bees keep warm?", 0.0),
        ("honey bees shiver", 0.0),
        ("Why do bees shiver their muscles?", 4 / 6),  # "bees shiver their muscles"
        ("BEES SHIVER THEIR, and they fan their wings", 7 / 8),  # all except "and"
        ("bees shiver", 1.0),
        ("wings muscles", 0.0),
        ("", 0.0),
    ],
)
def test_words_count_as_copied_in_runs_of_three(question, share):
    assert copied(question, "In winter the bees shiver their muscles; they fan their wings.") == pytest.approx(share)


def test_ranks_and_nearest_passages_are_those_of_a_loop_over_all():
    drawn = np.random.default_rng(3)
    texts = [f"passage {place}" for place in range(30)]
    collection = collection_of(*texts, groups=[place // 2 for place in range(30)])
    asked = [candidate(int(drawn.integers(30)), f"question {place}") for place in range(50)] + [candidate(3, "")]
    vectors = {text: drawn.normal(size=8) for text in [*texts, *(one["text"] for one in asked)]}
    encode = lambda some: np.stack([vectors[text] for text in some])  # noqa: E731
    found = find_neighbors(asked, collection, encode, encode)

    def cosine(one, other):
        return vectors[one] @ vectors[other] / np.linalg.norm(vectors[one]) / np.linalg.norm(vectors[other])

    for place, one in enumerate(asked[:-1]):
        own = one["passage"]
        cosines = [cosine(one["text"], text) for text in texts]
        assert found.ranks_Q[place] == 1 + sum(other > cosines[own] for other in cosines)
        others = sorted((at for at in range(30) if at // 2 != own // 2), key=lambda at: -cosines[at])
        assert [at for at in found.nearest_QK[place].tolist() if at >= 0] == others
        assert found.cosines_Q[place] == pytest.approx(cosines[own], abs=1e-6)
    assert found.ranks_Q[-1] == NO_RANK


def test_near_copies_and_chains_of_them_are_one_group():
    one, other = story("bees"), story("loans")
    halves = " ".join(words_of(one)[:40] + words_of(other)[:40])  # like both
    assert groups_of([one, other, story("bees", 1), one.upper()]) == [0, 1, 0, 0]
    assert groups_of([one, other, halves]) == [0, 0, 0]
    assert groups_of(["short", "Short.", "else"]) == [0, 0, 2]
    assert sorted(NearDuplicateIndex([one, other]).like(words_of(halves))) == [0, 1]


def slow_groups(texts):
    """Groups by a comparison of all pairs, as the documentation defines near-duplicates and boilerplate."""
    documents = [words_of(text) for text in texts]
    runs = [[tuple(words[at : at + 8]) for at in range(len(words) - 7)] for words in documents]
    distinct = {tuple(words): set(own) for words, own in zip(documents, runs, strict=True)}
    every = Counter(run for own in distinct.values() for run in own)
    common = {run for run, number in every.items() if number > max(10, 0.05 * len(distinct))}
    lengths = []
    for place, words in enumerate(documents):
        covered = {at for start, run in enumerate(runs[place]) if run in common for at in range(start, start + 8)}
        own = len(words) - len(covered)
        if 5 * own < len(words):  # a copy of a text that many documents share
            lengths.append(len(words))
        else:
            lengths.append(own)
            runs[place] = [None if run in common else run for run in runs[place]]
    links = {place: {place} for place in range(len(texts))}
    for one, other in permutations(range(len(texts)), 2):
        shared = 8 * sum(run is not None and run in runs[other] for run in runs[one][::8])
        if documents[one] == documents[other] or (shared and 2 * shared >= min(lengths[one], lengths[other])):
            links[one].add(other)
            links[other].add(one)
    for _ in texts:  # chains
        links = {place: set().union(*(links[other] for other in near)) for place, near in links.items()}
    return [min(links[place]) for place in range(len(texts))]


@pytest.mark.parametrize("seed", range(6))
def test_groups_are_those_of_a_comparison_of_all_pairs(seed):
    """With a header that all documents share, copies of a page, versions that differ in a word, and mixed documents."""
    draw = random.Random(seed)
    own = lambda number: [f"w{draw.randrange(2000)}" for _ in range(number)]  # noqa: E731
    header, page, parts = own(40), own(60), [own(30) for _ in range(4)]
    changed = [[*page[:at], f"n{at}", *page[at + 1 :]] for at in draw.sample(range(60), 25)]
    with_header = [header + own(draw.randrange(20, 40)) for _ in range(20)]
    mixed = [sum(draw.sample(parts, draw.randrange(1, 4)), own(draw.randrange(40))) for _ in range(8)]
    texts = [" ".join(words) for words in [*changed, *with_header, *mixed, page, with_header[3], header, own(3)]]
    draw.shuffle(texts)
    assert groups_of(texts, boilerplate_of(texts)) == slow_groups(texts)


def test_many_versions_of_a_text_are_compared_with_a_few_of_them():
    page = story("page").split()
    texts = [" ".join([*page[: at % 60], f"version{at}", *page[at % 60 + 1 :]]) for at in range(200)]
    index = NearDuplicateIndex(texts, max_texts=5)
    assert all(1 <= len(index.like(words_of(text))) <= 5 for text in texts)
    assert set(groups_of(texts, boilerplate_of(texts))) == {0}


def test_a_header_that_all_documents_share_puts_them_into_no_group(tmp_path):
    rows = [{"text": f"{story('header')} {' '.join(story(f'own{n}x').split()[:40])}."} for n in range(60)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = read_collection(tmp_path / "in.jsonl", "text", Windows(max_words=200, overlap=0, min_words=5))
    divide(found, {"dev": 0.1, "held_out": 0.2}, 1)
    assert found.groups == list(range(60))
    assert len(found.passages) == 60, "and no passage is dropped as a near-duplicate of a held-out one"


def test_no_group_is_divided_and_documents_that_come_later_move_no_others(documents):
    copies = documents.with_name("more.jsonl")
    rows = [json.loads(line) for line in documents.read_text().splitlines()]
    new = [{"title": f"New {n}", "text": story(f"new{n}x")} for n in range(4)]
    again = [{"title": row["title"], "text": row["text"].replace("5", "6", 1)} for row in rows]
    copies.write_text("".join(json.dumps(row) + "\n" for row in [*rows, *again, *new]))
    parts = []
    for path in (documents, copies):
        found = read_collection(str(path), "text", WINDOWS)
        divide(found, {"dev": 0.2, "held_out": 0.3}, 1)
        assert set(found.part_of.values()) == set(PARTS)
        parts.append(found.part_of)
    before, after = parts
    assert all(after[place] == after[place + len(rows)] for place in range(len(rows)))
    assert {place: after[place] for place in before} == before


def test_a_section_that_documents_share_is_in_one_part_alone(tmp_path):
    """Each document has its own section and one of three shared ones, too, with other words in one place."""
    path = tmp_path / "in.jsonl"
    shared = [story(f"licence{n}") for n in range(3)]
    rows = [{"text": f"# {topic}\n\n{story(topic)} {story(topic + 'more')}"} for topic in TOPICS]
    with path.open("w") as file:
        for place, row in enumerate(rows):
            common = shared[place % 3].replace("licence", "license", place)
            file.write(json.dumps({"title": TOPICS[place], "text": f"{row['text']}. {common.capitalize()}."}) + "\n")
    found = read_collection(path, "text", Windows(max_words=130, overlap=0, min_words=5))
    assert len(found.passages) == 2 * len(TOPICS)
    divide(found, {"dev": 0.2, "held_out": 0.3}, 1)
    assert any(found.left_out.values())
    runs = {part: set() for part in PARTS}
    for place, passage in enumerate(found.passages):
        words = words_of(passage.text)
        runs[found.part(place)] |= {tuple(words[start : start + 8]) for start in range(len(words) - 7)}
    assert all(runs.values())
    for one, other in combinations(runs.values(), 2):
        assert not one & other


@pytest.mark.parametrize("small", [5, 100])
def test_no_held_out_part_is_about_one_long_document(tmp_path, small):
    """As many passages are in one document as in all others together."""
    texts = [story(f"small{n}x") for n in range(small)]
    texts.insert(small // 2, " ".join(f"{story(f'long{n}x')}." for n in range(small)))
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": f"{text}."}) + "\n" for text in texts))
    found = read_collection(tmp_path / "in.jsonl", "text", Windows(max_words=60, overlap=0, min_words=5))
    assert Counter(passage.document == small // 2 for passage in found.passages) == {True: small, False: small}
    for seed in range(25):
        one = replace(found, passages=[*found.passages])
        divide(one, {"dev": 0.1, "held_out": 0.2}, seed)
        assert one.part_of[small // 2] == "train"
        assert set(one.part_of.values()) == set(PARTS)


def test_a_document_that_comes_first_and_shares_a_section_moves_no_other(tmp_path):
    topics = [f"{topic}{letter}" for topic in TOPICS for letter in "abcd"]
    rows = [{"text": f"{story(topic)} {story(topic + 'more')}. {story('Licence')}."} for topic in topics]
    new = {"text": f"{story('new')} {story('newer')}. {story('Licence')}."}
    for seed in range(5):
        parts = []
        for written in (rows, [new, *rows]):
            path = tmp_path / "in.jsonl"
            path.write_text("".join(json.dumps(row) + "\n" for row in written))
            found = read_collection(path, "text", Windows(max_words=130, overlap=0, min_words=5))
            divide(found, {"dev": 0.2, "held_out": 0.3}, seed)
            parts.append([found.part_of[place] for place in range(len(written))][-len(rows) :])
        assert parts[0] == parts[1]


@pytest.mark.parametrize("texts", [[story("bees")], [story("bees", version) for version in range(3)]])
@pytest.mark.advice("contrastive_encoders.synthesis.questions.passages:divide")
def test_nothing_can_be_held_out_of_one_document_or_of_copies(tmp_path, texts):
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    found = read_collection(str(tmp_path / "in.jsonl"), "text", WINDOWS)
    with pytest.raises(InputError) as error:
        divide(found, {"dev": 0.1, "held_out": 0.2}, 1)
    assert error.value.key == "input"
    assert re.search(rf"\b{len(texts)} .*\b1 ", error.value.expected)
    assert "set held_out_fraction=0 dev_fraction=0" in error.value.hint
    assert error.value.hint.index("documents") < error.value.hint.index("`generate recipe=queries`"), "also for adapt"
    divide(found, {"dev": 0.0, "held_out": 0.0}, 1)
    assert set(found.part_of.values()) == {"train"}


def test_windows_overlap_by_whole_sentences_within_a_section():
    sentences = [f"Sentence number {n} has six words." for n in range(8)]
    document = RawDocument("", "f:1", markdown=f"# One\n\n{' '.join(sentences)}\n\n# Two\n\nOnly this here.")
    plain, with_overlap = (passages_of(document, shortest=1, longest=18, overlap=overlap) for overlap in (0, 7))
    assert [one.text for one in plain] == [*(" ".join(sentences[at : at + 3]) for at in (0, 3, 6)), "Only this here."]
    assert [one.text for one in with_overlap] == [
        *(" ".join(sentences[max(at - 1, 0) : at + 3]) for at in (0, 3, 6)),
        "Only this here.",
    ]
    assert [one.heading for one in plain] == ["One", "One", "One", "Two"]


def test_a_row_that_cannot_be_read_is_refused_or_counted(tmp_path):
    path = tmp_path / "docs.jsonl"
    path.write_text("".join(f'{{"text": "{story(topic)}"}}\n' for topic in ("one", "two")) + '{"text": true}\n')
    with pytest.raises(InputError) as error:
        read_collection(path, "text", WINDOWS)
    assert all(fact in str(error.value) for fact in (f"{path}:3", "on_error=skip"))
    found = read_collection(path, "text", WINDOWS, "skip")
    assert len(found.documents) == 2
    assert found.left_out["unreadable"] == 1


def test_documents_without_a_passage_are_refused(tmp_path):
    (tmp_path / "in.txt").write_text("two words\nand three more\n")
    with pytest.raises(InputError) as error:
        read_collection(str(tmp_path / "in.txt"), "text", WINDOWS)
    assert (error.value.key, error.value.value) == ("input", str(tmp_path / "in.txt"))
    assert all(fact in error.value.expected for fact in ("5 words", "2 documents"))


def test_the_first_rule_that_is_broken_is_a_questions_fate():
    collection = collection_of(story("bees"), story("loans"))
    asked = [
        candidate(0, "?"),
        candidate(0, "what keeps honey", whole=False),
        candidate(0, "bees"),
        candidate(0, "bees0 bees7 bees14"),
        candidate(0, "how do bees keep warm"),
        candidate(1, "How do bees keep warm?"),
        candidate(1, "what are loans"),
        candidate(1, "how are cracks in loans found before they are visible"),
        candidate(1, "how are such loans16 loans23 loans30 found early"),  # the passage has them as the prompt does
    ]
    prompt = "How are cracks found before they are visible? Such loans16 loans23 loans30 are rare."
    on = RULES | {"min_words": 2, "max_copied": 0.5, "max_from_prompt": 0.4, "duplicates": True}
    found = apply_rules(asked, collection, no_ranks(len(asked)), QuestionRules(**on), prompt)
    assert [one.outcome for one in found] == [EMPTY, CUT, FEW, COPIED, KEPT, DUPLICATE, KEPT, REPEATED, KEPT]
    # of ten words: how are cracks, found before they are visible; of eight: such loans16 loans23 alone
    assert [one.from_prompt for one in found][-2:] == [0.8, 3 / 8]
    ranked = no_ranks(len(asked))._replace(ranks_Q=np.array([1, 1, 1, 1, 3, 2, 1, 1, 1]))
    found = apply_rules(asked, collection, ranked, QuestionRules(**on | {"max_rank": 2}), prompt)
    assert [one.outcome for one in found][4:7] == [NOT_NEAREST, KEPT, KEPT], "a duplicate is one of what is kept"
    strict = apply_rules(asked, collection, ranked, QuestionRules(**RULES | {"min_p_yes": 0.6}), prompt)
    assert not any(one.outcome == KEPT for one in strict)


def test_a_question_ends_at_its_mark_and_lines_with_a_heading_go_where_there_is_none():
    assert question_in(' "How do  bees keep warm? Query: bees') == "How do bees keep warm?"
    judge = {"prefix": "", "between": "", "suffix": "", "yes": "Yes", "no": "No"}
    asks = parse_question_prompts(
        {"styles": {"s": "Answer from the text.\n\nText: bees\nQ: who?\n\nText: {passage}\nQ:"}, "judge": judge}
    )
    assert asks.examples == "Answer from the text.\n\nText: bees\nQ: who?"
    asks = parse_question_prompts({"styles": {"s": "Title: {heading}\nText: {passage}\nQ:"}, "judge": judge})
    tricky = CorpusPassage(0, 0, "On {passage}", "")
    assert asks.asked("s", tricky, "a {heading} b") == "Title: On {passage}\nText: a {heading} b\nQ:"
    assert asks.asked("s", tricky._replace(heading=""), "a b") == "Text: a b\nQ:"
    with pytest.raises(InputError) as error:
        parse_question_prompts({"styles": {"s": "nothing"}, "judge": judge})
    assert (error.value.key, error.value.value) == ("prompts.styles.s", "nothing")
    with pytest.raises(InputError) as error:
        parse_question_prompts({"styles": {"s": "{passage}"}, "judge": {**judge, True: "x"}})
    assert error.value.key == "prompts.judge"
