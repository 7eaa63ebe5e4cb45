"""The page in a browser: its drawings, and its reactions to pointer and keyboard."""

import numpy as np
import pytest

from contrastive_encoders.comparison.arms import arms_of
from contrastive_encoders.comparison.collect import collect
from contrastive_encoders.comparison.contrasts import choose_ranking_metric
from contrastive_encoders.comparison.probe_sentences import probe
from contrastive_encoders.comparison.report import build_comparison, write_report
from tests.browser import needs_browser, opened

SENTENCES = [
    "A <b>dog</b> runs & barks.",
    "هذه جملة عن <script>alert(1)</script> الكلاب",
    *(f"Number {n}." for n in range(38)),
]


def report_of(runs, output, sentences=SENTENCES):
    found, left_out = collect([str(runs / "*")])
    arms = arms_of(found)
    rng = np.random.default_rng(0)
    probes = [probe(arm, sentences, rng.standard_normal((len(sentences), 8))) for arm in arms[:8]]
    return write_report(build_comparison(arms, choose_ranking_metric(arms, None), left_out, probes), output)[
        "report.html"
    ]


@pytest.fixture(scope="module")
def page_of_three(race_folder, tmp_path_factory):
    return report_of(race_folder, tmp_path_factory.mktemp("page"))


@needs_browser
@pytest.mark.parametrize(("width", "dark"), [(1400, False), (390, True)])
def test_every_figure_is_drawn_and_nothing_sticks_out(page_of_three, width, dark):
    with opened(page_of_three, width=width, dark=dark) as page:
        figures = page.eval_on_selector_all("figure", "all => all.map((one) => one.id)")
        assert set(figures) >= {"figure-leaderboard", "figure-differences", "figure-training-score", "figure-map"}
        sizes = page.eval_on_selector_all(".plot svg", "all => all.map((one) => one.getBoundingClientRect().toJSON())")
        assert len(sizes) == page.locator(".plot").count()
        assert min(size["width"] for size in sizes) > 150
        assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
        ink = page.eval_on_selector("#figure-leaderboard .role-axis-label text", "one => getComputedStyle(one).fill")
        assert ink == ("rgb(232, 234, 238)" if dark else "rgb(22, 24, 29)")


@needs_browser
def test_tables_are_sorted_and_filtered(page_of_three):
    with opened(page_of_three) as page:
        page.locator("summary", has_text="Every two arms, in numbers").click()
        values = "all => all.filter((row) => !row.hidden).map((row) => Number(row.cells[2].dataset.sort))"
        heading = page.locator("#table-contrasts thead button").nth(2)
        for direction, reverse in (("descending", True), ("ascending", False)):
            heading.press("Enter")
            assert heading.locator("..").get_attribute("aria-sort") == direction
            shown = page.eval_on_selector_all("#table-contrasts tbody tr", values)
            assert len(shown) == 9
            assert shown == sorted(shown, reverse=reverse)
        page.locator("[data-filters=table-contrasts]").fill("sts12")
        assert page.locator("#count-table-contrasts").inner_text() == "3 of 9 rows"
