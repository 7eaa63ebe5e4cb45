"""The store of a teacher's embeddings: its contents, its recovery after a kill, and damaged files."""

import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from contrastive_encoders.core import InputError
from contrastive_encoders.datamodules.store.teacher_embeddings import PART, TeacherEmbeddingStore, build_or_resume

ROWS, COLUMNS, WIDTH = 3 * PART + 100, 2, 4
# A separate process, whose encoder is slow after the first part, so that it can be killed there
CODE = f"""
import sys, time
from pathlib import Path
from contrastive_encoders.datamodules.store.teacher_embeddings import build_or_resume
from tests.datamodules.test_vector_store import numbered, vectors_of
def embed(texts):
    if texts[0] != "0 0":
        print("at", texts[0], flush=True)
        time.sleep(float(sys.argv[2]))
    return vectors_of(texts)
build_or_resume(Path(sys.argv[1]), numbered, {ROWS}, embed, quiet=True)
"""


def numbered():
    return ((f"{row} 0", f"{row} 1") for row in range(ROWS))


def vectors_of(texts):
    row, column = np.array([text.split() for text in texts], np.float32).T
    return np.stack([row, column, row / 8, -row], axis=1)


def made(folder, embed=vectors_of):
    build_or_resume(folder, numbered, ROWS, embed, quiet=True)
    return TeacherEmbeddingStore(folder, verify=True)


def wanted(rows):
    each = [vectors_of([f"{row} 0", f"{row} 1"]) for row in rows]
    return np.stack(each).astype(np.float16)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "teacher"


def test_rows_are_found_in_any_order(folder):
    store, rows = made(folder), np.array([ROWS - 1, 0, PART, PART - 1, 7])
    assert (len(store), store.width) == (ROWS, WIDTH)
    np.testing.assert_array_equal(store.of(rows).numpy(), wanted(rows))
    assert (folder / "vectors.bin").stat().st_size == ROWS * COLUMNS * WIDTH * 2


def test_some_rows_of_the_token_store(folder):
    made(folder)
    used = np.arange(ROWS) * 3 + 5
    np.testing.assert_array_equal(TeacherEmbeddingStore(folder, used).of(used[[9, 2]]).numpy(), wanted([9, 2]))


def test_a_whole_store_asks_no_teacher(folder):
    made(folder)
    again = made(folder, lambda texts: pytest.fail("it has been asked"))
    np.testing.assert_array_equal(again.of(np.arange(ROWS)).numpy(), wanted(range(ROWS)))


@pytest.mark.slow
def test_a_killed_process_goes_on_behind_its_last_part(folder):
    run = [sys.executable, "-c", CODE, str(folder)]
    begun = subprocess.Popen([*run, "60"], stdout=subprocess.PIPE, text=True)
    assert begun.stdout is not None
    assert begun.stdout.readline() == f"at {PART} 0\n"
    time.sleep(0.2)
    begun.send_signal(signal.SIGKILL)
    begun.wait()
    with pytest.raises(InputError, match="1 of 4 parts are there"):
        TeacherEmbeddingStore(folder)
    with (folder / "vectors.bin").open("ab") as file:
        file.write(b"what a kill left of the next part")
    asked = subprocess.run([*run, "0"], capture_output=True, text=True, check=True).stdout.splitlines()
    assert asked == [f"at {PART * part} 0" for part in (1, 2, 3)]
    store = TeacherEmbeddingStore(folder, verify=True)
    np.testing.assert_array_equal(store.of(np.arange(ROWS)).numpy(), wanted(range(ROWS)))


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-3])


def one_bit(path):
    content = bytearray(path.read_bytes())
    content[5] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [cut_short, one_bit, lambda path: path.unlink()])
def test_a_damaged_store_is_made_anew_with_a_warning(folder, caplog, damage):
    made(folder)
    damage(folder / "vectors.bin")
    with pytest.raises(InputError, match="not a whole store of a teacher's vectors"):
        TeacherEmbeddingStore(folder, verify=True)
    store = made(folder)
    np.testing.assert_array_equal(store.of(np.arange(ROWS)).numpy(), wanted(range(ROWS)))
    assert "The teacher's vectors are made anew" in caplog.text or damage not in (cut_short, one_bit)


def test_a_damaged_record_is_made_anew(folder, caplog):
    made(folder)
    (folder / "meta.json").write_text('{"rows": ')
    made(folder)
    assert "cut short or damaged" in caplog.text


@pytest.mark.parametrize("number", [np.nan, np.inf, 70_000.0])
def test_vectors_that_16_bits_do_not_hold_are_refused(folder, number):
    with pytest.raises(InputError, match="numbers that are no numbers, or beyond"):
        made(folder, lambda texts: np.full((len(texts), WIDTH), number, np.float32))


@pytest.mark.parametrize("there", [ROWS - 1, ROWS + 1, PART, 2])
def test_data_that_have_changed_meanwhile_are_refused(folder, there):
    texts = ((f"{row} 0", f"{row} 1") for row in range(there))
    with pytest.raises(InputError, match=f"the data had {ROWS} rows, and has others now"):
        build_or_resume(folder, lambda: texts, ROWS, vectors_of, quiet=True)
    assert not folder.exists()
