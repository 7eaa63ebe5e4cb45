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


def test_a_complete_store_is_reused(folder):
    made(folder)
    again = made(folder, lambda texts: pytest.fail("the teacher was used"))
    np.testing.assert_array_equal(again.of(np.arange(ROWS)).numpy(), wanted(range(ROWS)))


@pytest.mark.slow
def test_a_killed_process_resumes_after_its_last_part(folder):
    run = [sys.executable, "-c", CODE, str(folder)]
    begun = subprocess.Popen([*run, "60"], stdout=subprocess.PIPE, text=True)
    assert begun.stdout is not None
    assert begun.stdout.readline() == f"at {PART} 0\n"
    time.sleep(0.2)
    begun.send_signal(signal.SIGKILL)
    begun.wait()
    with pytest.raises(InputError) as error:
        TeacherEmbeddingStore(folder)
    assert error.value.location == str(folder)
    assert "1 of 4" in error.value.expected
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
def test_a_damaged_store_is_rebuilt_with_a_warning(folder, caplog, damage):
    made(folder)
    damage(folder / "vectors.bin")
    with pytest.raises(InputError) as error:
        TeacherEmbeddingStore(folder, verify=True)
    assert error.value.location == str(folder)
    store = made(folder)
    np.testing.assert_array_equal(store.of(np.arange(ROWS)).numpy(), wanted(range(ROWS)))
    warned = any(record.levelname == "WARNING" and str(folder) in record.message for record in caplog.records)
    assert warned or damage not in (cut_short, one_bit)


@pytest.mark.parametrize("part", [1, 2, 3])
def test_parts_before_the_first_damaged_part_are_kept(folder, part):
    made(folder)
    path, embedded = folder / "vectors.bin", list[str]()
    content = bytearray(path.read_bytes())
    content[part * PART * COLUMNS * WIDTH * 2] ^= 1
    path.write_bytes(content)

    def embed(texts):
        embedded.append(texts[0])
        return vectors_of(texts)

    store = made(folder, embed)
    assert embedded == [f"{PART * one} 0" for one in range(part, 4)]
    np.testing.assert_array_equal(store.of(np.arange(ROWS)).numpy(), wanted(range(ROWS)))


def test_a_damaged_record_is_rebuilt(folder, caplog):
    made(folder)
    (folder / "meta.json").write_text('{"rows": ')
    made(folder)
    assert any(record.levelname == "WARNING" and str(folder) in record.message for record in caplog.records)


@pytest.mark.parametrize("number", [np.nan, np.inf, 70_000.0])
def test_embeddings_that_float16_cannot_represent_are_refused(folder, number):
    with pytest.raises(InputError) as error:
        made(folder, lambda texts: np.full((len(texts), WIDTH), number, np.float32))
    assert error.value.key == "model.teacher"


@pytest.mark.parametrize("there", [ROWS - 1, ROWS + 1, PART, 2])
def test_data_that_changed_in_the_meantime_are_refused(folder, there):
    texts = ((f"{row} 0", f"{row} 1") for row in range(there))
    with pytest.raises(InputError) as error:
        build_or_resume(folder, lambda: texts, ROWS, vectors_of, quiet=True)
    assert error.value.location == str(folder)
    assert str(ROWS) in error.value.expected
    assert not folder.exists()
