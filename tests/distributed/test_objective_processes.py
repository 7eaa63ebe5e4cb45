"""Every objective's step on 1, 2 and 3 processes: the same loss, metrics and gradient, as DDP averages it."""

import numpy as np
import pytest
import torch

from contrastive_encoders.core import NLIBatch, ScoredPairBatch, ScoredTripletBatch, SentenceBatch, TripletBatch
from contrastive_encoders.encoders.lora import quantize_frozen_layers
from contrastive_encoders.losses.directions import DIRECTIONS
from tests.decoders import save_decoder
from tests.distributed import steps
from tests.distributed.steps import assert_same_step, stepped, stepping
from tests.objectives import built

NOUNS = ["ferry", "violin", "orchard", "clock", "engine", "choir"]
LEFT = [f"The {noun} was seen." + " Rain fell." * i for i, noun in enumerate(NOUNS)]
RIGHT = [f"Somebody saw the {noun}" for noun in reversed(NOUNS)]
THIRD = [f"No {noun} in a cold kitchen" for noun in NOUNS]
SUPERVISED = {"temperature": 0.5, "pooling": "mean", "mlp_only_train": False}


def share(values, rank, world):
    """Return a rank's rows, distributed round-robin as the data modules do."""
    return values[rank::world]


def sroberta(model, rank, world):
    scores = share(torch.linspace(0, 1, 6), rank, world)
    return ScoredPairBatch(*texts(model, rank, world, LEFT, RIGHT), scores, np.arange(6))


def sbert_nli(model, rank, world):
    labels = share(torch.tensor([0, 1, 2, 2, 1, 2]), rank, world)
    return NLIBatch(*texts(model, rank, world, LEFT, RIGHT), labels, np.arange(6))


def sentences(model, rank, world):
    return SentenceBatch(*texts(model, rank, world, LEFT), np.arange(6))


def damaged(model, rank, world):
    whole, left = texts(model, rank, world, LEFT, [text.rpartition(" ")[2] for text in LEFT])
    return SentenceBatch(whole, np.arange(6), left)


def pairs(model, rank, world):
    groups = share(torch.tensor([4, 0, 4, 2, 0, 5]), rank, world)
    return TripletBatch(*texts(model, rank, world, LEFT, RIGHT), None, groups, np.arange(6))


def triplets(model, rank, world):
    groups = share(torch.arange(6), rank, world)
    return TripletBatch(*texts(model, rank, world, LEFT, RIGHT, THIRD), groups, np.arange(6))


def taught(batch_of, columns, width=16):
    """Return the same batches with a teacher's embeddings."""

    def batch(model, rank, world):
        vectors = torch.randn(6, columns, width, generator=torch.Generator().manual_seed(2))
        return batch_of(model, rank, world)._replace(taught=share(vectors, rank, world))

    return batch


def scored(model, rank, world):
    columns = texts(model, rank, world, LEFT, RIGHT, THIRD)
    return ScoredTripletBatch(
        *columns, share(torch.randn(6, 2, generator=torch.Generator().manual_seed(2)), rank, world), np.arange(6)
    )


def texts(model, rank, world, *columns):
    return [model.encoder.tokenize(share(column, rank, world)) for column in columns]


