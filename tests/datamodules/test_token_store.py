"""The store contains the ids that transformers gives, once and complete, and only documents that are long enough."""

import errno
import hashlib
import itertools
import json
import multiprocessing
import os
import re
import shutil
import threading
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from contrastive_encoders.core import InputError, OutputError
from contrastive_encoders.datamodules.documents import DocumentRows
from contrastive_encoders.datamodules.row_datamodules import SequenceReader, text_groups
from contrastive_encoders.datamodules.sources import records, text_source
from contrastive_encoders.datamodules.sources.row_schemas import PAIRS, QA, SENTENCES, TRIPLETS
from contrastive_encoders.datamodules.store import token_store
from contrastive_encoders.datamodules.store.token_store import StoreWriter, TokenStore, build_or_open
from contrastive_encoders.datamodules.store.tokenization import LengthRule, LongDocuments, WholeRows
from contrastive_encoders.datamodules.store.tokenizer import word_start_table
from contrastive_encoders.io.atomic import partial_path
from tests.damage import flip
from tests.data import RecordSource, TextSource, sequences_of, write_rows
from tests.datamodules.dying import Dying

LINES = [
    "The ferry leaves the harbour  before\tthe market opens.",
    "A violin needs a new string.",
    "Rain.",
    "She repaired the clock with a spoon and two hairpins, and Nobody in the choir could remember it.",
]
TEXTS = [LINES[0], " Rain.", "rain. ", f"{LINES[3]}; " * 3, "line\nbreak, 家 and 🙂, None, é and é", "a"]


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(["", *LINES, " "]) + "\n", encoding="utf-8")
    return path


def documents(path, tokenizer, cache, min_length=1, unit="tokens", min_tokens=1, lowercase=False, workers=1, **source):
    reading = LongDocuments(tokenizer, LengthRule(min_length, unit, min_tokens), lowercase=lowercase)
    return build_or_open(DocumentRows(TextSource(path, **source)), reading, cache, quiet=True, workers=workers)


def rows(path, tokenizer, cache, kind=SENTENCES, workers=1, **source):
    reading = WholeRows(tokenizer, labeled=kind.label is not None)
    return build_or_open(RecordSource(path, kind, **source), reading, cache, quiet=True, workers=workers)


EITHER = pytest.mark.parametrize("build", [documents, rows])


def read_as_document(tokenizer, line):
    return tokenizer(" " + " ".join(line.split()), add_special_tokens=False)["input_ids"]


def triplets_of(path, texts, names=("premise", "entailment", "contradiction")):
    table = [[texts[(i + k) % len(texts)] for k in range(len(names))] for i in range(len(texts))]
    write_rows(path, (dict(zip(names, row, strict=True)) for row in table))
    return table


def test_documents_are_the_ids_of_transformers_in_slices_of_one_map(corpus, tokenizer, tmp_path):
    store = documents(corpus, tokenizer, tmp_path / "cache")
    texts = [store.text(row) for row in range(len(store))]
    assert [ids.tolist() for ids in texts] == [read_as_document(tokenizer, line) for line in LINES]
    assert store.offsets.tolist() == [0, *itertools.accumulate(map(len, texts))]
    assert store.ids.dtype == np.uint16
    for array in (store.ids, store.offsets):
        assert isinstance(array.base, np.memmap)
        assert not array.flags.writeable
    assert all(np.shares_memory(ids, store.ids) for ids in texts)


