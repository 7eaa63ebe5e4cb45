"""Export of an encoder as a sentence-transformers folder, which the library itself writes.

Importing this module imports sentence-transformers, which takes most of a second. So it is imported only to write a
folder.
"""

import inspect
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer, SimilarityFunction
from sentence_transformers.base import modules as library
from sentence_transformers.sentence_transformer.modules import Pooling, WeightedLayerPooling
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from contrastive_encoders.core import NO_PROMPTS, EncoderPrompts, InputError
from contrastive_encoders.encoders.attention import MIN_TRANSFORMERS_VERSION, is_causal
from contrastive_encoders.encoders.dense import activation_of, dense_layers
from contrastive_encoders.encoders.loading.backbones import kept_pooler
from contrastive_encoders.encoders.loading.sentence_transformers_folder import DECODER_STATES, DECODER_TASK, TOP_LEVEL
from contrastive_encoders.encoders.pooling import Pooler, pooler_of
from contrastive_encoders.encoders.prompt_suffix import make_prompt_suffix
from contrastive_encoders.encoders.sentence_encoder import SentenceEncoder
from contrastive_encoders.export.adapter import Adapter
from contrastive_encoders.export.atomic_export import export_folder
from contrastive_encoders.export.transformers_folder import write_tokenizer, write_transformer

PARTS = ("tokenizer", "pooling", "max_length", "head", "prompts", "normalize", "prompt_suffix", "truncate")
SIMILARITIES = SentenceTransformer.SUPPORTED_SIMILARITY_FN_NAMES
FIRST_LIBRARY = "6.0.0"  # the first sentence-transformers that reads the current format
SOFT_CAPS_VERSION = "5.21"  # the first transformers that keeps the soft caps of Gemma 2 with every attention


def parts_of(encoder: SentenceEncoder) -> dict[str, Any]:
    """Return the arguments of `export_encoder` that are properties of an encoder."""
    parts = {name: getattr(encoder, name) for name in PARTS}
    return {"transformer": encoder.trunk, "similarity": encoder.similarity_fn_name, **parts}


def export_encoder(
    folder: Path,
    *,
    transformer: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    pooling: str,
    max_length: int,
    head: nn.Module | None = None,
    prompts: EncoderPrompts = NO_PROMPTS,
    normalize: bool = False,
    similarity: str = "cosine",
    card: str | None = None,
    prompt_suffix: str = "",
    truncate: int | None = None,
    adapter: Adapter | None = None,
) -> Path:
    """Write a folder for sentence-transformers atomically, replacing an earlier export.

    Args:
        folder: the folder.
        transformer: base model without LM head, which is not modified: a float32 copy on the CPU is written.
        tokenizer: tokenizer of the encoder.
        pooling: name of the pooling. Averaged layers become the library's WeightedLayerPooling.
        max_length: maximum number of tokens, including special tokens.
        head: layers that become the library's Dense.
        prompts: prompts of the encoder.
        normalize: whether embeddings are normalized.
        similarity: similarity function.
        card: content of README.md.
        prompt_suffix: appended to every text.
        truncate: becomes the library's truncate_dim. With ``normalize``, it becomes a Dense that keeps the first
            features, because the library truncates after its modules, so that embeddings would no longer be
            normalized.
        adapter: written instead of the transformer's weights.
    """
    folder = Path(folder)
    _check(similarity, max_length)
    pooler = pooler_of(pooling)
    appended = make_prompt_suffix(tokenizer, prompt_suffix, max_length, pooler)

    def write(unfinished: Path) -> None:
        if adapter is None:
            all_layers, classifier = pooler.averages_layers, pooler.decodes
            write_transformer(unfinished, transformer, all_layers=all_layers, classifier=classifier)
        else:
            adapter.write(unfinished)
        write_tokenizer(unfinished, tokenizer, max_length, template=appended.template if appended else None)

    options = _transformer_options(decodes=pooler.decodes, templated=appended is not None)
    transformer_module = Transformer(write, options | _model_options(transformer))
    model = SentenceTransformer(
        modules=[transformer_module, *_modules_after_transformer(transformer, pooler, head, normalize, truncate)],
        device="cpu",
        prompts=prompts.named_for_export(),
        similarity_fn_name=SimilarityFunction(similarity),
        truncate_dim=None if normalize else truncate,
    )
    model.default_prompt_name = (
        prompts.default_name if prompts.default else None
    )  # the constructor would log a warning about it
    with export_folder(folder) as unfinished:
        model.save_pretrained(str(unfinished), create_model_card=False)
        _complete(unfinished / TOP_LEVEL, transformer.config, prompts)
        if card is not None:
            (unfinished / "README.md").write_text(card, encoding="utf-8")
    return folder


