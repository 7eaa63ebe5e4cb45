"""The words of a text after deletion (split here by a regular expression) keep their order."""

import re

import numpy as np
import pytest
import torch

from contrastive_encoders.datamodules.sampling.word_deletion import WordDeletion
from tests.conftest import SENTENCES
from tests.data import batches, data_module, sequences_of

TEXTS = [
    "She repaired the clock with a spoon, two hairpins and 3.5 inches of string.",
    "“Nobody remembers,” he said (twice); the harbour’s lights don't care!",
    "a",
    "?!",
    "A well-known ferry — the last one — left at 6:15 for €20.",
]


def words(text, tokenizer):
    """Split a text into words. WordPiece ignores whether there is a space next to a punctuation mark."""
    wordpiece = "##" in "".join(tokenizer.get_vocab())
    return re.findall(r"\w+|[^\w\s]" if wordpiece else r"\w(?:\S*\w)?|[^\w\s]", text)


@pytest.mark.rotates
@pytest.mark.parametrize("share", [0.3, 0.6])
def test_words_stay_whole_in_their_order_and_at_the_rate(tokenizer, share):
    delete, kept, total, texts_of_one = WordDeletion(tokenizer, share, seed=5), 0, 0, 0
    for row, text in enumerate([*TEXTS, *SENTENCES]):
        ids = np.array(tokenizer(text, add_special_tokens=False)["input_ids"])
        if tokenizer.unk_token_id in ids:
            continue  # a vocabulary this small lacks a letter
        whole = words(tokenizer.decode(ids), tokenizer)
        for epoch in range(200):
            found = words(tokenizer.decode(delete(ids, epoch, row)), tokenizer)
            rest = iter(whole)
            assert found, whole
            assert all(word in rest for word in found), (found, whole)
            if len(whole) > 5:  # if all would be deleted, one remains
                kept, total = kept + len(found), total + len(whole)
            texts_of_one += len(whole) == 1 == len(found)
    assert abs(kept / total - (1 - share)) < 4 * (share * (1 - share) / total) ** 0.5 + share**6 / 6
    assert texts_of_one >= 200, "a text of one word keeps it"


def test_what_is_left_depends_on_seed_epoch_and_row_alone(tmp_path, tiny_bert):
    path = tmp_path / "s.txt"
    path.write_text("\n".join(f"{text} Row {number}." for number, text in enumerate(TEXTS * 4)))

    def drawn(epoch, world=1, seed=3, **keys):
        found = {}
        for rank in range(world):
            data = data_module(
                "sentences", path=path, tokenizer=tiny_bert, cache_dir=tmp_path, deletion_ratio=0.6, seed=seed, **keys
            )
            for batch in batches(data, rank=rank, world=world, epoch=epoch):
                found |= dict(zip(batch.rows.tolist(), map(tuple, sequences_of(batch.damaged)), strict=True))
        return found

    first = drawn(0)
    assert len(first) == 20
    assert drawn(0, world=2, batch_size=10) == drawn(0, batch_size=5, num_workers=2) == first
    for other in (drawn(1), drawn(0, seed=4)):
        assert sum(other[row] != first[row] for row in first) > 12


def test_words_are_deleted_before_a_text_is_cut(tmp_path, tiny_bert):
    """The end of a long text may remain, with its special tokens."""
    path = tmp_path / "s.txt"
    path.write_text("\n".join("the " * 30 + "ferry " * 10 for _ in range(4)))
    keys = {"path": path, "tokenizer": tiny_bert, "cache_dir": tmp_path, "max_length": 24}
    whole, damaged = (batches(data_module("sentences", **keys, deletion_ratio=share), 1)[0] for share in (None, 0.6))
    assert whole.damaged is None
    assert torch.equal(whole.sentences.ids, damaged.sentences.ids)
    for before, after in zip(sequences_of(damaged.sentences), sequences_of(damaged.damaged), strict=True):
        assert len(before) == 24 >= len(after)
        assert (after[0], after[-1]) == (before[0], before[-1])
        assert len(set(after)) > len(set(before)), "no word of the end that was cut"
