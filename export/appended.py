"""Prompts behind the text, and vectors out of a decoder, for a stock sentence-transformers.

The library knows prompts before a text only, but sends texts through a chat template where there is one, and when it
cuts a text it puts the template's end back: the prompt is never cut. A T5 with its decoder is loaded as a classifier,
which starts the decoder with the pad token and runs it along the text; the first state is the one we want. The
classifier's head is zeros, and nothing uses it.
"""

import copy
import logging
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, PreTrainedModel

from encoders.exported import DECODER_STATES, DECODER_TASK

log = logging.getLogger(__name__)


def transformer_options(*, decodes: bool) -> dict[str, Any]:
    """Part of ``sentence_bert_config.json``: every text is a message, which the chat template renders."""
    text = {"method": "forward", "method_output_name": DECODER_STATES if decodes else "last_hidden_state"}
    return {
        "transformer_task": DECODER_TASK if decodes else "feature-extraction",
        "modality_config": {"text": text, "message": {**text, "format": "flat"}},
        "module_output_name": "token_embeddings",
    }


def warn_of_digits(tokenizer: Any) -> None:
    """The library finds the template's end by rendering "0" and "1 2 3 4", which must not end alike."""
    one, other = (tokenizer(text, add_special_tokens=False)["input_ids"][-1:] for text in ("0", "1 2 3 4"))
    if one == other:
        log.warning(
            "This tokenizer does not tell digits apart, so sentence-transformers takes some of the end of a text that "
            "is too long for its prompt's: the vectors of such texts will differ from ours."
        )


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
