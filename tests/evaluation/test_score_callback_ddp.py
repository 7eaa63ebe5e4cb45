"""Two processes train under DDP and score: the same numbers, the same best checkpoint, no rank left waiting."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import statuses

ROOT = Path(__file__).resolve().parents[2]
WORKER = """
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


@pytest.fixture(scope="module")
def ranks(tmp_path_factory) -> list[dict]:
    out = tmp_path_factory.mktemp("ddp")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    settings = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    children = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(ROOT), str(rank), str(out)],
            env={**os.environ, **settings, "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]
    assert statuses(children) == [0, 0]
    rows = (out / "csv" / "metrics.csv").read_text().splitlines()
    return [{**json.loads((out / f"{rank}.json").read_text()), "rows": rows} for rank in range(2)]


def test_both_ranks_hold_the_same_numbers_and_the_same_best_checkpoint(ranks):
    assert ranks[0] == ranks[1]
    assert list(ranks[0]["history"]) == ["0", "2", "4", "5"]


def test_one_rank_writes_the_log(ranks):
    assert len(ranks[0]["rows"]) == 1 + 4  # header; steps 0, 2, 4, 5
