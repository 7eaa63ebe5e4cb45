"""Instances of NLI triplets: the ids of the published assembly, computed slowly with the tokenizer alone."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

from contrastive_encoders.core import InputError
from tests.data import batches, data_module, sequences_of, write_rows

PROMPTS = {
    "entailment": {"prefix": 'Write two sentences that are entailment. Sentence 1: "', "suffix": '" Sentence 2:'},
    "contradiction": {"prefix": 'Write two sentences that are contradictory. Sentence 1: "', "suffix": '" Sentence 2:'},
    "discrimination": {
        "prefix": 'if "',
        "between": '", does this mean that "',
        "suffix": '"? true or false',
        "yes": "true",
        "no": "false",
    },
}
ROWS = [
    (f"The ferry number {i} leaves the harbour before the market opens.", f"Ferry {i} leaves.", f"No {i} stays there.")
    for i in range(40)
]
ROWS[7] = ("Rain fell on the orchard. " * 40, "It rained and rained. " * 40, "The orchard was dry. " * 40)


@pytest.fixture
def rows(tmp_path) -> Path:
    return write(tmp_path / "rows.jsonl", ROWS)


def write(path, rows, names=("premise", "entailment", "contradiction")):
    return write_rows(path, (dict(zip(names, row, strict=True)) for row in rows))


def data(path, tiny_t5, tmp_path, **options):
    keys = {"batch_size": 8, "prompts": PROMPTS, "cache_dir": tmp_path / "cache"} | options
    return data_module("nli_generation", path=path, tokenizer=tiny_t5, **keys)


def instances(batches):
    """Return a mapping: (row, kind) -> ids of source and target."""
    found = {}
    for batch in batches:
        texts = zip(sequences_of(batch.sources), sequences_of(batch.targets), strict=True)
        for row, kind, text in zip(batch.rows, batch.kinds, texts, strict=True):
            assert (row, kind) not in found
            found[int(row), int(kind)] = text
    return found


def published(tokenizer, row, kind, most=96, room=48):
    """Tokenize piece by piece and join the ids; each sentence is cut before, and the end of sequence comes last."""

    def ids(text):
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    s0, s1, s2 = row
    end = [tokenizer.eos_token_id]
    if kind < 2:
        name = ("entailment", "contradiction")[kind]
        prefix, suffix = PROMPTS[name]["prefix"], PROMPTS[name]["suffix"]
        return ids(prefix) + ids(s0)[:most] + ids(suffix) + end, ids((s1, s2)[kind])[: room - 1] + end
    prefix, between, suffix, yes, no = PROMPTS["discrimination"].values()
    other = (s1, s2)[kind - 2]
    source = ids(prefix) + ids(s0)[:most] + ids(between) + ids(other)[:most] + ids(suffix) + end
    return source, ids((yes, no)[kind - 2]) + end


def held_out(module):
    found = instances([*module.dev_batches("generation", 7), *module.dev_batches("discrimination", 7)])
    rows = {row for row, _ in found}
    assert set(found) == {(row, kind) for row in rows for kind in range(4)}
    return found


def test_an_epoch_has_the_four_published_instances_of_every_row_in_one_shuffle(rows, tiny_t5, tmp_path):
    other = write(tmp_path / "dev.jsonl", ROWS[:2])
    module = data(rows, tiny_t5, tmp_path, dev_path=str(other))
    epoch = batches(module)
    found, tokenizer = instances(epoch), AutoTokenizer.from_pretrained(tiny_t5)
    assert module.num_examples == 160
    assert len(epoch) == 20
    assert found == {(i, kind): published(tokenizer, row, kind) for i, row in enumerate(ROWS) for kind in range(4)}
    assert Counter(kind for _, kind in found) == dict.fromkeys(range(4), 40)
    assert len({int(row) for row in epoch[0].rows}) > 2  # shuffled as instances, not as rows
    again = instances(module.train_dataloader())
    assert again == found
    assert list(again) == list(found)


def test_joined_strings_are_tokenized_as_a_whole(rows, tiny_t5, tmp_path):
    pieces = held_out(data(rows, tiny_t5, tmp_path, dev_path=str(rows)))
    found = held_out(data(rows, tiny_t5, tmp_path, dev_path=str(rows), prompt_assembly="string"))
    tokenizer = AutoTokenizer.from_pretrained(tiny_t5)
    for i in (0, 3):
        s0, _, s2 = ROWS[i]
        written = f'Write two sentences that are entailment. Sentence 1: "{s0}" Sentence 2:'
        assert found[i, 0][0] == tokenizer(written)["input_ids"] != pieces[i, 0][0]
        asked = f'if "{s0}", does this mean that "{s2}"? true or false'
        assert found[i, 3][0] == tokenizer(asked)["input_ids"]
        assert found[i, 1][1] == tokenizer(s2)["input_ids"]
        assert found[i, 2][1] == tokenizer("true")["input_ids"]
    longest = max(len(source) for source, _ in found.values())
    assert longest < 2 * 96 + 80  # cut before joining


def test_rows_of_the_dev_split_are_held_out(tmp_path, tiny_t5):
    names = ("sent0", "sent1", "hard_neg", "split")
    splits = ["train"] * 30 + ["valid"] * 6 + ["test"] * 4
    lines = [json.dumps(dict(zip(names, (*row, split), strict=True))) for row, split in zip(ROWS, splits, strict=True)]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(lines) + "\n")
    module = data(path, tiny_t5, tmp_path)
    module.setup()
    assert module.num_examples == 4 * 30
    tokenizer = AutoTokenizer.from_pretrained(tiny_t5)
    assert held_out(module)[0, 0] == published(tokenizer, ROWS[30], 0)
    assert len(held_out(module)) == 4 * 6
    assert module.manifest()["held_out"]["used"] == 6


def test_else_a_share_of_the_premises_and_none_on_both_sides(tmp_path, tiny_t5):
    rows = [(f"The {'ferry ' * (i % 50)}leaves.", f"Written {i}.", f"Never {i}.") for i in range(200)]
    path = write(tmp_path / "rows.jsonl", rows)
    module = data(path, tiny_t5, tmp_path, dev_fraction=0.2)
    module.setup()
    kept = {tuple(module.store.text(row, 0)) for row in range(len(module.store))}
    out = {tuple(module.dev_store.text(row, 0)) for row in range(len(module.dev_store))}
    assert not kept & out
    assert len(kept) + len(out) == len({tuple(one) for one in kept | out}) == 50
    assert len(module.store) + len(module.dev_store) == 200
    assert 2 <= len(out) <= 20
    assert not {f"The {'ferry ' * i}leaves." for i in range(50)} <= set(module.texts())
    same = data(path, tiny_t5, tmp_path, dev_fraction=0.2, prompt_assembly="string")
    same.setup()
    assert len(same.dev_store) == len(module.dev_store)


def test_held_out_batches_of_ranks_are_those_of_one_process(rows, tiny_t5, tmp_path):
    module = data(rows, tiny_t5, tmp_path, dev_path=str(rows), dev_rows=9)
    alone = list(module.dev_batches("generation", 4))
    assert [len(batch.rows) for batch in alone] == [4, 4, 4, 4, 2]
    dealt = [list(module.dev_batches("generation", 4, rank, 2)) for rank in range(2)]
    for i, batch in enumerate(alone):
        np.testing.assert_array_equal(batch.rows, dealt[i % 2][i // 2].rows)
        assert batch.sources.ids.tolist() == dealt[i % 2][i // 2].sources.ids.tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dev_fraction": 0.0}, "dev_fraction"),
        ({"target_length": 1}, "target_length"),
        ({"prompts": {}}, "prompts.entailment.prefix"),
    ],
)
def test_a_wrong_setting_is_refused(options, message, rows, tiny_t5, tmp_path):
    with pytest.raises(InputError, match=message):
        data(rows, tiny_t5, tmp_path, **options)
