"""GenSE against plain calls of transformers, the equation in float64, and Adafactor as written in its paper."""

import json
import math

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, T5ForConditionalGeneration, T5Model

from contrastive_encoders.core import InputError, TripletBatch
from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.encoders.loading.tiny import write_tiny_t5
from contrastive_encoders.encoders.optimizers import adafactor
from tests.data import data_module
from tests.decoders import save_decoder, sentencepiece
from tests.objectives import SIZES, built

PROMPT = " Question: what can we draw from the above sentence?"
TEXTS = [
    "The ferry leaves the harbour.",
    "",
    "   ",
    "rain " * 300,
    "a literal </s> in the middle",
    "<pad> and <extra_id_0>",
    "🐦 السفينة",
    "Bread rises slowly in a cold kitchen, and so does the orchard after three days of rain.",
]
ROWS = np.arange(6)
LEFT = ["Two dogs run.", "Two dogs run.", "A boat.", "Two dogs run.", "A boat.", "Nobody sings."]
RIGHT = ["Dogs are running.", "Animals move.", "A ship is there.", "Two dogs.", "Something floats.", "It is silent."]
THIRD = ["Cats sleep.", "Nothing moves.", "A car drives.", "One dog.", "It sank.", "The choir sings."]
GROUPS = torch.tensor([7, 7, 1, 7, 1, 0])


@pytest.fixture(scope="module")
def t5(tmp_path_factory):
    folder = tmp_path_factory.mktemp("t5") / "backbone"
    texts = [*LEFT, *RIGHT, *THIRD, *TEXTS[:1], TEXTS[-1], PROMPT] * 3
    write_tiny_t5(folder, iter(texts), seed=3, dropout=0.1, lowercase=False, **SIZES)
    return folder


def model_of(backbone, **options):
    defaults = {"prompt_suffix": PROMPT, "token_budget": 10**6, "activation_checkpointing": "off", "max_length": 64}
    return built("gense", backbone, **{**defaults, **options}).eval()


def batch_of(model, columns, groups=GROUPS):
    """Return a batch as a data module makes it, without the prompt."""
    appended = model.encoder.appended
    model.encoder.appended = None
    made = [model.encoder.tokenize(column) for column in columns]
    model.encoder.appended = appended
    return TripletBatch(made[0], made[1], made[2] if len(made) > 2 else None, groups, ROWS[: len(columns[0])])


