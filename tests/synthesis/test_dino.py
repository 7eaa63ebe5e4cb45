"""DINO's prompts for the decoder, and its handling of answers, with a scripted decoder."""

import random
from collections import Counter

import pytest

from contrastive_encoders.core.runtime.worker_tasks import WorkItem
from contrastive_encoders.synthesis.decoding.continuations import Continuation
from contrastive_encoders.synthesis.recipe_configs import Plan
from contrastive_encoders.synthesis.recipes.dino import DinoShardBuilder, x1_units, x2_units
from contrastive_encoders.synthesis.rules.filters import NO_ROOM, UNCLOSED
from contrastive_encoders.synthesis.shards.sharded_dataset import ShardInputs
from contrastive_encoders.synthesis.task_spec import parse_spec

SPEC = parse_spec(
    {
        "task_name": "t",
        "labels": {
            "1": {"instruction": 'same: "<X1>" "'},
            "0": {"instruction": 'other: "<X1>" "', "counter_labels": ["1"], "decay": 7, "epsilon": 0.5},
        },
    },
    "spec",
)
FIRST = parse_spec({"task_name": "t", "labels": {name: {"instruction": f'{name} "'} for name in "abc"}}, "spec")


def answer(prompt, sample, closed=0.7):
    """Answer by a function of the key and the sample, as the decoder does."""
    draw = random.Random(repr((prompt.key, sample)))
    return Continuation(prompt, sample, f" text {draw.randrange(4)}", draw.random() < closed, draw.randrange(1, 9))


def run(job, *, shuffle=0, at_once=3, closed=0.7):
    """Pull prompts as a decoder would: several at a time, with answers in any order, and again after None."""
    draw, under_way, shards, prompts = random.Random(shuffle), [], [], job.prompts()
    exhausted, most, groups = False, 0, {}
    while True:
        while not exhausted and len(under_way) < at_once * 5:
            try:
                prompt = next(prompts)
            except StopIteration:
                exhausted = True
                break
            if prompt is None:
                break
            under_way += [answer(prompt, sample, closed) for sample in prompt.samples]
        if not under_way:
            return [shard for shard in shards if shard], most, list(groups.values())
        most = max(most, len(job.groups))
        groups |= job.groups
        shards.append(job.take(under_way.pop(draw.randrange(len(under_way)))))


def x2_job(plan, texts=7, shard_size=3, spec=SPEC):
    names = [f"x1 {n}" for n in range(texts)]
    return DinoShardBuilder(spec, plan, tasks(x2_units(spec, names), shard_size))


def tasks(units, shard_size):
    units = list(units)
    return [
        WorkItem(number, ShardInputs(first, units[first : first + shard_size]))
        for number, first in enumerate(range(0, len(units), shard_size))
    ]


def test_prompts_are_the_inputs_times_the_labels_with_their_own_decay():
    prompts = list(x2_job(Plan(per_label=5, decay=100, epsilon=0.01), texts=2).prompts())
    assert [(p.text, p.counters, p.decay, p.epsilon, p.samples) for p in prompts] == [
        (f'{override}: "x1 {n}" "', (f'same: "x1 {n}" "',) * (override == "other"), decay, epsilon, range(5))
        for n in range(2)
        for override, decay, epsilon in (("same", 100, 0.01), ("other", 7, 0.5))
    ]
    assert len({prompt.key for prompt in prompts}) == 4


def test_overgenerate_takes_all_that_pass_in_the_order_of_the_samples():
    shards, _, groups = run(x2_job(Plan(per_label=5), texts=20))
    assert len(groups) == 40
    for group in groups:
        prompt = group.begin(SPEC, range(5))
        answers = [answer(prompt, sample) for sample in range(5)]
        assert [entry["text_b"] for entry in group.entries()] == [one.text for one in answers if one.closed]
        assert group.rejected[UNCLOSED] == sum(not one.closed for one in answers)
    rows = [row for shard in sorted(shards) for row in shard.rows]
    assert Counter(map(str, rows)) == Counter(str(entry) for group in groups for entry in group.entries())


def test_retry_stops_at_enough_different_texts_or_at_the_last_try():
    _, _, groups = run(x2_job(Plan(strategy="retry", per_label=2, max_tries=5), texts=40))
    tries = Counter()
    for group in groups:
        texts = [entry["text_b"] for entry in group.entries()]
        assert len(texts) == len(set(texts)) <= 2
        assert len(texts) + group.rejected.total() == group.tried <= 5
        assert len(texts) == 2 or group.tried == 5
        tries[group.tried] += 1
    assert len(tries) == 4, "some need 2, some 3, 4 or 5"


@pytest.mark.parametrize("strategy", ["overgenerate", "retry"])
def test_an_input_without_room_is_counted_and_not_tried_again(strategy):
    job = x2_job(Plan(strategy=strategy, per_label=2, max_tries=5), texts=1)
    answers = (
        Continuation(prompt, sample, "", False, 0, "the prompt has 300 tokens")
        for prompt in job.prompts()
        for sample in prompt.samples
    )
    *_, shard = map(job.take, answers)
    assert shard.labels["1"] == {"samples": 2, "accepted": 0, "rejected": {NO_ROOM: 2}}


def test_first_sentences_are_split_evenly_over_the_labels():
    units = list(x1_units(FIRST, 15_000))
    assert Counter(unit.labels[0].name for unit in units) == {"a": 5_000, "b": 5_000, "c": 5_000}
    uneven = Counter(unit.labels[0].name for unit in x1_units(FIRST, 8))
    assert uneven == {"a": 3, "b": 3, "c": 2}
    job = DinoShardBuilder(FIRST, Plan(per_label=1, max_tries=1), tasks(x1_units(FIRST, 8), 3))
    shards, *_ = run(job, closed=1.0)
    assert sorted(len(shard.rows) for shard in shards) == [2, 3, 3]
    assert all(entry["text_b"] is None for shard in shards for entry in shard.rows)


def test_the_same_random_numbers_are_never_used_twice():
    first = [prompt.key for prompt in DinoShardBuilder(FIRST, Plan(), tasks(x1_units(FIRST, 30), 3)).prompts()]
    second = [prompt.key for prompt in x2_job(Plan(), texts=30).prompts()]
    assert len({*first, *second}) == len(first) + len(second)
