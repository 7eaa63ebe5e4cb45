"""The store holds the ids that transformers gives, once, whole, and only of documents that are long enough."""

import hashlib
import itertools
import json
import multiprocessing
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from contracts import InputError
from datamodules.sources import TextSource
from datamodules.token_store import TokenStore, build_or_open
from datamodules.words import word_start_table
from files.whole import unfinished

LINES = [
    "The ferry leaves the harbour  before\tthe market opens.",
    "A violin needs a new string.",
    "Rain.",
    "She repaired the clock with a spoon and two hairpins, and Nobody in the choir could remember it.",
]


@pytest.fixture(scope="module")
def unigram():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.UnigramTrainer(vocab_size=90, special_tokens=specials, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(LINES * 20, trainer)
    names = {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "pad_token": "<pad>",
        "mask_token": "<mask>",
    }
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


@pytest.fixture(params=["wordpiece", "bpe", "unigram"])
def tokenizer(request, tiny_bert, tiny_mlm, unigram):
    if request.param == "unigram":
        return unigram
    return AutoTokenizer.from_pretrained(tiny_bert if request.param == "wordpiece" else tiny_mlm)


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(["", *LINES, " "]) + "\n", encoding="utf-8")
    return path


def build(path, tokenizer, cache, **kwargs):
    return build_or_open(TextSource(path), tokenizer, cache, **{"min_length": 1, "quiet": True, **kwargs})


def expected_ids(tokenizer, line):
    return tokenizer(" " + " ".join(line.split()), add_special_tokens=False)["input_ids"]


def test_ids_are_those_of_transformers(corpus, tokenizer, tmp_path):
    store = build(corpus, tokenizer, tmp_path / "cache")
    assert len(store) == len(LINES)
    for row, line in enumerate(LINES):
        assert store[row].tolist() == expected_ids(tokenizer, line)
    assert store.lengths.tolist() == [len(store[row]) for row in range(len(store))]
    assert store.num_tokens == sum(store.lengths)
    with pytest.raises(IndexError):
        store[len(LINES)]


def test_documents_are_slices_of_one_memory_map(corpus, tokenizer, tmp_path):
    store = build(corpus, tokenizer, tmp_path / "cache")
    assert isinstance(store.ids, np.memmap)
    assert store.ids.dtype == np.uint16
    assert all(np.shares_memory(store[row], store.ids) for row in range(len(store)))


def test_a_large_vocabulary_takes_four_bytes(corpus, tmp_path):
    vocabulary = {"[UNK]": 0, **{f"w{i}": i for i in range(1, 70_000)}, "ferry": 70_000}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")
    store = build(corpus, wrapped, tmp_path / "cache")
    assert store.ids.dtype == np.uint32
    assert store[0][1] == 70_000


