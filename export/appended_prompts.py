"""Appended prompts and decoder vectors in stock sentence-transformers, 5.6 or later.

The library knows prompts before a text only, but sends texts through a chat template where there is one, and when it
cuts a text it puts the template's end back: the prompt is never cut. A T5 with its decoder is loaded as a classifier,
which starts the decoder with the pad token and runs it along the text; the first state is the one we want. The
classifier's head is zeros, and nothing uses it.
"""

import copy
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, PreTrainedModel

from encoders.loading.sentence_transformers_folder import DECODER_STATES, DECODER_TASK


def transformer_options(*, decodes: bool) -> dict[str, Any]:
    """Part of ``sentence_bert_config.json``: every text is a message, which the chat template renders."""
    text = {"method": "forward", "method_output_name": DECODER_STATES if decodes else "last_hidden_state"}
    return {
        "transformer_task": DECODER_TASK if decodes else "feature-extraction",
        "modality_config": {"text": text, "message": {**text, "format": "flat"}},
        "module_output_name": "token_embeddings",
    }


def as_classifier(transformer: PreTrainedModel) -> PreTrainedModel:
    """The encoder-decoder inside the class of its family that runs the decoder by itself; shares the weights."""
    config = copy.deepcopy(transformer.config)
    config.num_labels = 1
    config.output_hidden_states = True  # or the decoder's states are not given
    with torch.device("meta"):
        model: Any = AutoModelForSequenceClassification.from_config(config)
    model.transformer = transformer
    model.classification_head.to_empty(device="cpu")
    for weight in model.classification_head.parameters():
        torch.nn.init.zeros_(weight)
    return model
