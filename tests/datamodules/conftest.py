"""Three kinds of tokenizers, with different special tokens around a text and different spellings of it."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from tests.conftest import SENTENCES


@pytest.fixture(scope="session")
def unigram():
    """Tokenizer with one special token after a text, as T5 has, a mask, and "<s>" in its vocabulary."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.UnigramTrainer(vocab_size=120, special_tokens=specials, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(SENTENCES * 20, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", tokenizer.token_to_id("</s>"))]
    )
    names = {"eos_token": "</s>", "bos_token": "<s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, mask_token="<mask>", model_max_length=100, **names)


@pytest.fixture(params=["wordpiece", "bpe", "unigram"])
def tokenizer(request, tiny_bert, tiny_mlm, unigram):
    if request.param == "unigram":
        return unigram
    return AutoTokenizer.from_pretrained(tiny_bert if request.param == "wordpiece" else tiny_mlm)


@pytest.fixture
def bpe(tiny_mlm):
    return AutoTokenizer.from_pretrained(tiny_mlm)
