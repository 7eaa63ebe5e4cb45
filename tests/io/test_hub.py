"""The hub is asked once for a model, local files are read from the disk, and a silent hub costs seconds."""

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

    def meets(url):
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "ENDPOINT", url)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        model_info.cache_clear()

    yield meets
    model_info.cache_clear()


def test_a_second_start_asks_the_hub_once_and_a_third_goes_without(hub, tmp_path):
    rows = tmp_path / "pairs.csv"
    rows.write_text("anchor,positive\n" + "".join(f"question {n},the answer to {n}\n" for n in range(16)))
    words = [TRAIN, "model=simcse", "data=triplets", f"data.path={rows}", f"backbone={hub.name}", "batch_size=8"]
    words += ["max_steps=1", "model.pooling=mean", "trainer.accelerator=cpu"]
    for seed in (1, 2):
        hub.asked.clear()
        done = run_command([*words, f"seed={seed}"], tmp_path, **here(hub.url, tmp_path))
        assert done.returncode == 0, done.stderr
        assert "http" not in done.stderr.lower()
    about_it = [request for request in hub.asked if hub.name in request]  # its client makes one request per day
    assert about_it == [f"GET /api/models/{hub.name}"]
    hub.close()
    done = run_command([*words, "seed=3"], tmp_path, **here(hub.url, tmp_path))
    assert (done.returncode, done.stderr.count("out of reach")) == (0, 1), done.stderr


@pytest.mark.parametrize(
    ("file", "how", "why"),
    [
        ("model.safetensors", "breaks_off", "peer"),
        pytest.param("tokenizer.json", "breaks_off", "peer", marks=pytest.mark.slow),
        pytest.param("model.safetensors", "stalls", "timed out", marks=pytest.mark.slow),
    ],
)
def test_a_download_that_breaks_off_is_one_sentence_and_goes_on(hub, tmp_path, file, how, why):
    (tmp_path / "texts.txt").write_text("a text\n")
    words = [
        "-m",
        "contrastive_encoders",
        "embed",
        f"encoder={hub.name}",
        f"input={tmp_path / 'texts.txt'}",
        "pooling=mean",
    ]
    words += [f"output={tmp_path / 'vectors.npy'}", "devices=1", "device=cpu"]
    setattr(hub, how, (file,))
    done = run_command(words, tmp_path, **here(hub.url, tmp_path), HF_HUB_DOWNLOAD_TIMEOUT="1")
    assert (done.returncode, done.stderr.count("Traceback")) == (1, 0), done.stderr
    *_, last = done.stderr.splitlines()
    address = f"{hub.url}/{hub.name}/resolve/{hub.commit}/{file}"
    assert last.startswith(f"contrastive-encoders embed: a download broke off: {address} {why}")
    setattr(hub, how, ("none",))
    done = run_command(words, tmp_path, **here(hub.url, tmp_path))
    assert (done.returncode, (tmp_path / "vectors.npy").is_file()) == (0, True), done.stderr


@pytest.mark.parametrize("listens", [False, True])  # and if so, never reads the request
def test_a_hub_that_does_not_answer_costs_moments(this_process, listens):
    with socket.socket() as host:
        host.bind(("127.0.0.1", 0))
        if listens:
            host.listen()
        this_process(f"http://127.0.0.1:{host.getsockname()[1]}")
        before = time.monotonic()
        with pytest.raises(InputError, match="could not be had from the Hugging Face hub"):
            load_encoder("nobody/has-such-a-model")
        assert time.monotonic() - before < 10
        assert not model_info("nobody/has-such-a-model").reached


def test_a_hub_that_answers_is_there_whatever_it_says(hub, this_process):
    this_process(hub.url)
    found = model_info(hub.name)
    assert (found.commit, list(found.files)) == (hub.commit, hub.files())
    assert model_info("nobody/has-such-a-model") == model_info("no/such/name") == (True, "", ())


def test_of_each_folder_the_weights_of_one_form_are_fetched():
    there = ["model.safetensors", "pytorch_model.bin", "2_Dense/pytorch_model.bin", "onnx/model.onnx"]
    assert weights_of([*there, "openvino/pytorch_model.bin", "tf_model.h5"]) == [
        "model.safetensors",
        "2_Dense/pytorch_model.bin",
    ]
    sharded = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    assert weights_of([*sharded, "pytorch_model.bin", "config.json"]) == sharded
