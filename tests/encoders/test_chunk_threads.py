"""Chunks in several threads: the embeddings of one thread, bit for bit, and torch's settings are as before."""

import copy
import multiprocessing
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from contrastive_encoders.encoders import sentence_encoder
from contrastive_encoders.encoders.kernels.chunk_threads import in_threads, is_thread_safe
from contrastive_encoders.encoders.loading.load import load_encoder
from tests.decoders import save_decoder

TEXTS = [f"{'The ferry leaves the harbour, and rain falls. ' * (number % 7)}{number}" for number in range(120)]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("family", ["bert", "llama"])
def test_embeddings_are_those_of_one_thread(family, precision, tiny_bert, tmp_path, threads, monkeypatch):
    path = tiny_bert if family == "bert" else save_decoder("llama", tmp_path / "llama")
    encoder = load_encoder(path, device="cpu", precision=precision)
    monkeypatch.setattr(sentence_encoder, "EMBED_TOKENS_CPU", 200)
    expected = dict[int, torch.Tensor]()
    for number in (1, 3):
        threads(number)
        expected[number] = encoder.embed(TEXTS)
        assert torch.get_num_threads() == number
    assert torch.equal(expected[1], expected[3])
    assert not torch.is_inference_mode_enabled()


def test_autocast_of_the_caller_applies_to_all_chunks(tmp_path, threads, monkeypatch):
    encoder = load_encoder(save_decoder("llama", tmp_path / "llama"), device="cpu")
    monkeypatch.setattr(sentence_encoder, "EMBED_TOKENS_CPU", 200)
    found = list[torch.Tensor]()
    for number in (1, 2):
        threads(number)
        with torch.autocast("cpu", torch.bfloat16):
            found.append(encoder.embed(TEXTS))
    assert torch.equal(*found)
    assert not torch.equal(found[0], encoder.embed(TEXTS))


def test_calls_from_several_threads_restore_the_encoder(tmp_path, threads):
    """Each call replaces the forward methods of layers, and restores those that it found."""
    threads(1)
    encoder = load_encoder(save_decoder("llama", tmp_path / "llama"), device="cpu").train()
    expected = encoder.embed(TEXTS * 4)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(encoder.embed, [TEXTS * 4] * 12))
    assert all(torch.equal(rows, expected) for rows in found)
    assert [name for name, module in encoder.named_modules() if "forward" in vars(module)] == []
    assert all(module.training for module in encoder.modules())


def test_a_query_does_not_wait_for_another_encoder(tiny_bert, threads):
    """Two encoders, as of a server that embeds documents and queries."""
    threads(2)
    documents, queries = load_encoder(tiny_bert, device="cpu"), load_encoder(tiny_bert, device="cpu")
    entered, answered = threading.Event(), threading.Event()

    def wait(*_):
        entered.set()
        assert answered.wait(60)

    hook = documents.trunk.register_forward_hook(wait)
    with ThreadPoolExecutor(1) as pool:
        embedding = pool.submit(documents.embed, TEXTS)
        assert entered.wait(60)
        expected = queries.embed(TEXTS[:3])
        answered.set()
        found = embedding.result()
    hook.remove()
    assert torch.equal(documents.embed(TEXTS), found)
    assert torch.equal(documents.embed(TEXTS[:3]), expected)


def test_a_forked_process_embeds_while_a_thread_of_its_parent_does(tiny_bert, threads):
    threads(1)
    encoder = load_encoder(tiny_bert, device="cpu")
    entered, ended = threading.Event(), threading.Event()

    def wait(*_):
        entered.set()
        ended.wait(60)

    hook = encoder.trunk.register_forward_hook(wait)
    with ThreadPoolExecutor(1) as pool:
        embedding = pool.submit(encoder.embed, TEXTS)
        assert entered.wait(60)
        hook.remove()
        child = multiprocessing.get_context("fork").Process(target=encoder.embed, args=(TEXTS[:3],))
        child.start()
        child.join(30)
        code = child.exitcode
        child.kill()
        ended.set()
        embedding.result()
    assert code == 0


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda encoder: pickle.loads(pickle.dumps(encoder))])
def test_a_copy_has_its_own_lock(copied, tiny_bert):
    encoder = load_encoder(tiny_bert, device="cpu")
    with encoder.call_lock, ThreadPoolExecutor(1) as pool:
        rows = pool.submit(copied(encoder).embed, TEXTS[:3]).result(60)
    assert torch.equal(rows, encoder.embed(TEXTS[:3]))


def test_results_are_in_order_without_gradients_and_an_error_is_raised(threads):
    threads(4)
    weight = torch.ones(1, requires_grad=True)
    rows = list(in_threads(lambda x: x * weight, ((torch.tensor([float(n)]),) for n in range(50)), 4))
    assert [row.item() for row in rows] == list(range(50))
    assert not any(row.requires_grad for row in rows)
    with pytest.raises(ZeroDivisionError):
        list(in_threads(lambda x: torch.tensor(1 / x), ((n,) for n in (2, 1, 0, 3)), 2))
    assert torch.get_num_threads() == 4


def test_positions_that_depend_on_earlier_inputs_are_computed_alone():
    """The rope types of transformers that change buffers in the forward pass."""
    config = type("Config", (), {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}})
    assert not is_thread_safe(config)
    assert is_thread_safe(type("Config", (), {"rope_parameters": {"rope_type": "default"}}))
