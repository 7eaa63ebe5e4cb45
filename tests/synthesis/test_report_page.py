"""The page of a data set in a browser: drawings, escaped texts, and the number of texts that it has room for."""

import random

import numpy as np
import pytest

from contrastive_encoders.synthesis.report.report import Encoder, write_report
from contrastive_encoders.synthesis.shards.store import ShardStore, to_json_lines
from tests.browser import needs_browser, opened

LABELS = ["1", "0.5", "<i>0</i>"]
ODD = ["A <b>dog</b> & </script><script>alert(1)</script>", "هذه جملة عن الكلاب", "a\u2028line \x1b[31m", "word " * 400]
WORDS = "sun moon red dog cat runs sleeps on under the a green hill".split()


def letters(texts):
    """Return an embedding of each text: its letter counts."""
    return np.array([[text.lower().count(chr(97 + place)) + 1e-3 for place in range(26)] for text in texts])


def pairs(number):
    draw = random.Random(0)

    def text():
        return " ".join(draw.choices(WORDS, k=draw.randrange(1, 12)))

    return [(text(), ODD[n] if n < min(4, number - 1) else text(), LABELS[n % 3]) for n in range(number)]


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Write the page of pairs in four shards, one hour apart, each with one text left out as cut."""
    folder = tmp_path_factory.mktemp("many")
    store = ShardStore(folder)
    for number in range(4):
        some = pairs(1500)[number * 375 : (number + 1) * 375]
        counts = {label: {"samples": 0, "accepted": 0, "rejected": {}} for label in LABELS}
        for *_, label in some:
            counts[label]["samples"] += 1
            counts[label]["accepted"] += 1
        counts["1"]["samples"] += 1
        counts["1"]["rejected"] = {"no quotation mark": 1}
        left_out = [{"x1": "first <b>", "text": f"cut {number}", "label": "1", "why": "no quotation mark"}]
        about = {"first": 0, "inputs": 1, "tokens": 1, "labels": counts, "left_out": left_out}
        rows = ({"text_a": a, "text_b": b, "label": label} for a, b, label in some)
        store.write(number, to_json_lines(rows), about)
    spec = {"task_name": "sts", "labels": {name: {"instruction": "x", "counter_labels": []} for name in LABELS}}
    header = {"identity": {"kind": "x2", "spec": spec}, "generator": {"name": "toy"}}
    write_report(folder, store.manifest(header, 4, complete=True), Encoder("letters", letters))
    return folder / "report.html"


@needs_browser
@pytest.mark.parametrize(("width", "dark"), [(1400, False), (390, True)])
def test_every_figure_is_drawn_and_odd_texts_are_texts(many, width, dark):
    assert many.stat().st_size < 1.5e6
    with opened(many, width=width, dark=dark) as page:
        figures = page.eval_on_selector_all("figure", "all => all.map((one) => one.id)")
        assert figures == [f"figure-{name}" for name in ("lengths", "overlaps", "similarities")]
        sizes = page.eval_on_selector_all(".plot svg", "all => all.map((one) => one.getBoundingClientRect().width)")
        assert len(sizes) == 3
        assert min(sizes) > 150
        assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
