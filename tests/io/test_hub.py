"""Requests to the Hub: one per model; local files need none; an unreachable Hub costs seconds only."""

import socket
import time

import pytest
from huggingface_hub import constants

from contrastive_encoders.core import InputError
from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.io.hub import model_info, weights_of
from tests.forks import TRAIN, run_command
from tests.hub import Hub


def here(url, folder):
    """Return the environment of a user with this hub and an empty cache."""
    return {
        "HF_ENDPOINT": f"{url}/",
        "HF_HUB_OFFLINE": "",
        "TRANSFORMERS_OFFLINE": "",
        "no_proxy": "127.0.0.1",
        "HF_HUB_CACHE": str(folder / "hub"),
        "CONTRASTIVE_ENCODERS_CACHE": str(folder / "cache"),
    }


@pytest.fixture
def hub(tiny_mlm):
    hub = Hub("somebody/tiny", tiny_mlm)
    yield hub
    hub.close()


@pytest.fixture
def this_process(monkeypatch):
    """``this_process(url)`` gives this process this hub with an empty cache."""

    def connect(url):
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "ENDPOINT", url)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        model_info.cache_clear()

    yield connect
    model_info.cache_clear()


def test_a_second_start_sends_one_request_and_a_third_works_offline(hub, tmp_path):
    rows = tmp_path / "pairs.csv"
    rows.write_text("anchor,positive\n" + "".join(f"question {n},the answer to {n}\n" for n in range(16)))
    arguments = [TRAIN, "model=simcse", "data=triplets", f"data.path={rows}", f"backbone={hub.name}", "batch_size=8"]
    arguments += ["max_steps=1", "model.pooling=mean", "trainer.accelerator=cpu"]
    for seed in (1, 2):
        hub.asked.clear()
        done = run_command([*arguments, f"seed={seed}"], tmp_path, **here(hub.url, tmp_path))
        assert done.returncode == 0, done.stderr
        assert "http" not in done.stderr.lower()
    about_it = [request for request in hub.asked if hub.name in request]  # its client makes one request per day
    assert about_it == [f"GET /api/models/{hub.name}"]
    hub.close()
    done = run_command([*arguments, "seed=3"], tmp_path, **here(hub.url, tmp_path))
    assert (done.returncode, done.stderr.count("unreachable")) == (0, 1), done.stderr


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("file", "how", "why"),
    [
        ("model.safetensors", "breaks_off", "peer"),
        pytest.param("tokenizer.json", "breaks_off", "peer", marks=pytest.mark.slow),
        pytest.param("model.safetensors", "stalls", "timed out", marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_download_has_a_short_message_and_is_resumed(hub, tmp_path, file, how, why):
    (tmp_path / "texts.txt").write_text("a text\n")
    arguments = [
        "-m",
        "contrastive_encoders",
        "embed",
        f"encoder={hub.name}",
        f"input={tmp_path / 'texts.txt'}",
        "pooling=mean",
    ]
    arguments += [f"output={tmp_path / 'vectors.npy'}", "devices=1", "device=cpu"]
    setattr(hub, how, (file,))
    done = run_command(arguments, tmp_path, **here(hub.url, tmp_path), HF_HUB_DOWNLOAD_TIMEOUT="1")
    assert (done.returncode, done.stderr.count("Traceback")) == (1, 0), done.stderr
    *_, last = done.stderr.splitlines()
    address = f"{hub.url}/{hub.name}/resolve/{hub.commit}/{file}"
    assert last.startswith("contrastive-encoders embed: ")
    assert f"{address} {why}" in last
    setattr(hub, how, ("none",))
    done = run_command(arguments, tmp_path, **here(hub.url, tmp_path))
    assert (done.returncode, (tmp_path / "vectors.npy").is_file()) == (0, True), done.stderr


@pytest.mark.rotates
@pytest.mark.parametrize("listens", [False, True])  # and if so, never reads the request
def test_an_unreachable_hub_costs_seconds(this_process, listens):
    with socket.socket() as host:
        host.bind(("127.0.0.1", 0))
        if listens:
            host.listen()
        this_process(f"http://127.0.0.1:{host.getsockname()[1]}")
        before = time.monotonic()
        with pytest.raises(InputError) as error:
            load_encoder("owner/unknown-model")
        assert "owner/unknown-model" in str(error.value)
        assert time.monotonic() - before < 10
        assert not model_info("owner/unknown-model").reached


def test_a_hub_that_responds_is_reached_even_if_a_model_is_unknown(hub, this_process):
    this_process(hub.url)
    found = model_info(hub.name)
    assert (found.commit, list(found.files)) == (hub.commit, hub.files())
    assert model_info("owner/unknown-model") == model_info("no/such/name") == (True, "", ())


def test_each_folder_provides_weights_in_one_format():
    files = ["model.safetensors", "pytorch_model.bin", "2_Dense/pytorch_model.bin", "onnx/model.onnx"]
    assert weights_of([*files, "openvino/pytorch_model.bin", "tf_model.h5"]) == [
        "model.safetensors",
        "2_Dense/pytorch_model.bin",
    ]
    sharded = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    assert weights_of([*sharded, "pytorch_model.bin", "config.json"]) == sharded