def test_lower_case_only_if_asked(corpus, tiny_mlm, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(tiny_mlm)
    store = build(corpus, tokenizer, tmp_path / "cache", lowercase=True)
    assert store[3].tolist() == expected_ids(tokenizer, LINES[3].lower()) != expected_ids(tokenizer, LINES[3])
    assert store.manifest["lowercase"] is True


def test_special_tokens_in_the_text_are_text(tmp_path, tokenizer):
    special = tokenizer.all_special_tokens
    path = tmp_path / "a.txt"
    path.write_text(f"the clock {' '.join(special)} the clock [MASK] <s> </s> <mask>\n", encoding="utf-8")
    store = build(path, tokenizer, tmp_path / "cache")
    forbidden = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    assert not forbidden & set(store[0].tolist())
    assert len(store[0]) > len(expected_ids(tokenizer, "the clock the clock"))
    assert (
        tokenizer("a <mask> [MASK]")["input_ids"]
        == AutoTokenizer.from_pretrained(_saved(tokenizer, tmp_path))("a <mask> [MASK]")["input_ids"]
    )  # the caller's tokenizer is as it was


def _saved(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path / "saved")
    return tmp_path / "saved"


def test_truncation_and_padding_of_the_tokenizer_do_not_matter(corpus, minilm_path, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(minilm_path)  # its tokenizer.json pads and cuts at 128
    long = tmp_path / "long.txt"
    long.write_text(" ".join(LINES * 30), encoding="utf-8")
    store = build(long, tokenizer, tmp_path / "cache")
    assert store.num_tokens > 500
    tokenizer(["x", "y z"], padding=True, truncation=True, max_length=7)
    assert build(long, tokenizer, tmp_path / "cache").directory == store.directory


def test_the_two_rules(corpus, tiny_mlm, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(tiny_mlm)
    tokens = [len(expected_ids(tokenizer, line)) for line in LINES]
    words = [len(line.split()) for line in LINES]
    store = build(corpus, tokenizer, tmp_path / "cache", min_length=tokens[1])
    assert store.lengths.tolist() == [n for n in tokens if n >= tokens[1]]
    assert (store.manifest["read"], store.manifest["kept"], store.manifest["too_short"]) == (4, 3, 1)
    assert store.manifest["source"]["blank"] == 2
    strict = build(corpus, tokenizer, tmp_path / "cache", min_length=words[1], length_unit="words")
    assert strict.lengths.tolist() == [tokens[0], tokens[3]]  # > words[1], not >=
    assert strict.manifest["words"] == words[0] + words[3]
    both = {"min_length": words[1], "length_unit": "words", "min_tokens": tokens[0] + 1}
    store = build(corpus, tokenizer, tmp_path / "cache", **both)
    assert store.lengths.tolist() == [tokens[3]]
    assert (store.manifest["too_short"], store.manifest["too_few_tokens"]) == (2, 1)


def test_nothing_long_enough_says_how_long_the_longest_is(corpus, tiny_mlm, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(tiny_mlm)
    longest = max(len(expected_ids(tokenizer, line)) for line in LINES)
    message = (
        rf"none of the 4 documents.*at least 2048 tokens.*longest has {longest} tokens.*corpus\.txt:5.*max_span=auto"
    )
    with pytest.raises(InputError, match=message):
        build(corpus, tokenizer, tmp_path / "cache", min_length=2048)
    with pytest.raises(InputError, match=r"more than 2048 words and at least 99 tokens; the longest has 18 words"):
        build(corpus, tokenizer, tmp_path / "cache", min_length=2048, length_unit="words", min_tokens=99)
    assert [path.name for path in (tmp_path / "cache").iterdir() if path.is_dir()] == []


def test_manifest_has_the_sums(corpus, tiny_mlm, tmp_path):
    store = build(corpus, AutoTokenizer.from_pretrained(tiny_mlm), tmp_path / "cache")
    assert store.manifest["ids_sha256"] == hashlib.sha256((store.directory / "ids.bin").read_bytes()).hexdigest()
    assert store.manifest["text_sha256"] == hashlib.sha256("".join(f"{x}\0" for x in LINES).encode()).hexdigest()
    assert store.manifest["source"]["sha256"] == hashlib.sha256(corpus.read_bytes()).hexdigest()
    assert store.manifest["tokens"] == store.num_tokens
    assert json.loads(json.dumps(store.manifest)) == store.manifest


def test_second_start_reads_no_text(corpus, tiny_mlm, tmp_path, monkeypatch):
    tokenizer = AutoTokenizer.from_pretrained(tiny_mlm)
    first = build(corpus, tokenizer, tmp_path / "cache")
    monkeypatch.setattr(TextSource, "documents", lambda self: pytest.fail("the text was read again"))
    assert build(corpus, tokenizer, tmp_path / "cache").ids.tolist() == first.ids.tolist()


def test_the_key_follows_all_that_matters(corpus, tiny_mlm, tiny_bert, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(tiny_mlm)
    cache = tmp_path / "cache"
    stores = [
        build(corpus, tokenizer, cache),
        build(corpus, tokenizer, cache, lowercase=True),
        build(corpus, tokenizer, cache, min_length=2),
        build(corpus, tokenizer, cache, length_unit="words"),
        build(corpus, tokenizer, cache, length_unit="words", min_tokens=2),
        build(corpus, AutoTokenizer.from_pretrained(tiny_bert), cache),
    ]
    tokenizer.add_tokens(["harbour"])
    stores.append(build(corpus, tokenizer, cache))
    corpus.write_text(corpus.read_text() + "One more line.\n")
    stores.append(build(corpus, tokenizer, cache))
    assert len({store.directory for store in stores}) == len(stores)


def test_offsets_stay_on_disk_like_the_ids(corpus, tiny_mlm, tmp_path):
    store = build(corpus, AutoTokenizer.from_pretrained(tiny_mlm), tmp_path / "cache")
    assert isinstance(store.offsets.base, np.memmap)
    assert not store.offsets.flags.writeable
    assert store.offsets.tolist() == [0, *itertools.accumulate(len(store[row]) for row in range(len(store)))]


@pytest.mark.parametrize("damage", ["ids.bin", "offsets.npy", "meta.json"])
def test_a_damaged_store_is_built_anew(corpus, tiny_mlm, tmp_path, damage):
    tokenizer = AutoTokenizer.from_pretrained(tiny_mlm)
    store = build(corpus, tokenizer, tmp_path / "cache")
    ids = store.ids.tolist()
    path = store.directory / damage
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(InputError, match=r"not a token store|cut short"):
        TokenStore(store.directory)
    assert build(corpus, tokenizer, tmp_path / "cache").ids.tolist() == ids


def test_leftovers_of_a_killed_build_do_no_harm(corpus, tiny_mlm, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(tiny_mlm)
    directory = build(corpus, tokenizer, tmp_path / "cache").directory
    shutil.rmtree(directory)
    stale = unfinished(directory) / "stale"
    stale.mkdir(parents=True)
    (stale / "ids.bin").write_bytes(b"half")
    assert len(build(corpus, tokenizer, tmp_path / "cache")) == len(LINES)
    assert not stale.exists()


def test_bad_text_leaves_no_store(tmp_path, tiny_mlm):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "fine"}\n{"text": 3}\n')
    tokenizer = AutoTokenizer.from_pretrained(tiny_mlm)
    with pytest.raises(InputError, match=r"a\.jsonl:2"):
        build(path, tokenizer, tmp_path / "cache")
    assert not [entry for entry in (tmp_path / "cache").iterdir() if entry.is_dir()]
    store = build_or_open(TextSource(path, on_error="skip"), tokenizer, tmp_path / "cache", min_length=1, quiet=True)
    assert store.manifest["source"]["skipped"] == 1


def test_a_full_disk_is_the_users_to_solve(corpus, tiny_mlm, tmp_path, monkeypatch):
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full on this system")
    plain_open = Path.open

    def open_on_a_full_disk(self, *args, **kwargs):
        return plain_open(Path("/dev/full") if self.name == "ids.bin" else self, *args, **kwargs)

    monkeypatch.setattr(Path, "open", open_on_a_full_disk)
    with pytest.raises(InputError, match=r"cache.tokens-.*No space left on device.*data\.cache_dir"):
        build(corpus, AutoTokenizer.from_pretrained(tiny_mlm), tmp_path / "cache")


def test_a_tokenizer_in_python_is_refused(corpus, tmp_path):
    class InPython:
        is_fast = False

    with pytest.raises(InputError, match="InPython: wanted a fast tokenizer"):
        build(corpus, InPython(), tmp_path / "cache")


def _build_and_report(corpus, folder, cache, barrier, answers):
    reads = 0

    class Slow(TextSource):
        def documents(self):
            nonlocal reads
            reads += 1
            time.sleep(0.5)
            return super().documents()

    tokenizer = AutoTokenizer.from_pretrained(folder)
    barrier.wait()
    store = build_or_open(Slow(corpus), tokenizer, cache, min_length=1, quiet=True)
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


def test_word_starts_agree_with_the_offsets_of_the_tokenizer(tokenizer):
    table = word_start_table(tokenizer)
    assert table.shape == (len(tokenizer),)
    assert table[tokenizer.all_special_ids].all()
    text = " She repaired the clock with a spoon and two hairpins before Nobody remembers the harbour opens"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    starts = np.flatnonzero(table[ids])
    pieces = [tokenizer.decode(part.tolist()).strip() for part in np.split(np.array(ids), starts[1:])]
    expected = text.split()
    assert [piece.lower() for piece in pieces] == [word.lower() for word in expected]
    assert len(starts) < len(ids)  # the vocabulary is so small that some word has several pieces


def test_word_starts_of_an_unknown_kind_are_refused():
    plain = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0}, unk_token="a")))
    with pytest.raises(InputError, match=r"cannot tell where its words begin.*WordLevel"):
        word_start_table(plain)
