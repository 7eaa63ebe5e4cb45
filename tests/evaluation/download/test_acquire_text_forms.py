"""SentEval's text forms against the published files, line by line, and ``cat -v`` against the program of that name."""

import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrastive_encoders.evaluation.download.dataset_specs import FORM, TEXTS
from contrastive_encoders.evaluation.download.senteval_preprocessing import show_control_bytes
from tests.evaluation.download.conftest import TABLES


@pytest.mark.rotates
@pytest.mark.parametrize("name", [name for name in TABLES if name.endswith(FORM) and not name.startswith("SICK")])
def test_every_published_line_is_reproduced(real_rows, name):
    table = TABLES[name]
    columns = [at for at, column in enumerate(table.columns) if column in TEXTS]
    pairs = list(zip(real_rows[name.removesuffix(FORM)], real_rows[name], strict=True))
    different = [
        (raw[at], table.change(raw[at]), done[at])
        for raw, done in pairs
        for at in columns
        if table.change(raw[at]).strip() != done[at].strip()
    ]
    assert len(pairs) == table.rows
    assert not different


@pytest.mark.skipif(shutil.which("cat") is None, reason="no cat on this machine")
@given(st.binary(max_size=40).filter(lambda data: b"\n" not in data))
def test_bytes_show_as_cat_shows_them(data):
    shown = subprocess.run(["cat", "-v"], input=data, capture_output=True, check=True).stdout
    assert show_control_bytes(data) == shown.decode("ascii")
