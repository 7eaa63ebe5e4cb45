import numpy as np
import pytest
import torch

from contrastive_encoders.core import InputError
from contrastive_encoders.evaluation.embedding_pool import EmbeddingCache, embed_pool

TEXTS = ["", "a", "naïve", "\ud800 lone", "x" * 5000]


def vectors(count: int, seed: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(count, 7)).astype(np.float32))


def test_what_was_added_is_read_back_also_by_another_process(tmp_path):
    first, second = vectors(5, 0), vectors(2, 1)
    store = EmbeddingCache(tmp_path, "abc")
    store.add(TEXTS, first)
    store.add(["b", "c"], second)
    for found in (store, EmbeddingCache(tmp_path, "abc")):
        assert found.contains(["c", "d", ""]) == [True, False, True]
        assert torch.equal(found.read(["c", "", "naïve"]), torch.stack([second[1], first[0], first[2]]))


def test_the_second_time_only_new_texts_are_encoded(tmp_path, bag_of_words):
    lists = [["tea salt", "gull"], ["tea salt", "drum"]]
    first = embed_pool(bag_of_words, lists, EmbeddingCache(tmp_path, "abc"))
    again = embed_pool(bag_of_words, [*lists, ["moss"]], EmbeddingCache(tmp_path, "abc"))
    assert [sorted(call) for call in bag_of_words.calls] == [["drum", "gull", "tea salt"], ["moss"]]
    for text in ("tea salt", "gull", "drum"):
        assert torch.equal(first.lookup([text]), again.lookup([text]))
    assert torch.equal(again.lookup(["moss"]), bag_of_words.embed(["moss"]))
    embed_pool(bag_of_words, lists, EmbeddingCache(tmp_path, "abc"))
    assert len(bag_of_words.calls) == 3


def test_two_commands_that_share_a_folder_may_both_add_a_text(tmp_path):
    one, other = EmbeddingCache(tmp_path, "abc"), EmbeddingCache(tmp_path, "abc")
    assert one.contains(["b", "c"]) == other.contains(["b", "c"]) == [False, False]
    one.add(["b", "c"], vectors(2, 1))
    other.add(["b", "c"], vectors(2, 1))
    assert torch.equal(other.read(["b", "c"]), vectors(2, 1))


def test_an_invalid_cache_directory_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError) as refused:
        EmbeddingCache(tmp_path / "file", "abc")
    assert (refused.value.key, refused.value.value) == ("cache_dir", tmp_path / "file")
