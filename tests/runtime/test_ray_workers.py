"""Workers on a Ray cluster of three nodes, one of which disappears; clusters that cannot be joined."""

import itertools
import re
import socket
import time

import numpy as np
import pytest

from contrastive_encoders.cli.embed import run
from contrastive_encoders.cli.sweep import run as run_sweep
from contrastive_encoders.comparison import run_scheduler
from contrastive_encoders.core import InputError
from contrastive_encoders.core.runtime import ray_workers
from contrastive_encoders.core.runtime.worker_pool import open_pool
from contrastive_encoders.core.runtime.worker_tasks import WorkItem
from tests.comparison.slow_runs import kill_first, recorded, steps, when_under_way, write_sweep
from tests.in_process import run_here

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module")
def cluster():
    """A head without room for a worker, and two nodes with room for one each."""
    from ray.cluster_utils import Cluster

    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(2):
        found.add_node(num_cpus=1)
    yield found
    ray.shutdown()
    found.shutdown()


def load():
    return ray.get_runtime_context().get_node_id()


def slowly(node, tasks):
    for task in tasks:
        time.sleep(0.2)
        yield task.number, (node, task.number**2)


@pytest.mark.slow  # a cluster of Ray
def test_vectors_of_a_cluster_are_those_of_one_process(tmp_path, tiny_mlm, cluster):
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(f"{'salt ' * (n % 40)}{n}\n" for n in range(500)))
    arguments = [f"encoder={tiny_mlm}", f"input={texts}", "chunk_rows=20", "quiet=true"]
    run_here("embed", run, (*arguments, f"output={tmp_path / 'one.npy'}"))
    on_cluster = [f"cluster={cluster.address}", "devices=2", "num_cpus=1"]
    run_here("embed", run, (*arguments, f"output={tmp_path / 'two.npy'}", *on_cluster))
    np.testing.assert_allclose(np.load(tmp_path / "two.npy"), np.load(tmp_path / "one.npy"), atol=1e-6)


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("address", "resources", "message"),
    [
        ("ray://127.0.0.1:1", {}, r"cluster=ray://127\.0\.0\.1:1: .*refused"),
        ("nowhere", {}, r"cluster=nowhere: "),
        ("ray://127.0.0.1", {}, r"HOST:PORT\)"),
        ("127.0.0.1:port", {}, r"HOST:PORT\)"),
        ("its own", {"num_gpus": 1}, r"\b1 GPU .*\b0\b"),
        ("its own", {"num_cpus": 2}, r"\b2 CPU .*\b1\b"),
    ],
)
def test_a_cluster_that_cannot_be_used_is_refused(cluster, address, resources, message):
    if address == "its own":
        address = cluster.address
    else:
        ray.shutdown()
    with pytest.raises(InputError, match=message):
        open_pool(load, 2, address, **resources)


@pytest.mark.parametrize("kind", ["", "ray://"])
def test_a_server_that_does_not_answer_is_refused_after_a_timeout(monkeypatch, kind):
    ray.shutdown()
    monkeypatch.setattr(ray_workers, "ANSWER_TIMEOUT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(InputError, match="timed out"):
        open_pool(load, 2, f"{kind}127.0.0.1:{server.getsockname()[1]}")


@pytest.mark.slow
def test_a_worker_with_other_software_is_refused(cluster, monkeypatch):
    here = ray_workers.software_versions()
    monkeypatch.setattr(
        ray_workers, "software_versions", lambda: here | {"contrastive-encoders": "9.0"}
    )  # of the driver
    with open_pool(load, 2, cluster.address, num_cpus=1) as pool, pytest.raises(InputError) as refused:
        list(pool.run(slowly, [WorkItem(0)]))
    assert refused.value.key == "cluster"
    assert re.fullmatch(rf"contrastive-encoders {here['contrastive-encoders']} .* 9\.0", refused.value.value)


@pytest.mark.slow
def test_a_node_that_goes_away_loses_nothing(cluster):
    with open_pool(load, 2, cluster.address, num_cpus=1) as pool:
        results = pool.run(slowly, (WorkItem(number) for number in range(40)))
        found = list(itertools.islice(results, 6))
        assert len({node for _, (node, _) in found}) == 2
        cluster.remove_node(cluster.worker_nodes.copy().pop(), allow_graceful=False)
        cluster.add_node(num_cpus=1)
        found += results
    assert sorted(number for number, _ in found) == list(range(40))
    assert all(value == number**2 for number, (_, value) in found)
    assert len({node for _, (node, _) in found}) == 3


@pytest.mark.slow
def test_a_sweep_on_a_cluster_loses_nothing_with_a_worker(tmp_path, cluster, monkeypatch):
    """Best and trials are those of a sweep on this machine. An output that the nodes cannot see is refused."""
    monkeypatch.setattr(run_scheduler, "TRAIN", (str(tmp_path / "program.py"),))
    arguments = write_sweep(tmp_path)
    assert run_sweep(arguments) == 0
    on_cluster = [*arguments[:-1], f"output={tmp_path / 'other'}", f"cluster={cluster.address}", "num_cpus=1"]
    killed = when_under_way(tmp_path / "other", 2, kill_first)
    assert run_sweep(on_cluster) == 0
    killed.join()
    assert recorded(on_cluster) == recorded(arguments)
    assert set(steps(tmp_path / "other").values()) == {"0123456789"}
    job = run_scheduler.Job("unseen", ["model.lr=1"], tmp_path / "unseen" / "run")
    with (
        run_scheduler.open_workers(tmp_path / "unseen", 1, cluster.address, num_cpus=1) as pool,
        pytest.raises(InputError) as refused,
    ):
        run_scheduler.run_all(pool, [job], tmp_path / "record.jsonl")
    assert (refused.value.key, refused.value.value) == ("output", tmp_path / "unseen")