@pytest.mark.parametrize("max_length", [4, 7, 24, 100, 5000])
@pytest.mark.parametrize("side", ["right", "left"])
def test_sequences_of_rows_are_those_of_the_tokenizer(tmp_path, tokenizer, max_length, side, monkeypatch):
    table = triplets_of(tmp_path / "d.jsonl", TEXTS)
    store = rows(tmp_path / "d.jsonl", tokenizer, tmp_path, TRIPLETS)
    monkeypatch.setattr(tokenizer, "truncation_side", side)
    sequences = SequenceReader(tokenizer, max_length)
    order = np.array([4, 0, 5, 3, 3, 1, 2])
    for column in range(3):
        expected = tokenizer([table[row][column] for row in order], truncation=True, max_length=max_length)["input_ids"]
        assert sequences_of(sequences(store, order, column)) == expected


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=60), min_size=1, max_size=8), st.integers(4, 40)
)
def test_any_text_that_has_a_token(tmp_path_factory, tokenizer, texts, max_length):
    folder = tmp_path_factory.mktemp("any")
    texts = [f"x{text}" for text in texts]
    store = rows(write_rows(folder / "d.jsonl", ({"text": text} for text in texts)), tokenizer, folder)
    assert len(store) == len(texts)
    found = sequences_of(SequenceReader(tokenizer, max_length)(store, np.arange(len(texts)), 0))
    assert found == tokenizer(texts, truncation=True, max_length=max_length)["input_ids"]


def test_special_tokens_in_documents_are_text_and_in_rows_what_the_tokenizer_reads(tmp_path, tokenizer):
    special = tokenizer.all_special_tokens
    path = tmp_path / "a.txt"
    path.write_text(f"the clock {' '.join(special)} the clock [MASK] <s> </s> <mask>\n", encoding="utf-8")
    texts = [f"a {token} b" for token in special]
    before = tokenizer.backend_tokenizer.to_str()
    ids = documents(path, tokenizer, tmp_path).text(0)
    store = rows(write_rows(tmp_path / "d.jsonl", ({"text": text} for text in texts)), tokenizer, tmp_path)
    assert tokenizer.backend_tokenizer.to_str() == before  # the caller's tokenizer is unchanged
    assert not (set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}) & set(ids.tolist())
    assert len(ids) > len(read_as_document(tokenizer, "the clock the clock"))
    assert sequences_of(SequenceReader(tokenizer, 50)(store, np.arange(len(texts)), 0)) == tokenizer(texts)["input_ids"]


def test_a_large_vocabulary_takes_four_bytes(corpus, tmp_path):
    vocabulary = {"[UNK]": 0, **{f"w{i}": i for i in range(1, 70_000)}, "ferry": 70_000}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")
    store = documents(corpus, wrapped, tmp_path / "cache")
    assert store.ids.dtype == np.uint32
    assert store.text(0)[1] == 70_000


