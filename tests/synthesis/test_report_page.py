"""The page of a data set in a browser: the wall against filtering by hand, both kinds of data sets, few and many."""

import json
import random
import re
from collections import Counter
from xml.etree import ElementTree

import numpy as np
import pytest

from synthesis.report.examples import data_of, draw_wall
from synthesis.report.report import Encoder, write_report
from synthesis.report.texts import ReportText, Texts
from synthesis.rules.triplet_rules import Rules
from synthesis.shards.store import ShardStore, read_manifest
from synthesis.triplet_recipe import take_triplets
from tests.browser import needs_browser, opened
from tests.synthesis.settings import RULES
from tests.synthesis.test_triplet_rules import EIGHT, FIVE, FIVE_MORE, row

LABELS = ["1", "0.5", "<i>0</i>"]
ODD = ["A <b>dog</b> & </script><script>alert(1)</script>", "هذه جملة عن الكلاب", "a\u2028line \x1b[31m", "word " * 400]
WORDS = "sun moon red dog cat runs sleeps on under the a green hill".split()


def letters(texts):
    """A vector of each text: how often it has each letter."""
    return np.array([[text.lower().count(chr(97 + place)) + 1e-3 for place in range(26)] for text in texts])


def pairs(number):
    draw = random.Random(0)

    def text():
        return " ".join(draw.choices(WORDS, k=draw.randrange(1, 12)))

    return [(text(), ODD[n] if n < min(4, number - 1) else text(), LABELS[n % 3]) for n in range(number)]


