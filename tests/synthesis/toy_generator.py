"""A GPT-2 of random weights whose texts mostly end in a quotation mark, as an ordinary folder."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

WORDS = "Ġa Ġcat Ġdog Ġsings Ġrun Ġthe Ġred Ġhouse Ġis Ġold".split()


def write_toy_generator(folder: Path, *, quote: float = 3.0, positions: int = 256, seed: int = 0) -> Path:
    """``quote`` is added to the logit of the quotation mark, through a constant feature of the hidden state."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: place for place, token in enumerate(["<|endoftext|>", *alphabet, *WORDS])}
    bpe = Tokenizer(models.BPE(vocabulary, []))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|endoftext|>", bos_token="<|endoftext|>")
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=len(vocabulary),
        n_positions=positions,
        n_embd=32,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
        tie_word_embeddings=False,
    )
    model = GPT2LMHeadModel(config)
    with torch.no_grad():
        model.transformer.ln_f.bias[0] = 1.0
        model.transformer.ln_f.weight[0] = 0.0
        model.lm_head.weight.normal_(std=0.3)
        model.lm_head.weight[:, 0] = -4.0  # rare: any byte
        for word in WORDS:
            model.lm_head.weight[vocabulary[word], 0] = 1.0
        model.lm_head.weight[vocabulary['"'], 0] = quote
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