@EITHER
def test_truncation_and_padding_of_the_tokenizer_do_not_matter(build, minilm_path, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(minilm_path)  # its tokenizer.json pads and cuts at 128
    long = tmp_path / "long.txt"
    long.write_text(" ".join(LINES * 30), encoding="utf-8")
    store = build(long, tokenizer, tmp_path / "cache")
    assert len(store.ids) > 500
    tokenizer(["x", "y z"], padding=True, truncation=True, max_length=7)
    assert build(long, tokenizer, tmp_path / "cache").directory == store.directory


def test_the_two_rules_of_length(corpus, bpe, tmp_path):
    tokens = [len(read_as_document(bpe, line)) for line in LINES]
    words = [len(line.split()) for line in LINES]

    def kept(**rule):
        store = documents(corpus, bpe, tmp_path / "cache", **rule)
        return np.diff(store.offsets).tolist(), store.manifest

    lengths, manifest = kept(min_length=tokens[1])
    assert lengths == [n for n in tokens if n >= tokens[1]]
    assert (manifest["read"], manifest["kept"], manifest["too_short"], manifest["source"]["blank"]) == (4, 3, 1, 2)
    lengths, manifest = kept(min_length=words[1], unit="words")
    assert lengths == [tokens[0], tokens[3]]  # > words[1], not >=
    assert manifest["words"] == words[0] + words[3]
    lengths, manifest = kept(min_length=words[1], unit="words", min_tokens=tokens[0] + 1)
    assert lengths == [tokens[3]]
    assert (manifest["too_short"], manifest["too_few_tokens"]) == (2, 1)


def test_rows_without_tokens_are_dropped_with_their_labels(tmp_path, tiny_bert):
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    empty = "\u200b"  # BERT drops a lone format character
    texts = [("rain", "fog", 0.25), ("rain", empty, 0.5), ("clock", "spoon", 0.75)]
    path = write_rows(tmp_path / "d.jsonl", ({"text_a": a, "text_b": b, "label": s} for a, b, s in texts))
    store = rows(path, tokenizer, tmp_path, PAIRS)
    assert store.labels.tolist() == [0.25, 0.75]
    assert store.manifest["without_tokens"] == 1
    assert store.text(1, 1).tolist() == tokenizer("spoon", add_special_tokens=False)["input_ids"]
    write_rows(path, [{"text_a": empty, "text_b": empty, "label": 0}])
    with pytest.raises(InputError) as error:
        rows(path, tokenizer, tmp_path, PAIRS)
    assert (error.value.location, re.findall(r"\d+", error.value.value)) == ("data", ["1"])


def test_manifest_has_the_sums(corpus, bpe, tmp_path):
    store = documents(corpus, bpe, tmp_path / "cache")
    assert store.manifest["ids_sha256"] == hashlib.sha256((store.directory / "ids.bin").read_bytes()).hexdigest()
    assert store.manifest["text_sha256"] == hashlib.sha256("".join(f"{x}\0" for x in LINES).encode()).hexdigest()
    assert store.manifest["source"]["sha256"] == hashlib.sha256(corpus.read_bytes()).hexdigest()
    assert store.manifest["tokens"] == len(store.ids)
    assert json.loads(json.dumps(store.manifest)) == store.manifest


@EITHER
def test_the_key_depends_on_the_content_and_all_settings(build, corpus, bpe, tiny_bert, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    first = build(corpus, bpe, cache)
    with monkeypatch.context() as patch:
        for source, method in ((text_source.TextSource, "documents"), (records.RecordSource, "__iter__")):
            patch.setattr(source, method, lambda self: pytest.fail("the text was read again"))
        assert build(corpus, bpe, cache).ids.tolist() == first.ids.tolist()
    stores = [first, build(corpus, AutoTokenizer.from_pretrained(tiny_bert), cache)]
    if build is documents:
        for rule in ({"lowercase": True}, {"min_length": 2}, {"unit": "words"}, {"unit": "words", "min_tokens": 2}):
            stores.append(documents(corpus, bpe, cache, **rule))
    bpe.add_tokens(["harbour"])
    stores.append(build(corpus, bpe, cache))
    corpus.write_text(corpus.read_text() + "One more line.\n")
    stores.append(build(corpus, bpe, cache))
    assert len({store.directory for store in stores}) == len(stores)
    assert len({store.manifest["rows_sha256"] for store in (stores[0], stores[-1])}) == 2
    copy = Path(shutil.copy(corpus, tmp_path / "copy.txt"))
    assert build(copy, bpe, cache).manifest["rows_sha256"] == stores[-1].manifest["rows_sha256"]


@EITHER
@pytest.mark.parametrize("damage", ["ids.bin", "offsets.bin", "meta.json"])
def test_a_damaged_store_is_rebuilt(build, corpus, bpe, tmp_path, damage):
    path = build(corpus, bpe, tmp_path / "cache").directory / damage
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    with pytest.raises(InputError) as error:
        TokenStore(path.parent)
    assert error.value.location == str(path.parent)
    build(corpus, bpe, tmp_path / "cache")
    assert path.read_bytes() == whole


READS = [lambda store: store.text(1), lambda store: store.bounds(np.arange(3), 0), TokenStore.token_counts]


@pytest.mark.parametrize("read", READS, ids=["text", "bounds", "token_counts"])
def test_damaged_offsets_are_refused_when_they_are_read(corpus, bpe, tmp_path, read):
    path = rows(corpus, bpe, tmp_path / "cache").directory / "offsets.bin"
    flip(path, at=8.5 / (path.stat().st_size - 1), count=7)
    with pytest.raises(InputError) as raised:
        read(TokenStore(path.parent))
    assert raised.value.location == str(path.parent)


@EITHER
@pytest.mark.parametrize("name", ["ids.bin", "offsets.bin"])
def test_a_changed_byte_is_found_by_verify(build, corpus, bpe, tmp_path, name):
    path = build(corpus, bpe, tmp_path / "cache").directory / name
    whole = path.read_bytes()
    flip(path, at=1.0)
    TokenStore(path.parent)  # opening compares sizes only
    with pytest.raises(InputError) as error:
        TokenStore(path.parent, verify=True)
    assert error.value.location == str(path.parent)
    path.write_bytes(whole)
    TokenStore(path.parent, verify=True)


def test_leftovers_of_a_killed_build_are_removed(corpus, bpe, tmp_path):
    directory = documents(corpus, bpe, tmp_path / "cache").directory
    shutil.rmtree(directory)
    stale = partial_path(directory) / "stale"
    stale.mkdir(parents=True)
    (stale / "ids.bin").write_bytes(b"half")
    assert len(documents(corpus, bpe, tmp_path / "cache")) == len(LINES)
    assert not stale.exists()


@EITHER
def test_bad_text_leaves_no_store(build, tmp_path, bpe):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "fine"}\n{"text": true}\n')
    with pytest.raises(InputError) as error:
        build(path, bpe, tmp_path / "cache")
    assert error.value.location == f"{path}:2"
    assert not [entry for entry in (tmp_path / "cache").iterdir() if entry.is_dir()]
    assert build(path, bpe, tmp_path / "cache", on_error="skip", max_skipped=0.5).manifest["source"]["skipped"] == 1


@EITHER
def test_a_store_does_not_depend_on_how_it_is_read(build, tmp_path, bpe, monkeypatch):
    path = write_rows(tmp_path / "a.jsonl", ({"text": f"{line} {number}"} for number in range(50) for line in LINES))
    whole = build(path, bpe, tmp_path / "whole")
    monkeypatch.setattr(token_store, "BATCH_CHARACTERS", 300)  # dozens of batches
    of_many = build(path, bpe, tmp_path / "many")
    for name in ("ids.bin", "offsets.bin", "meta.json"):
        assert (of_many.directory / name).read_bytes() == (whole.directory / name).read_bytes()
    path.write_text(f'{path.read_text()}{{"text": true}}\n')
    with pytest.raises(InputError) as error:
        build(path, bpe, tmp_path / "many")
    assert error.value.location == f"{path}:201"
    assert [entry for entry in (tmp_path / "many").iterdir() if entry.is_dir()] == [of_many.directory]


def same_files(one, other):
    names = sorted(path.name for path in one.directory.iterdir())
    assert names == sorted(path.name for path in other.directory.iterdir())
    for name in names:
        assert (one.directory / name).read_bytes() == (other.directory / name).read_bytes(), name


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("build", "options", "workers"),
    [
        (documents, {"min_length": 8}, 3),
        (documents, {"min_length": 3, "unit": "words"}, 2),
        (rows, {"kind": PAIRS}, 3),
    ],
)
def test_workers_write_the_same_bytes(build, options, workers, tmp_path, bpe, monkeypatch):
    """Dozens of batches; the texts spell special tokens, repeat, and are too short."""
    texts = [f"{line} {bpe.all_special_tokens[number % 3]} {number % 7}" for number in range(40) for line in LINES]
    table = ({"text_a": text, "text_b": f"{text} fog", "label": 0.5, "text": text} for text in texts)
    path = write_rows(tmp_path / "a.jsonl", table)
    monkeypatch.setattr(token_store, "BATCH_CHARACTERS", 600)
    expected = build(path, bpe, tmp_path / "1", **options)
    same_files(build(path, bpe, tmp_path / "several", workers=workers, **options), expected)
    assert not multiprocessing.active_children()


