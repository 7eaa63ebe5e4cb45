"""A folder with a prompt after the text, opened by stock sentence-transformers in a process without this package."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.encoders.loading.tiny import write_tiny_t5
from contrastive_encoders.export.sentence_transformers import export_encoder
from tests.decoders import save_decoder, sentencepiece
from tests.distributed.steps import selected
from tests.objectives import SIZES, built

PROMPT = " Question: what can we draw from the above sentence?"
LONGEST = 60  # tokens
TEXTS = [
    "The ferry leaves the harbour.",
    "  blanks around \n",
    "",
    "   ",
    "blanks" + " " * 600 + "behind   ",
    "rain 123 " * 300,
    "one word less " * 9,
    *("so long " * number for number in range(15, 30)),  # on both sides of the limit
    "literal </s> inside </s></s>",
    "</s>",
    "</s> long " * 100,
    "<pad><unk> <extra_id_0> <s> [CLS] [SEP]",
    "🐦🐦 👨‍👩‍👧‍👦 السفينة",
    "tab\tnew\nline \x00 nul \u200b zero {{ width }} {% if %}",
]
CASES = {  # backbone, pooling, prompt
    "gense": ("t5", "first_decoder", PROMPT),
    "without prompt": ("t5", "first_decoder", None),
    "st5": ("t5", "mean", PROMPT),
    "bert": ("tiny_bert", "mean", PROMPT),
    "decoder": ("bytes", "last", PROMPT),
    **{f"decoder of {kind}": (kind, "last", PROMPT) for kind in ("llama", "llama-2", "gemma")},
    "roberta": ("tiny_mlm", "cls", ' He said: "draw {{ it }}"\\'),
}
ENCODE = """
import json, pathlib, sys
import numpy as np
from sentence_transformers import SentenceTransformer
texts = json.loads(sys.stdin.read())
for folder in pathlib.Path(sys.argv[1]).iterdir():
    model = SentenceTransformer(str(folder), device="cpu", trust_remote_code=False)
    ways = [model.encode(texts), model.encode_query(texts), model.encode_document(texts)]
    np.save(f"{folder}.npy", np.stack([*ways, np.stack([model.encode(text) for text in texts])]))
"""


@pytest.fixture(scope="module")
def t5(tmp_path_factory):
    folder = tmp_path_factory.mktemp("t5") / "backbone"
    texts = [*(text for text in TEXTS if len(text) < 300), PROMPT] * 3
    write_tiny_t5(folder, iter(texts), seed=3, dropout=0.1, lowercase=False, **SIZES)
    return folder


def export(model, folder, **options):
    encoder = model.encoder
    settings = {"pooling": encoder.pooling, "max_length": encoder.max_length, "prompt_suffix": encoder.prompt_suffix}
    return export_encoder(folder, transformer=encoder.trunk, tokenizer=encoder.tokenizer, **{**settings, **options})


@pytest.fixture(scope="module")
def exported(request, t5, tiny_bert, tiny_mlm, tmp_path_factory):
    """Return name -> folder, embeddings of this package, and those of stock sentence-transformers.

    The library ran in a separate process.
    """
    pytest.importorskip("sentence_transformers")
    root, backbones, expected = tmp_path_factory.mktemp("exported"), {"t5": t5}, {}
    backbones |= {"tiny_bert": tiny_bert, "tiny_mlm": tiny_mlm}
    for kind in ("bytes", "llama", "llama-2", "gemma"):
        tokenizer = None if kind == "bytes" else sentencepiece(kind)
        backbones[kind] = save_decoder("llama", tmp_path_factory.mktemp("decoder"), tokenizer)
    cases = selected(request, CASES)
    for name, (backbone, pooling, prompt) in cases.items():
        asked = "first_decoder" if pooling == "last" else pooling  # which a causal language model has at its end
        model = built("gense", backbones[backbone], pooling=asked, prompt_suffix=prompt, max_length=LONGEST).eval()
        export(model, root / "folders" / name)
        expected[name] = model.encoder.embed(TEXTS)
    command = [sys.executable, "-c", ENCODE, str(root / "folders")]
    done = subprocess.run(command, input=json.dumps(TEXTS), text=True, capture_output=True, cwd=root, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    folders = {name: root / "folders" / name for name in cases}
    return {name: (folder, expected[name], np.load(f"{folder}.npy")) for name, folder in folders.items()}


@pytest.mark.rotates
@pytest.mark.parametrize("name", CASES)
def test_stock_sentence_transformers_and_this_package_give_the_vectors(name, exported):
    folder, expected, found = exported[name]
    for way in found:
        np.testing.assert_allclose(way, expected.numpy(), atol=1e-5, rtol=0)
    assert (expected[0] - expected[5]).abs().max() > 1e-3
    _, pooling, prompt = CASES[name]
    again = load_encoder(folder)
    assert (again.pooling, again.prompt_suffix, again.max_length) == (pooling, prompt or "", LONGEST)
    torch.testing.assert_close(again.embed(TEXTS), expected, atol=1e-6, rtol=0)
    without = load_encoder(folder, prompt_suffix="")
    assert ((without.embed(TEXTS[:1]) - expected[:1]).abs().max() > 1e-3) == bool(prompt)


def test_the_next_stage_starts_from_it(t5, tmp_path):
    first = built("gense", t5, prompt_suffix=PROMPT, max_length=LONGEST).eval()
    folder = export(first, tmp_path / "encoder")
    second = built("gense", folder, prompt_suffix=PROMPT, max_length=LONGEST).eval()
    torch.testing.assert_close(second.encoder.embed(TEXTS), first.encoder.embed(TEXTS), atol=1e-6, rtol=0)
    alone = built("gense", folder, prompt_suffix=PROMPT, max_length=LONGEST, pooling="mean").eval()
    assert not any("decoder" in name for name, _ in alone.named_parameters())
