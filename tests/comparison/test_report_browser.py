"""The page in a browser: what it draws, and what answers pointer and keyboard."""

import numpy as np
import pytest

from comparison.arms import arms_of
from comparison.collect import collect
from comparison.contrasts import choose_headline
from comparison.probe_sentences import probe
from comparison.report import compare, write_report
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
    return write_report(compare(arms, choose_headline(arms, None), left_out, probes), output)["report.html"]


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


@needs_browser
def test_a_hover_says_what_is_there(page_of_three):
    with opened(page_of_three) as page:
        page.locator("#figure-leaderboard .mark-symbol path").first.hover()
        tip = page.locator(".tip")
        assert "good" in tip.inner_text()
        assert "95 % over test items" in tip.inner_text()
        page.mouse.move(2, 2)
        assert tip.is_hidden()


@needs_browser
def test_the_key_fades_what_is_not_chosen(page_of_three):
    strong = "all => all.map((one) => Number(one.getAttribute('opacity') ?? 1))"
    with opened(page_of_three) as page:
        button = page.locator(".key button").first
        button.press("Space")
        assert button.get_attribute("aria-pressed") == "true"
        page.wait_for_timeout(100)
        shown = page.eval_on_selector_all("#figure-leaderboard .mark-symbol path", strong)
        assert sorted(shown) == [0.08, 0.08, 1]


@needs_browser
def test_curves_are_shown_over_what_is_chosen(page_of_three):
    with opened(page_of_three) as page:
        figure = page.locator("#figure-training-score")
        title, path = figure.locator(".role-title-text").first, figure.locator(".mark-line path").last
        assert title.inner_html().count("stsb-dev/cosine/spearman over optimizer step") == 1
        before = path.get_attribute("d")
        figure.locator("[data-signal=metric]").select_option("train/loss")
        figure.locator("[data-signal=over]").select_option("real tokens")
        page.wait_for_timeout(200)
        assert "train/loss over real tokens" in title.inner_html()
        assert "3,000" in figure.locator(".role-axis-label").first.text_content()  # all that a run has read
        assert path.get_attribute("d") != before


@needs_browser
def test_a_sentence_lights_up_in_all_maps_with_its_neighbours(page_of_three):
    with opened(page_of_three) as page:
        search = page.get_by_label("Find a sentence")
        search.fill("الكلاب")
        assert page.locator(".found li").count() == 1
        search.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_timeout(200)
        assert page.locator(".asked").inner_text() == SENTENCES[1]  # as text: nothing in it has run
        assert page.locator(".near").count() == 3
        assert page.locator(".near").first.locator("li").count() == 6
        lit = page.eval_on_selector_all(
            "#figure-map .plot", "all => all.map((one) => one.querySelectorAll('.layer_1_marks path').length)"
        )
        assert lit == [7, 7, 7]
        page.locator("#figure-map .layer_0_marks path").first.click(force=True)
        assert page.locator(".asked").inner_text() == SENTENCES[0]
        page.get_by_role("button", name="Clear").click()
        assert page.locator(".near").count() == 0


@needs_browser
@pytest.mark.parametrize(("arms", "seeds", "number"), [(1, 1, 2), pytest.param(20, 3, 1000, marks=pytest.mark.slow)])
def test_few_and_many_runs_and_sentences(run_folder, tmp_path, arms, seeds, number):
    for arm in range(arms):
        for seed in range(seeds):
            data = {"anchors_per_document": arm % 4 + 1, "positives_per_anchor": 2}
            model = {"temperature": 0.01 * (arm // 4 + 1)}
            run_folder(tmp_path / "runs" / f"{arm}-{seed}", "declutr", seed + 1, 0.2 + arm / 90, data=data, model=model)
    path = report_of(tmp_path / "runs", tmp_path / "out", [f"Sentence {n}, one of many." for n in range(number)])
    assert path.stat().st_size < 6e6
    with opened(path, width=390) as page:
        assert page.locator(".plot svg").count() == page.locator(".plot").count()
        assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
        assert page.locator("#figure-map .plot").first.locator(".layer_0_marks path").count() == number