def build_dying(path, bpe, cache, workers):
    return build_or_open(RecordSource(path, SENTENCES), Dying(bpe), cache, quiet=True, workers=workers)


def test_the_batches_of_a_worker_that_is_killed_go_to_another(tmp_path, bpe, monkeypatch):
    monkeypatch.setattr(token_store, "BATCH_CHARACTERS", 400)
    once = tmp_path / "once"
    once.touch()
    path = write_rows(tmp_path / "a.jsonl", ({"text": text} for text in [*LINES * 10, str(once), *LINES * 10]))
    expected = build_dying(path, bpe, tmp_path / "1", workers=1)
    assert once.exists()
    same_files(build_dying(path, bpe, tmp_path / "2", workers=2), expected)
    assert not once.exists(), "no worker was killed"


def test_a_batch_that_kills_every_worker_leaves_no_store(tmp_path, bpe, monkeypatch):
    monkeypatch.setattr(token_store, "BATCH_CHARACTERS", 400)
    (tmp_path / "always").touch()
    texts = [*LINES, str(tmp_path / "always"), *LINES * 20]
    path = write_rows(tmp_path / "a.jsonl", ({"text": text} for text in texts))
    with pytest.raises(OutputError, match=r"tokens-\w+: .*data\.tokenizer_workers .*2"):
        build_dying(path, bpe, tmp_path / "cache", workers=2)
    assert not [entry for entry in (tmp_path / "cache").iterdir() if entry.is_dir()]
    assert not multiprocessing.active_children()


