"""Options with which unmodified sentence-transformers, 5.6 or later, appends a prompt to texts or computes embeddings
with a decoder.

The library supports only prompts before a text, but it applies a chat template if there is one. When it truncates a
text, it restores the end of the template, so the appended prompt is never truncated. A T5 with its decoder is loaded as
a classifier, which starts the decoder with the pad token and runs it along the text. Its first state is the embedding.
The classifier's head is zeros and unused.
"""

import copy
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, PreTrainedModel

from contrastive_encoders.encoders.loading.sentence_transformers_folder import DECODER_STATES, DECODER_TASK


def transformer_options(*, decodes: bool, templated: bool) -> dict[str, Any]:
    """Return the content of ``sentence_bert_config.json``.

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


def make_classifier(transformer: PreTrainedModel) -> PreTrainedModel:
    """Wrap an encoder-decoder in its family's classifier class, which also runs the decoder. The weights are shared."""
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
