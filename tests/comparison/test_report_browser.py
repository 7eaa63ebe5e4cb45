"""The page in a browser: it draws, sorts and filters, and the console stays silent."""

import html
import json
import re
import shutil
import subprocess

import pytest

from comparison.arms import arms_of
from comparison.collect import collect
from comparison.contrasts import choose_headline
from comparison.report import compare, write_report

BROWSER = next(
    (path for name in ("chromium", "google-chrome", "chromium-browser") if (path := shutil.which(name))), None
)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium here: apt-get install chromium"),
]
USED = """
<script>
const rows = () => [...document.querySelectorAll("#table-contrasts tbody tr")].filter((row) => !row.hidden);
const cells = (column) => rows().map((row) => Number(row.cells[column].dataset.sort));
const found = {};
const button = document.querySelectorAll("#table-contrasts thead button")[2];
button.focus(); found.focused = document.activeElement === button;
button.click(); found.descending = cells(2); found.sorted = button.parentElement.getAttribute("aria-sort");
button.click(); found.ascending = cells(2);
const input = document.querySelector("input[data-filters=table-contrasts]");
input.value = "sts12"; input.dispatchEvent(new Event("input")); found.kept = cells(2).length;
found.status = document.getElementById("count-table-contrasts").textContent;
found.pictures = [...document.querySelectorAll("figure img")].map((image) => image.getBoundingClientRect().width);
found.wide = document.documentElement.scrollWidth > innerWidth;
document.title = JSON.stringify(found);
</script>
"""


@pytest.mark.parametrize("dark", [False, True])
def test_the_page_is_used(race_folder, tmp_path, dark):
    runs, left_out = collect([str(race_folder)])
    arms = arms_of(runs)
    page = write_report(compare(arms, choose_headline(arms, None), left_out), tmp_path)["report.html"]
    tried = tmp_path / "tried.html"
    tried.write_text(page.read_text(encoding="utf-8").replace("</body>", f"{USED}</body>"), encoding="utf-8")
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
               f"--user-data-dir={tmp_path / 'profile'}",
               "--window-size=1000,900", "--dump-dom", *(["--force-dark-mode"] if dark else []),
               tried.as_uri()]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=90)
    assert done.returncode == 0, done.stderr
    assert ":CONSOLE" not in done.stderr, done.stderr
    title = re.search(r"<title>(.*?)</title>", done.stdout, flags=re.DOTALL)
    found = json.loads(html.unescape(title.group(1)))
    assert found["focused"]
    assert found["sorted"] == "descending"
    assert found["descending"] == sorted(found["descending"], reverse=True)
    assert found["ascending"] == sorted(found["ascending"])
    assert len(found["ascending"]) == 9
    assert found["kept"] == 3
    assert found["status"] == "3 of 9 rows"
    assert len(found["pictures"]) >= 5
    assert min(found["pictures"]) > 200
    assert not found["wide"]