@pytest.mark.rotates
@EITHER
@pytest.mark.parametrize(("last", "error"), [('{"text": true}', InputError), ("", KeyboardInterrupt)])
def test_no_worker_is_left_when_a_build_ends_early(build, last, error, tmp_path, bpe, monkeypatch):
    path = write_rows(tmp_path / "a.jsonl", ({"text": f"{line} {number}"} for number in range(50) for line in LINES))
    path.write_text(f"{path.read_text()}{last}\n")
    monkeypatch.setattr(token_store, "BATCH_CHARACTERS", 600)
    if error is KeyboardInterrupt:

        def interrupted(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(StoreWriter, "write", interrupted)  # after a worker has answered
    with pytest.raises(error) as caught:
        build(path, bpe, tmp_path / "cache", workers=2)
    assert not last or caught.value.location == f"{path}:201"
    assert not [entry for entry in (tmp_path / "cache").iterdir() if entry.is_dir()]
    assert not multiprocessing.active_children()


def test_the_next_batch_is_read_while_one_is_tokenized(corpus, bpe, tmp_path, monkeypatch):
    asked_for_more = threading.Event()

    class Source(records.RecordSource):
        def __iter__(self):
            for place, record in enumerate(super().__iter__()):
                if place == 1:
                    asked_for_more.set()
                yield record

    class Waiting(WholeRows):
        def keep(self, batch):
            assert asked_for_more.wait(30)
            return super().keep(batch)

    monkeypatch.setattr(token_store, "BATCH_CHARACTERS", 1)
    source = Source(corpus, SENTENCES, columns=None, split="train", on_error="fail")
    assert len(build_or_open(source, Waiting(bpe), tmp_path / "cache", quiet=True)) == len(LINES)


@EITHER
def test_a_full_disk_raises_an_output_error(build, corpus, bpe, tmp_path, monkeypatch):
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full on this system")
    plain_open = Path.open

    def open_on_a_full_disk(self, *args, **kwargs):
        return plain_open(Path("/dev/full") if self.name == "ids.bin" else self, *args, **kwargs)

    monkeypatch.setattr(Path, "open", open_on_a_full_disk)
    with pytest.raises(OutputError, match=rf"cache.tokens-.*{os.strerror(errno.ENOSPC)}.*data\.cache_dir"):
        build(corpus, bpe, tmp_path / "cache")


@EITHER
def test_a_tokenizer_in_python_is_refused(build, corpus, tmp_path):
    class InPython:
        is_fast = False

    with pytest.raises(InputError) as error:
        build(corpus, InPython(), tmp_path / "cache")
    assert (error.value.key, error.value.value) == ("backbone", "InPython")


def _build_and_report(corpus, folder, cache, barrier, answers):
    reads = 0

    class Slow(records.RecordSource):
        def __iter__(self):
            nonlocal reads
            reads += 1
            time.sleep(0.5)
            return super().__iter__()

    tokenizer = AutoTokenizer.from_pretrained(folder)
    barrier.wait()
    source = Slow(corpus, SENTENCES, columns=None, split="train", on_error="fail")
    store = build_or_open(source, WholeRows(tokenizer), cache, quiet=True)
    answers.put((reads, store.ids.tolist()))


def test_one_process_builds_while_the_others_wait(corpus, tiny_mlm, tmp_path):
    context = multiprocessing.get_context("fork")
    barrier, answers = context.Barrier(3), context.Queue()
    arguments = (corpus, tiny_mlm, tmp_path / "cache", barrier, answers)
    processes = [context.Process(target=_build_and_report, args=arguments) for _ in range(3)]
    for process in processes:
        process.start()
    results = [answers.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    assert sum(reads for reads, _ in results) == 1
    assert results[0][1] == results[1][1] == results[2][1]


def test_groups_are_equal_where_the_texts_are(tmp_path, bpe):
    texts = ["rain", "fog", "rain", " rain", "fog", "rain fog"]
    triplets_of(tmp_path / "d.jsonl", texts, ("question", "answer"))
    store = rows(tmp_path / "d.jsonl", bpe, tmp_path, QA)
    groups = text_groups(store, np.arange(6), 0).tolist()
    assert [[a == b for a in groups] for b in groups] == [[a == b for a in texts] for b in texts]
    assert text_groups(store, np.array([4, 0]), 0).tolist() == [groups[4], groups[0]]
    assert text_groups(store, np.arange(0), 0).shape == (0,)


def test_opening_millions_of_rows_takes_no_time_and_no_memory_for_each(tmp_path, unigram):
    count, block = 2_000_000, 100_000
    with StoreWriter(tmp_path, 3, np.dtype("<u2"), labeled=False) as writer:
        for first in range(0, count, block):
            ids = np.arange(first * 3, (first + block) * 3) % 60_000
            writer.write(ids, np.ones(block * 3, np.int64))
        (tmp_path / "meta.json").write_text(json.dumps(writer.totals()))
    tracemalloc.start()
    began = time.perf_counter()
    store = TokenStore(tmp_path)
    batch = SequenceReader(unigram, 8)(store, np.array([0, count - 1]), 2)
    seconds, peak = time.perf_counter() - began, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sequences_of(batch) == [[2, unigram.eos_token_id], [(count * 3 - 1) % 60_000, unigram.eos_token_id]]
    assert peak < 1_000_000
    assert seconds < 5


def test_word_starts_agree_with_the_offsets_of_the_tokenizer(tokenizer):
    table = word_start_table(tokenizer)
    assert table.shape == (len(tokenizer),)
    assert table[tokenizer.all_special_ids].all()
    text = " She repaired the clock with a spoon and two hairpins before Nobody remembers the harbour opens"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    starts = np.flatnonzero(table[ids])
    pieces = [tokenizer.decode(part.tolist()).strip() for part in np.split(np.array(ids), starts[1:])]
    assert [piece.lower() for piece in pieces] == [word.lower() for word in text.split()]
    assert len(starts) < len(ids)  # the vocabulary is so small that some word has several pieces
