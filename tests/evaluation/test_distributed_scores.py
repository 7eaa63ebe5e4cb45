"""Scores are equal on every rank, in training too, and equal those of one process, for any number of sentences."""

import json
import multiprocessing
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.processes import statuses

ROOT = Path(__file__).resolve().parents[2]
WORKER = """
import json, sys
from pathlib import Path
import numpy as np
import torch.distributed as dist
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/tests/evaluation"]
from conftest import WORDS, BagOfWords, sentence_pairs
from contrastive_encoders.core import RatedPairs, RetrievalData
from contrastive_encoders.evaluation import embedding_pool as vectors
from contrastive_encoders.evaluation.suite import Suite

rank, out = int(sys.argv[2]), Path(sys.argv[3])


def pairs(count):
    left, right, gold = zip(*sentence_pairs(count, count))
    subsets = ["a"] * (count // 3) + ["b"] * (count - count // 3)
    return RatedPairs(f"sts{count}", list(left), list(right), np.array(gold), subsets)


def score():
    found = {}
    for rows in (8192, 7):  # one message, many messages
        vectors.ROWS_PER_MESSAGE = rows
        encoder = BagOfWords()
        suite = Suite([pairs(101), pairs(57), RetrievalData("docs", WORDS, [f"{word} {word} tea" for word in WORDS])])
        found[f"scores {rows}"] = suite.run(encoder, intervals=True)
        found[f"encoded {rows}"] = [len(call) for call in encoder.calls]
    for count in (1, 2, 4):  # fewer sentences than ranks, and uneven
        pool = vectors.embed_pool(BagOfWords(), [WORDS[:count], WORDS[:1]])
        found[f"vectors {count}"] = pool.lookup(WORDS[:count] + WORDS[:1]).tolist()
    found["none"] = list(vectors.embed_pool(BagOfWords(), []).vectors_UD.shape)
    return found


if rank == 0:
    (out / "1-0.json").write_text(json.dumps(score(), default=np.ndarray.tolist))
for world in (2, 3):  # in the same three processes: starting one costs more than scoring
    if rank < world:
        dist.init_process_group("gloo", init_method=f"file://{out}/store{world}", rank=rank, world_size=world)
        (out / f"{world}-{rank}.json").write_text(json.dumps(score(), default=np.ndarray.tolist))
        dist.destroy_process_group()
"""


TRAINER = """
import json, sys
from pathlib import Path
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/tests/evaluation"]
import test_score_callback as one
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger

rank, out = int(sys.argv[2]), Path(sys.argv[3])
scorer = one.ScoreCallback(one.FINAL, one.DURING, every_n_steps=2, is_last_step=one.is_last_step)
best = ModelCheckpoint(out, monitor=one.NAME, mode="max", every_n_train_steps=1, filename="{step}")
logger = CSVLogger(out, name="csv", version="")
trainer, module = one.fit(out, [scorer, best], steps=5, strategy="ddp", devices=2, logger=logger)
logger.save()
found = {"history": scorer.history, "best": best.best_model_path, "metric": float(trainer.callback_metrics[one.NAME])}
(out / f"{rank}.json").write_text(json.dumps(found))
"""


def run(code: str, world: int, out: Path, **settings: str) -> None:
    fork = multiprocessing.get_context("fork")
    children = [fork.Process(target=as_rank, args=(code, rank, out, settings)) for rank in range(world)]
    for child in children:
        child.start()
    assert statuses(children) == [0] * world


def as_rank(code: str, rank: int, out: Path, settings: Mapping[str, str]) -> None:
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "LOCAL_RANK": str(rank), **settings}
    sys.argv[1:] = [str(ROOT), str(rank), str(out)]
    exec(code, {})


@pytest.fixture(scope="module")
def ranks(tmp_path_factory) -> dict[int, list[dict]]:
    """Run on several processes; return a mapping: number of processes -> results of each rank."""
    out = tmp_path_factory.mktemp("ranks")
    run(WORKER, 3, out)
    return {world: [json.loads((out / f"{world}-{r}.json").read_text()) for r in range(world)] for world in (1, 2, 3)}


@pytest.mark.parametrize("world", [2, 3])
def test_scores_do_not_depend_on_the_number_of_processes(ranks, world):
    alone, found = ranks[1][0], ranks[world]
    for name in alone:
        if name.startswith("scores"):
            assert all(rank[name] == found[0][name] for rank in found), "bit-equal on all ranks"
            values, intervals, _, (cosines, *labels, replicates), first = found[0][name]
            assert values == pytest.approx(alone[name][0], abs=1e-6)
            of_one, (cosines_of_one, *_, replicates_of_one) = alone[name][1], alone[name][3]
            assert {
                n: pytest.approx(one, abs=1e-6) for n, one in (intervals | cosines).items()
            } == of_one | cosines_of_one
            assert {n: pytest.approx(one, rel=1e-6) for n, one in replicates.items()} == replicates_of_one  # float32
            assert (labels, first) == (alone[name][3][1:-1], alone[name][4])
        elif name.startswith("encoded"):
            shares = [sum(rank[name]) for rank in found]
            assert sum(shares) == alone[name][0], "each sentence on one rank"
            assert max(shares) - min(shares) <= 1
        else:
            assert all(rank[name] == alone[name] for rank in found), name


def test_two_ranks_train_and_score_alike_and_one_writes_the_log(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    run(TRAINER, 2, tmp_path, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first == second, "the same numbers and the same best checkpoint"
    assert list(first["history"]) == ["0", "2", "4", "5"]
    rows = (tmp_path / "csv" / "metrics.csv").read_text().splitlines()
    assert len(rows) == 1 + 4  # header; steps 0, 2, 4, 5
