"""The published tables are complete; each known error is found in a damaged copy."""

import re
import shutil
import time

import pytest

from contrastive_encoders.core import InputError
from contrastive_encoders.evaluation.catalog import ENTRIES
from contrastive_encoders.evaluation.download.check import check
from tests.evaluation.download.conftest import TABLES


def state_of(root, name):
    return next((row.state, row.detail) for row in check(root, [name.partition("/")[0]]).rows if row.table == name)


def copy(real_data, root, name):
    source = TABLES[name].path(real_data)
    path = root / source.relative_to(real_data)
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, path)
    return path


def change(path, old, new, count=1):
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, count))


def test_the_published_tables_are_whole(real_data):
    began = time.perf_counter()
    report = check(real_data)
    seconds = time.perf_counter() - began
    there = [row for row in report.rows if row.state != "missing"]
    assert {row.state for row in there} == {"ok"}
    assert len(there) == 44
    assert report.ok
    assert seconds < 20  # a few on an idle machine
    assert "SNLI/train" in {row.table for row in report.rows if row.state == "missing"}


def test_what_is_asked_for_by_its_name_must_be_there(real_data):
    assert check(real_data, ["sts12", "SST5", "mr@senteval"]).ok
    assert not check(real_data, ["snli"]).ok
    assert not check(real_data, ["COCO"]).ok
    assert check(real_data, ["senteval"]).ok  # a suite omits sets that are not available


def test_an_empty_folder_is_not_well(tmp_path):
    assert not check(tmp_path).ok
    with pytest.raises(InputError) as refused:
        check(tmp_path / "nowhere")
    assert (refused.value.key, refused.value.value) == ("data_root", tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("name", "old", "new", "state", "facts"),
    [
        ("MRPC/test", None, b"label\tid1\tid2\tsentence1\tsentence2\n", "short", {"0", "1725"}),
        ("MRPC/test", b"\n1\t1089874", b"\n2\t1089874", "damaged", {"2"}),
        ("MRPC/test", b"\n1\t1089874", b"\n0\t1089874", "damaged", {"1146", "1", "1147"}),
        ("SUBJ/all", b"smart and alert", b"sm\xc3\x83\xc2\xa9rt and alert", "damaged", {"1", "sentences"}),
        ("SUBJ/all", b"smart and alert", b"smart \xff alert", "damaged", {"UTF", "0xff"}),
        ("CR/all", b"im a more happier person after discovering the i/p button ! .", b"", "damaged", {"5"}),
        ("SICK/dev", b"\t3.6\t", b"\t5.6\t", "damaged", {"1", "5", "5.6"}),
    ],
)
def test_traps(real_data, tmp_path, name, old, new, state, facts):
    path = copy(real_data, tmp_path, name)
    if old is None:
        path.write_bytes(new)
    else:
        change(path, old, new)
    found, detail = state_of(tmp_path, name)
    assert found == state
    assert facts <= set(re.findall(r"\w+(?:\.\d+)?", detail.replace(str(path), "")))
    assert str(path) in detail


def test_a_cut_gzip_file(real_data, tmp_path):
    path = copy(real_data, tmp_path, "SST2/train")
    assert path.suffix == ".gz"
    assert state_of(tmp_path, "SST2/train")[0] == "ok"
    path.write_bytes(path.read_bytes()[:-1000])
    state, detail = state_of(tmp_path, "SST2/train")
    assert state == "damaged"
    assert "truncated" in detail


def test_the_official_numbers_of_rows_are_those_of_the_tasks():
    for task, entry in ENTRIES.items():
        for name, rows in entry.rows.items():
            if rows is None:
                continue  # made locally, not published
            assert TABLES[name].rows == rows, (task, name)
            if entry.senteval:
                assert f"{name}.senteval" in TABLES
