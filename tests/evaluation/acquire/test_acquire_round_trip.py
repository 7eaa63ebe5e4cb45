"""The authors' archives, built of the published tables, become these tables again."""

import pytest

from evaluation.acquire import check, fetch
from evaluation.acquire.registry import TABLES


@pytest.mark.slow
def test_official_archives_of_the_published_rows(tmp_path, real_rows, archives):
    archives.official(tmp_path / "source", real_rows)
    report = fetch(tmp_path / "root", source=str(tmp_path / "source"), quiet=True)
    made = {row.table for row in report.rows if row.state == "fetched"}
    published = {name for name in real_rows if not name.startswith(("SNLI/", "PIT2015/dev"))}
    assert published <= made
    assert not report.well  # SNLI's archive, the probing files and some more are not in that folder
    for name in published:
        header, *rows = archives.read(TABLES[name].path(tmp_path / "root"))
        assert header == list(TABLES[name].columns)
        assert rows == [[cell.strip() for cell in row] for row in real_rows[name]], name
    checked = {row.table: row.state for row in check(tmp_path / "root").rows}
    assert {checked[name] for name in published} == {"ok"}


def test_simcse_archive_of_the_published_rows(tmp_path, real_rows, archives):
    (tmp_path / "source").mkdir()
    archives.senteval_tar(tmp_path / "source" / "senteval.tar", real_rows)
    report = fetch(tmp_path / "root", ["STS14", "STSBenchmark", "SUBJ", "SNLI"], str(tmp_path / "source"), quiet=True)
    states = {row.table: row.state for row in report.rows}
    done = ["STS14/test.senteval", "STSBenchmark/dev.senteval", "SUBJ/all.senteval", "SNLI/dev", "SNLI/test"]
    for name in done:
        assert states[name] == "fetched"
        rows = archives.read(TABLES[name].path(tmp_path / "root"))[1:]
        assert rows == [[cell.strip() for cell in row] for row in real_rows[name]]
    # the raw text cannot be made of the tokenised one, and a table of 0 instead of 549,367 rows is not taken
    assert states["STS14/test"] == states["SUBJ/all"] == states["SNLI/train"] == "failed"
