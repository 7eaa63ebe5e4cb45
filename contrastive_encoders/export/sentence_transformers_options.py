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

from contrastive_encoders.encoders.loading.sentence_transformers_folder import DECODER_STATES, DECODER_TASK


def transformer_options(*, decodes: bool, templated: bool) -> dict[str, Any]:
    """The content of ``sentence_bert_config.json``; ``templated`` texts are messages, which the chat template renders.

    ``decodes`` reads the states of a T5's decoder.
    """
    text = {"method": "forward", "method_output_name": DECODER_STATES if decodes else "last_hidden_state"}
    message = {"message": {**text, "format": "flat"}} if templated else {}
    return {
        "transformer_task": DECODER_TASK if decodes else "feature-extraction",
        "modality_config": {"text": text, **message},
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