def labelled(folder, texts, encoder=None, shards=4):
    """A data set of pairs, in some shards an hour apart, of which one text each was left out as cut."""
    store, size = ShardStore(folder), -(-len(texts) // shards)
    for number in range(shards):
        some = texts[number * size : (number + 1) * size]
        counts = {label: {"samples": 0, "accepted": 0, "rejected": {}} for label in LABELS}
        for *_, label in some:
            counts[label]["samples"] += 1
            counts[label]["accepted"] += 1
        counts["1"]["samples"] += 1
        counts["1"]["rejected"] = {"no quotation mark": 1}
        left_out = [{"x1": "first <b>", "text": f"cut {number}", "label": "1", "why": "no quotation mark"}]
        about = {"first": 0, "inputs": 1, "tokens": 1, "labels": counts, "left_out": left_out, "written": 3600 * number}
        store.write(number, [{"text_a": a, "text_b": b, "label": label} for a, b, label in some], about)
    spec = {"task_name": "sts", "labels": {name: {"instruction": "x", "counter_labels": []} for name in LABELS}}
    header = {"identity": {"kind": "x2", "spec": spec}, "generator": {"name": "toy"}}
    write_report(folder, store.manifest(header, shards, complete=True), encoder)
    return folder / "report.html"


def triplets(folder, rows):
    """Triplets out of scored rows, by the published rules."""
    source = ShardStore(folder / "scored")
    labels = {"entailment": {"samples": len(rows), "accepted": len(rows), "rejected": {}}}
    source.write(0, rows, {"first": 0, "inputs": len(rows), "tokens": 0, "labels": labels})
    sentences = {"texts": len(rows), "sentences": len(rows), "left_out": {}, "kept": len(rows)}
    about = {"generator": {"name": "judge", "weights": {}}, "versions": {}, "sentences": sentences}
    source.write_manifest(source.manifest({"identity": {"kind": "scored"}, **about}, 1, complete=True))
    take_triplets(folder / "scored", folder, Rules(**RULES), 1)
    return folder / "report.html"


def cards(page):
    """Show all of the wall; text of each card, and its facts."""
    while page.get_by_role("button", name="Show more").is_visible():
        page.get_by_role("button", name="Show more").press("Enter")
    texts = page.eval_on_selector_all(".wall .written", "all => all.map((one) => one.textContent)")
    return texts, page.locator(".wall .facts").all_inner_texts()


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    return labelled(tmp_path_factory.mktemp("many"), pairs(1500), Encoder("letters", letters))


@needs_browser
@pytest.mark.parametrize(("width", "dark"), [(1400, False), (390, True)])
def test_every_figure_is_drawn_and_odd_texts_are_texts(many, width, dark):
    assert many.stat().st_size < 2.5e6
    with opened(many, width=width, dark=dark) as page:
        figures = page.eval_on_selector_all("figure", "all => all.map((one) => one.id)")
        assert figures == [f"figure-{name}" for name in ("fates", "over-time", "lengths", "overlaps", "similarities")]
        sizes = page.eval_on_selector_all(".plot svg", "all => all.map((one) => one.getBoundingClientRect().width)")
        assert len(sizes) == 6
        assert min(sizes) > 150
        page.get_by_label("with the words").fill("alert(1)")
        assert cards(page)[0] == [ODD[0]]
        page.get_by_label("with the words").fill("word word word")
        assert len(cards(page)[0][0]) < 310
        assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")


@needs_browser
def test_the_wall_is_filtered_and_sorted_as_by_hand(many):
    with opened(many) as page:
        page.locator("#wall label", has_text="label").locator("select").select_option(label="0.5 (500)")
        page.get_by_label("words at least").fill("5")
        page.get_by_label("words at most").fill("6")
        page.get_by_label("overlap at least").fill("0.1")
        page.locator("#wall label", has_text="order").locator("select").select_option("words, highest first")
        texts, facts = cards(page)
        wanted = [
            b
            for a, b, label in pairs(1500)
            if label == "0.5"
            and 5 <= len(b.split()) <= 6
            and len({*a.split()} & {*b.split()}) >= 0.1 * len({*a.split()} | {*b.split()})
        ]
        assert sorted(texts) == sorted(wanted) != []
        assert [len(text.split()) for text in texts] == sorted([len(text.split()) for text in wanted], reverse=True)
        assert page.locator("#wall [role=status]").inner_text() == f"{len(wanted)} of 1,504 examples"
        said = {b: letters([a, b]) for a, b, label in pairs(1500) if label == "0.5"}
        for text, fact in zip(texts, facts, strict=True):
            first, second = said[text]
            cosine = first @ second / np.linalg.norm(first) / np.linalg.norm(second)
            assert float(re.search(r"similarity ([\d.]+)", fact)[1]) == pytest.approx(cosine, abs=0.0051)


@needs_browser
def test_what_was_left_out_says_why(many):
    with opened(many) as page:
        page.locator("#wall label", has_text="fate").locator("select").select_option(label="no quotation mark (4)")
        texts, facts = cards(page)
        assert sorted(texts) == [f"cut {n}" for n in range(4)]
        assert all("no quotation mark" in fact for fact in facts)


@needs_browser
def test_a_page_of_two_examples(tmp_path):
    with opened(labelled(tmp_path, pairs(2), shards=1), width=390) as page:
        assert sorted(cards(page)[0]) == sorted(b for _, b, _ in pairs(2))


def test_the_wall_holds_what_a_page_has_room_for():
    accepted = [ReportText("句" * 400, f"{n}{'文' * 400}", LABELS[n % 3], "accepted") for n in range(6000)]
    refused = [ReportText(None, f"{n} {'لا' * 150}", "1", f"{n % 7}") for n in range(6000)]
    found = draw_wall(Texts(accepted, refused, []), 0)
    assert len(json.dumps(data_of(found, LABELS))) < 4.3e6
    fates = Counter(one.fate for one in found)
    assert fates.pop("accepted") > 600
    assert min(fates.values()) > 0.7 * max(fates.values())


def test_yield_over_time_is_of_the_shards(many):
    assert "](pictures/over-time.png)" in many.with_suffix(".md").read_text(encoding="utf-8")
    picture = ElementTree.parse(many.parent / "pictures" / "over-time.svg")
    assert "hours after the first shard" in {one.text for one in picture.iter("{http://www.w3.org/2000/svg}text")}


def test_a_report_that_is_written_again_leaves_the_card(tmp_path):
    page = triplets(tmp_path, [row()])
    (tmp_path / "README.md").write_text("my own words")
    write_report(tmp_path, read_manifest(tmp_path), Encoder("letters", letters))
    assert (tmp_path / "README.md").read_text() == "my own words"
    assert "under letters" in page.read_text(encoding="utf-8")


@needs_browser
def test_triplets_show_where_the_discriminator_disagreed(tmp_path):
    rows = [
        row(),
        row(entailment="he said what nobody believed then", p_e=0.02),
        row(contradiction="too short"),
        row(premise="three words here", entailment=FIVE, contradiction=FIVE_MORE),
    ]
    page_of = triplets(tmp_path, rows)
    assert read_manifest(tmp_path)["answers"] == {
        "entailment": [*[1], *[0] * 18, *[3]],
        "contradiction": [*[0] * 19, *[4]],
    }
    with opened(page_of) as page:
        disagreed = page.locator("#table-disagreed tbody tr").first
        assert disagreed.locator("th").inner_text() == "he said what nobody believed then"
        assert "0.020" in disagreed.inner_text()
        page.get_by_role("button", name="Show all").click()
        texts, facts = cards(page)
        why = {
            text: fact.split("\n")[1] for text, fact in zip(texts, facts, strict=True) if text not in (FIVE, FIVE_MORE)
        }
        assert why == {
            "he said what nobody believed then": "discriminator disagrees",
            "too short": "hypothesis too short",
        }
        page.get_by_label("probability at most").fill("0.5")
        assert cards(page)[0] == ["he said what nobody believed then"]
        assert EIGHT in page.locator(".wall .given").first.inner_text()