LORA = {"rank": 4, "alpha": None, "dropout": 0.0, "targets": "auto", "stages": "merge", "seed": 3}
DECODER = {"temperature": 0.5, "pooling": "last", "append_eos": True, "attention": "bidirectional", "mlp": False}
CASES = {
    "sroberta": ("sroberta", {}, sroberta),
    "sroberta recomputed": ("sroberta", {"token_budget": 20, "activation_checkpointing": "on"}, sroberta),
    "sroberta by layers": ("sroberta", {"activation_checkpointing": "layers"}, sroberta),
    "sroberta in chunks by layers": ("sroberta", {"token_budget": 20, "activation_checkpointing": "layers"}, sroberta),
    "sbert_nli": ("sbert_nli", {}, sbert_nli),
    "tsdae": ("tsdae", {}, damaged),
    "tsdae recomputed": ("tsdae", {"token_budget": 20, "activation_checkpointing": "on"}, damaged),
    "tsdae by layers": ("tsdae", {"activation_checkpointing": "layers"}, damaged),
    "simcse unsupervised": ("simcse", {"temperature": 0.5, "pooling": "mean"}, sentences),
    "simcse pairs": ("simcse", SUPERVISED, pairs),
    "simcse triplets": ("simcse", SUPERVISED | {"hard_negative_weight": 1.0}, triplets),
    "pairs in four directions": ("pairs", {"temperature": 0.5, "directions": list(DIRECTIONS)}, triplets),
    "simcse guided, by prefixes": ("simcse", SUPERVISED | {"guide": "itself", "matryoshka": [32, 8]}, triplets),
    "distil": ("distil", {"teacher": "any"}, taught(sentences, 1)),
    "distil by prefixes, recomputed": (
        "distil",
        {"teacher": "any", "matryoshka": [32, 16, 8], "token_budget": 20, "activation_checkpointing": "on"},
        taught(triplets, 3),
    ),
    "distil adapter": ("distil", {"teacher": "any", "distance": "mse", "lora": LORA}, taught(pairs, 2)),
    "simcse taught": ("simcse", SUPERVISED | {"teacher": "any", "teacher_weight": 2.0}, taught(triplets, 3)),
    "distil_scores": ("distil_scores", {}, scored),
    "distil_scores by kl, prefixes": ("distil_scores", {"loss": "kl", "matryoshka": [32, 8]}, scored),
    "cosent": ("cosent", {"temperature": 0.5}, sroberta),
    "angle by prefixes": ("angle", {"temperature": 0.5, "matryoshka": [32, 8]}, sroberta),
    "sroberta by prefixes": ("sroberta", {"matryoshka": [32, 8]}, sroberta),
    "sbert_nli by prefixes": ("sbert_nli", {"matryoshka": [32, 8], "matryoshka_weights": [1.0, 2.0]}, sbert_nli),
    "simcse recomputed": ("simcse", SUPERVISED | {"token_budget": 20, "activation_checkpointing": "on"}, triplets),
    "tsdae adapter": ("tsdae", {"lora": LORA}, damaged),
    "decoder": ("simcse", DECODER, pairs),
    "decoder adapter": ("simcse", DECODER | {"lora": LORA}, triplets),
    "decoder adapter in 16 bits, recomputed": (
        "simcse",
        DECODER | {"lora": LORA, "frozen_dtype": "bf16", "token_budget": 20, "activation_checkpointing": "on"},
        pairs,
    ),
    "decoder adapter in 16 bits, by layers": (
        "simcse",
        DECODER | {"lora": LORA, "frozen_dtype": "bf16", "activation_checkpointing": "layers"},
        pairs,
    ),
    "decoder adapter in 4 bits": ("simcse", DECODER | {"lora": LORA, "frozen_dtype": "nf4"}, triplets),
}
COMPILED = {  # seconds in each process
    "in chunks": ("sroberta", {"token_budget": 20, "activation_checkpointing": "on", "compile": "aot_eager"}, sroberta),
    "by layers": ("sroberta", {"activation_checkpointing": "layers", "compile": "aot_eager"}, sroberta),
}


def every_case(rank: int, world: int, encoder: str, decoder: str, cases: dict) -> dict:
    found = {}
    for name, (objective, options, batch_of) in cases.items():
        backbone = decoder if name.startswith("decoder") else encoder
        guide = {"guide": backbone} if "guide" in options else {}
        model = built(
            objective, backbone, **{"token_budget": 10**6, "activation_checkpointing": "off"} | options | guide
        ).eval()
        if "teacher" in options:
            model.learn_from_teacher(16, seed=5)
        step = stepping(model, world)
        quantize_frozen_layers(model)  # as a trainer does, within DDP
        found[name] = stepped(step, batch_of(model, rank, world))
    return found


@pytest.fixture(scope="module")
def backbones(tiny_bert, tmp_path_factory):
    return str(tiny_bert), str(save_decoder("llama", tmp_path_factory.mktemp("llama")))


@pytest.fixture(scope="module")
def cases(request):
    return {"sroberta": CASES["sroberta"]} | steps.selected(request, CASES)


@pytest.fixture(scope="module")
def alone(backbones, cases):
    return every_case(0, 1, *backbones, cases)


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.slow)])
def together(request, backbones, cases, tmp_path_factory):
    return steps.together(every_case, request.param, tmp_path_factory.mktemp("ranks"), *backbones, cases)


@pytest.mark.rotates
@pytest.mark.parametrize("name", CASES)
def test_a_step_does_not_depend_on_the_number_of_processes(name, alone, together):
    assert_same_step(alone[name], [rank[name] for rank in together])


@pytest.mark.slow
def test_a_compiled_step_does_not_depend_on_it(backbones, tmp_path):
    alone = every_case(0, 1, *backbones, COMPILED)
    together = steps.together(every_case, 2, tmp_path, *backbones, COMPILED)
    for name in COMPILED:
        assert_same_step(alone[name], [rank[name] for rank in together])


def test_the_ranks_brought_different_pairs(together):
    """Otherwise equal losses would prove nothing."""
    assert len({float(rank["sroberta"][0]) for rank in together}) > 1
