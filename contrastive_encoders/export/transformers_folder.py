"""Export of the weights and the tokenizer for transformers, with a README that shows code for the pooling."""

import copy
import json
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, PreTrainedModel, PreTrainedTokenizerBase

from contrastive_encoders.core import InputError
from contrastive_encoders.encoders.loading.backbones import kept_pooler
from contrastive_encoders.encoders.lora import merged
from contrastive_encoders.encoders.sentence_encoder import SentenceEncoder
from contrastive_encoders.export.atomic_export import export_folder
from contrastive_encoders.io.model_names import lower_cases

# Tokenizers to which transformers 5 adds the special tokens of their class on loading, and the class that loads
# tokenizer.json unchanged
REBUILT_TOKENIZERS, GENERIC_TOKENIZER = ("CodeLlamaTokenizer", "GPTNeoXTokenizer"), "TokenizersBackend"


def export_transformers(folder: Path, encoder: SentenceEncoder, *, card: str | None = None) -> Path:
    """Write the weights and the tokenizer to ``folder`` atomically.

    Raises:
        InputError: the encoder has a layer after the pooling, a prompt after the text, or a decoder, which transformers
            cannot represent.
    """
    parts = {"a layer after the pooling": encoder.head, "a prompt after the text, or a decoder": encoder.appended}
    for part, value in parts.items():
        if value is not None:
            raise InputError(
                key="format",
                value="transformers",
                expected=f"sentence_transformers or onnx for an encoder with {part}",
            )
    with export_folder(Path(folder)) as unfinished:
        write_transformer(unfinished, encoder.trunk, all_layers=False)
        write_tokenizer(unfinished, encoder.tokenizer, encoder.max_length)
        if card is not None:
            (unfinished / "README.md").write_text(card, encoding="utf-8")
    return Path(folder)


def write_transformer(
    folder: Path, transformer: PreTrainedModel, *, all_layers: bool, classifier: bool = False
) -> None:
    # A copy: save_pretrained writes the class into the config, which a model with an LM head shares
    exported = merged(copy.deepcopy(transformer).cpu().float())
    if (pooler := kept_pooler(exported)) is not None:
        exported.pooler = pooler.float()
    if all_layers:
        exported.config.output_hidden_states = True  # tells the library that a later module needs the hidden states
    (_make_classifier(exported) if classifier else exported).save_pretrained(folder)


def _make_classifier(transformer: PreTrainedModel) -> PreTrainedModel:
    """Wrap an encoder-decoder in its family's classifier class, which also runs the decoder. The weights are shared.

    sentence-transformers loads a T5 with its decoder as a classifier, which starts the decoder with the pad token and
    runs it along the text. Its first state is the embedding. The classifier's head is zeros and unused.
    """
    config = copy.deepcopy(transformer.config)
    config.num_labels = 1
    config.output_hidden_states = True  # required for the states of the decoder
    with torch.device("meta"):
        model: Any = AutoModelForSequenceClassification.from_config(config)
    model.transformer = transformer
    model.classification_head.to_empty(device="cpu")
    for weight in model.classification_head.parameters():
        torch.nn.init.zeros_(weight)
    return model


def write_tokenizer(
    folder: Path, tokenizer: PreTrainedTokenizerBase, max_length: int, *, template: str | None = None
) -> None:
    plain = copy.deepcopy(tokenizer)
    plain.model_max_length = max_length
    plain.padding_side = "right"  # weighted pooling and learned positions count from the first column
    plain.chat_template = template  # the template of another model would be applied to the texts
    backend = getattr(plain, "backend_tokenizer", None)
    if backend is not None:  # otherwise the padding and truncation of the last call would be saved, too
        backend.no_padding()
        backend.no_truncation()
    plain.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    options = json.loads(path.read_text(encoding="utf-8"))
    is_rebuilt = options["tokenizer_class"].removesuffix("Fast") in REBUILT_TOKENIZERS
    if is_rebuilt or (backend is not None and lower_cases(backend)):  # tokenizer classes also have a normalizer
        generic = options | {"tokenizer_class": GENERIC_TOKENIZER}
        path.write_text(json.dumps(generic, indent=2) + "\n", encoding="utf-8")


def transformers_example(encoder: SentenceEncoder) -> str:
    """Return a code block that computes embeddings with torch and transformers."""
    pooler, all_layers = encoder.pooler, encoder.pooler.averages_layers
    states = (
        f"torch.stack([output.hidden_states[layer] for layer in {list(pooler.layers)}]).mean(0)"
        if all_layers
        else "output.last_hidden_state"
    )
    lines = [
        "import torch",
        "from transformers import AutoModel, AutoTokenizer",
        "",
        'folder = "PATH_OR_ID_OF_THIS_FOLDER"',
        "tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()",
        'texts = ["A sentence.", "Another one."]',
        *([f"texts = [{encoder.prompt!r} + text for text in texts]"] if encoder.prompt else []),
        'inputs = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")',
        "with torch.no_grad():",
        f"    output = model(**inputs{', output_hidden_states=True' if all_layers else ''})",
        f'states, mask = {states}, inputs["attention_mask"].unsqueeze(-1)',
        f"vectors = {pooler.tokens.formula}",
        *([f"vectors = vectors[:, :{encoder.truncate}]"] if encoder.truncate else []),
        *(["vectors = torch.nn.functional.normalize(vectors)"] if encoder.normalize else []),
        "print(torch.nn.functional.cosine_similarity(vectors[:1], vectors))",
    ]
    return "```python\n" + "\n".join(lines) + "\n```"