def by_transformers(folder, texts, prompt, max_length):
    """Encode one text at a time; the prompt follows a text that is cut to leave room for it."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), T5Model.from_pretrained(folder).eval()
    rows = []
    for text in texts:
        plain = tokenizer(text.replace("</s>", "<unk>"), add_special_tokens=False)["input_ids"]
        suffix = tokenizer(prompt)["input_ids"]
        ids = torch.tensor([plain[: max_length - len(suffix)] + suffix])
        with torch.no_grad():
            output = model(input_ids=ids, decoder_input_ids=torch.tensor([[tokenizer.pad_token_id]]))
        rows.append(output.last_hidden_state[0, 0])
    return torch.stack(rows)


def test_texts_of_a_step_end_where_those_of_embed_do(tmp_path):
    """The tokenizer joins spaces; Lightning calls this function before a batch goes to its device."""
    model = model_of(save_decoder("llama", tmp_path, sentencepiece("llama-2")))
    columns = [["A boat.   ", "", "Nobody sings."], ["  ", " It  is  ", "x"]]
    batch = model.on_before_batch_transfer(batch_of(model, columns, GROUPS[:3]), 0)
    assert batch.negatives is None
    for view, column in zip(batch[:2], columns, strict=True):
        read, wanted = model.encoder.appended(view), model.encoder.tokenize(column)
        assert read.ids.tolist() == wanted.ids.tolist()
        assert read.lengths.tolist() == wanted.lengths.tolist()


@pytest.mark.parametrize("prompt", [PROMPT, None])
@pytest.mark.parametrize("options", [{}, {"token_budget": 40}], ids=["whole", "chunks"])
def test_vectors_are_the_first_decoder_states_of_transformers(t5, prompt, options):
    encoder = model_of(t5, prompt_suffix=prompt, **options).encoder
    expected = by_transformers(t5, TEXTS, prompt or "", 64)
    torch.testing.assert_close(encoder.embed(TEXTS), expected, atol=1e-5, rtol=0)
    assert (expected[0] - expected[7]).abs().max() > 1e-2


@pytest.mark.parametrize("activation_checkpointing", ["on", "off", "layers"])
@pytest.mark.parametrize("pooling", ["first_decoder", "mean"])
def test_training_sees_the_vectors_of_embed(t5, activation_checkpointing, pooling, tmp_path):
    """The path is files, the store of ids and the data module; some texts are too long or contain special tokens."""
    path = tmp_path / "triplets.jsonl"
    texts = [text for text in TEXTS if text.strip()]
    columns = ("premise", "entailment", "contradiction")
    path.write_text("".join(json.dumps(dict.fromkeys(columns, text)) + "\n" for text in texts))
    keys = {"path": path, "tokenizer": t5, "batch_size": len(texts), "max_length": 64, "cache_dir": tmp_path / "cache"}
    data = data_module("triplets", **keys)
    data.prepare_data()
    data.setup()
    batch = data.make_batch(data.store, np.arange(len(texts)))
    model = model_of(t5, token_budget=60, activation_checkpointing=activation_checkpointing, pooling=pooling)
    encoded = model.encoder.encode_sequences(model.encoder.appended(batch.anchors))
    torch.testing.assert_close(encoded.vectors.detach(), model.encoder.embed(texts), atol=1e-5, rtol=0)


@pytest.mark.parametrize("groups", [GROUPS, None], ids=["groups", "none"])
@pytest.mark.parametrize(("columns", "weight"), [(2, 0.0), (3, 0.0), (3, 1.5)])
def test_the_loss_is_the_equation(t5, groups, columns, weight):
    options = {"exclude_equal_texts": False, "hard_negative_weight": weight, "temperature": 0.07}
    model = model_of(t5, **options)
    texts = [LEFT, RIGHT, THIRD][:columns]
    found = model.training_step(batch_of(model, texts, groups), 0)
    views = [by_transformers(t5, column, PROMPT, 64).double() for column in texts]
    anchors, positives, *rest = [view / view.norm(dim=1, keepdim=True) for view in views]
    total = 0.0
    for i in range(6):
        own, below = math.exp(anchors[i] @ positives[i] / 0.07), 0.0
        for j in range(6):
            if j == i or groups is None or groups[i] != groups[j]:
                below += math.exp(anchors[i] @ positives[j] / 0.07)
            if rest:
                below += math.exp(anchors[i] @ rest[0][j] / 0.07) * (math.exp(weight) if i == j else 1)
        total -= math.log(own / below)
    assert found["loss"].item() == pytest.approx(total / 6, rel=1e-4)


def test_long_texts_push_the_prompt_out_only_where_that_is_asked_for(t5):
    long = [["rain " * 300] * 2, ["Bread rises. " * 100] * 2]
    found = {}
    for truncation in ("keep_prompt", "official"):
        model = model_of(t5, truncation=truncation)
        seen = []
        model.encoder.encode_sequences = lambda sequences, keep=model.encoder.encode_sequences, seen=seen: (
            seen.append(sequences) or keep(sequences)
        )
        model.training_step(batch_of(model, long, GROUPS[:2]), 0)
        found[truncation] = seen[0].ids.split(seen[0].lengths.tolist())
    tokenizer = AutoTokenizer.from_pretrained(t5)
    for kept, cut, text in zip(found["keep_prompt"], found["official"], [*long[0], *long[1]], strict=True):
        assert tokenizer.decode(kept).endswith("above sentence?</s>")
        assert cut.tolist() == tokenizer(text + PROMPT, truncation=True, max_length=64)["input_ids"]


@pytest.mark.parametrize("pooling", ["first_decoder", "mean", "cls"])
def test_every_weight_gets_a_gradient(t5, pooling):
    """Otherwise DDP would wait for a gradient that never comes; and no head is unused."""
    model = model_of(t5, pooling=pooling).train()
    model.training_step(batch_of(model, [LEFT, RIGHT, THIRD]), 0)["loss"].backward()
    assert [name for name, weight in model.named_parameters() if weight.grad is None] == []
    names = {name for name, _ in model.named_parameters()}
    assert any("decoder" in name for name in names) == (pooling == "first_decoder")
    assert not any("lm_head" in name or "classification" in name for name in names)


def test_invalid_settings_are_refused(t5, tiny_bert, tmp_path):
    with pytest.raises(InputError) as error:
        model_of(tiny_bert)
    assert (error.value.key, error.value.value) == ("model.pooling", "first_decoder")
    assert "bert" in error.value.expected
    from transformers import T5EncoderModel

    T5EncoderModel.from_pretrained(t5).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(t5).save_pretrained(tmp_path)
    with pytest.raises(InputError) as error:
        model_of(tmp_path)
    assert (error.value.key, error.value.value) == ("model.pooling", "first_decoder")
    assert model_of(tmp_path, pooling="mean").encoder.width == 32
    for options, key in (
        ({"truncation": "none"}, "model.truncation"),
        ({"optimizer": "sgd"}, "model.optimizer"),
        ({"max_length": 8}, "max_length"),
        ({"temperature": 0.0}, "model.temperature"),
        ({"prompt_suffix": "no blank"}, "prompt"),
    ):
        with pytest.raises(InputError) as error:
            model_of(t5, **options)
        assert error.value.key == key
    model = model_of(t5, hard_negative_weight=1.0)
    with pytest.raises(InputError) as error:
        model.training_step(batch_of(model, [LEFT, RIGHT]), 0)
    assert (error.value.key, error.value.value) == ("model.hard_negative_weight", 1.0)


def test_a_published_folder_is_loaded_with_a_prompt(t5, tmp_path):
    """This is a T5 with its LM head and without modules.json."""
    T5ForConditionalGeneration.from_pretrained(t5).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(t5).save_pretrained(tmp_path)
    found = load_encoder(tmp_path, pooling="first_decoder", prompt_suffix=PROMPT, max_length=64)
    torch.testing.assert_close(found.embed(TEXTS), by_transformers(t5, TEXTS, PROMPT, 64), atol=1e-5, rtol=0)
    assert found.description["prompt_suffix"] == PROMPT
    other = load_encoder(tmp_path, pooling="first_decoder", max_length=64)
    assert other.fingerprint != found.fingerprint
    encoder_alone = load_encoder(tmp_path).embed(TEXTS[:1])
    assert (encoder_alone - other.embed(TEXTS[:1])).abs().max() > 1e-3


@pytest.mark.parametrize("scaled", [False, True])
def test_adafactor_is_that_of_the_paper(scaled):
    """Shazeer and Stern, 2018, algorithms 4 and 5: factored second moments, updates clipped at 1, decay 1 - t^-0.8."""
    torch.manual_seed(0)
    weights = [torch.randn(5, 3), torch.randn(4)]
    module = torch.nn.ParameterList([torch.nn.Parameter(weight.clone()) for weight in weights])
    made = adafactor(module, lr=0.01, weight_decay=0.0, schedule=lambda step: 1 - step / 10, scaled=scaled, rates={})
    expected = [weight.double().clone() for weight in weights]
    row, column, whole = torch.zeros(5).double(), torch.zeros(3).double(), torch.zeros(4).double()
    for step in range(1, 5):
        gradients = [torch.randn_like(weight) * step for weight in weights]
        for weight, gradient in zip(module, gradients, strict=True):
            weight.grad = gradient
        made["optimizer"].step()
        made["lr_scheduler"]["scheduler"].step()
        decay, squares = 1 - step**-0.8, [gradient.double() ** 2 + 1e-30 for gradient in gradients]
        row = decay * row + (1 - decay) * squares[0].mean(1)
        column = decay * column + (1 - decay) * squares[0].mean(0)
        whole = decay * whole + (1 - decay) * squares[1]
        second = [torch.outer(row, column) / row.mean(), whole]
        for place, gradient in enumerate(gradients):
            update = gradient.double() / second[place].sqrt()
            update /= max(1.0, float(update.norm() / update.numel() ** 0.5))
            size = max(1e-3, float(expected[place].norm() / update.numel() ** 0.5)) if scaled else 1.0
            expected[place] -= 0.01 * (1 - (step - 1) / 10) * size * update
    for weight, wanted in zip(module, expected, strict=True):
        torch.testing.assert_close(weight.detach().double(), wanted, atol=1e-6, rtol=1e-5)