def _check(similarity: str, max_length: int) -> None:
    if similarity not in SIMILARITIES:
        raise InputError(key="similarity", value=similarity, expected=f"one of {', '.join(SIMILARITIES)}")
    if max_length < 1:
        raise InputError(key="max_length", value=max_length, expected="a positive number of tokens")


class Transformer(library.Transformer):
    """Transformer module of sentence-transformers, created from a transformer in memory. (The library's constructor can
    only read a folder.)

    ``write`` writes weights and tokenizer to a folder. ``options`` are the content of ``sentence_bert_config.json``.
    """

    __module__ = library.Transformer.__module__  # the name in modules.json

    def __init__(self, write: Callable[[Path], None], options: dict[str, Any]) -> None:
        nn.Module.__init__(self)
        self.write, self.options = write, options

    def get_config_dict(self) -> dict[str, Any]:
        return self.options

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        self.write(Path(output_path))
        self.save_config(output_path)


def _transformer_options(*, decodes: bool, templated: bool) -> dict[str, Any]:
    """Return the content of ``sentence_bert_config.json``.

    The library supports only prompts before a text, but it applies a chat template if there is one. When it truncates a
    text, it restores the end of the template, so an appended prompt is never truncated.

    Args:
        decodes: whether to read the states of a T5's decoder.
        templated: whether texts are messages, which the chat template renders.
    """
    text = {"method": "forward", "method_output_name": DECODER_STATES if decodes else "last_hidden_state"}
    message = {"message": {**text, "format": "flat"}} if templated else {}
    return {
        "transformer_task": DECODER_TASK if decodes else "feature-extraction",
        "modality_config": {"text": text, **message},
        "module_output_name": "token_embeddings",
    }


def _modules_after_transformer(
    transformer: PreTrainedModel, pooler: Pooler, head: nn.Module | None, normalize: bool, truncate: int | None
) -> Iterator[nn.Module]:
    """Yield the modules that follow the transformer in sentence-transformers: pooling, layers, and normalization."""
    width, depth = int(transformer.config.hidden_size), int(transformer.config.num_hidden_layers)
    if pooler.averages_layers:
        weights = torch.zeros(depth + 1)  # of the embedding layer and all other layers
        weights[list(pooler.layers)] = 1
        yield WeightedLayerPooling(width, depth, layer_start=0, layer_weights=nn.Parameter(weights))
    mode: Any = pooler.tokens.library_mode
    yield Pooling(width, mode)
    for layer in dense_layers(head):
        linear, activation = layer.linear, activation_of(layer.path)()
        dense = library.Dense(linear.in_features, linear.out_features, linear.bias is not None, activation)
        dense.load_state_dict(layer.state_dict())
        width = dense.out_features
        yield dense
    if normalize and truncate is not None and truncate < width:
        truncation = library.Dense(width, truncate, bias=False, activation_function=None)
        nn.init.eye_(truncation.linear.weight)
        yield truncation
    if normalize:
        yield library.Normalize()


def _complete(path: Path, config: Any, prompts: EncoderPrompts) -> None:
    """Add the required library versions, which sentence-transformers checks but does not write, to the config file
    ``path``, and set its prompts.
    """
    requirements = {"sentence-transformers": f">={FIRST_LIBRARY}", **_required_transformers(config)}
    top_level = json.loads(path.read_text(encoding="utf-8")) | {"requirements": requirements}
    if prompts:
        top_level["prompts"] = prompts.named_for_export()
    path.write_text(json.dumps(top_level, indent=2) + "\n", encoding="utf-8")


def _required_transformers(config: Any) -> dict[str, str]:
    """Return the minimum version of transformers for a model that earlier 5.x versions load incorrectly."""
    if getattr(config, "attn_logit_softcapping", None):
        return {"transformers": f">={SOFT_CAPS_VERSION}"}
    return {} if is_causal(config) else {"transformers": f">={MIN_TRANSFORMERS_VERSION}"}


def _model_options(transformer: PreTrainedModel) -> dict[str, Any]:
    takes_pooler = "add_pooling_layer" in inspect.signature(type(transformer).__init__).parameters
    if takes_pooler and kept_pooler(transformer) is None:
        # Loading would create an unused pooler with random weights and log a warning
        return {"model_kwargs": {"add_pooling_layer": False}}
    return {}
