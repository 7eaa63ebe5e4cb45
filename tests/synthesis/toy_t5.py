"""T5-like models of a few thousand random weights, and a SentencePiece-like tokenizer for them."""

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import (
    MT5Config,
    MT5ForConditionalGeneration,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
    UMT5Config,
    UMT5ForConditionalGeneration,
)

from contrastive_encoders.synthesis.decoding.encoder_decoder import EncoderDecoder

FAMILIES = ["t5", "t5-v1.1", "mt5", "umt5"]
WORDS = (
    "Write two sentences that are entailment contradictory Sentence if does this mean true or false a man plays is "
    "the cat sat on mat in park and woman eats some bread with her dog near big house"
).split()


def tokenizer():
    """Return a Unigram over words and characters with T5's spaces, ids of special tokens, and end of sequence."""
    letters = sorted({*"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,:;?!\"'()-éü"})
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -3.0)]
    pieces += [(f"▁{word}", -4.0 - place / 100) for place, word in enumerate(WORDS)]
    pieces += [(letter, -6.0 - place / 100) for place, letter in enumerate(letters)]
    fast = Tokenizer(models.Unigram(pieces, unk_id=2))
    fast.normalizer = normalizers.Replace("  ", " ")
    fast.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    fast.decoder = decoders.Metaspace(prepend_scheme="always")
    fast.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    fast.add_special_tokens([AddedToken(token, special=True) for token in ("<pad>", "</s>", "<unk>")])
    return PreTrainedTokenizerFast(tokenizer_object=fast, eos_token="</s>", pad_token="<pad>", unk_token="<unk>")


def config_of(family, vocabulary):
    size = {
        "vocab_size": vocabulary,
        "d_model": 16,
        "d_kv": 8,
        "d_ff": 32,
        "num_layers": 2,
        "num_decoder_layers": 3,
        "num_heads": 2,
        "relative_attention_num_buckets": 8,
        "relative_attention_max_distance": 20,
        "decoder_start_token_id": 0,
        "pad_token_id": 0,
        "eos_token_id": 1,
    }
    gated = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    return {
        "t5": (T5ForConditionalGeneration, T5Config(**size)),
        "t5-v1.1": (T5ForConditionalGeneration, T5Config(**size, **gated)),
        "mt5": (MT5ForConditionalGeneration, MT5Config(**size, **gated)),
        "umt5": (UMT5ForConditionalGeneration, UMT5Config(**size, **gated)),
    }[family]


def model(family="t5", *, dtype=torch.float64, seed=0, end=0.0, spread=0.4):
    """Return a model; ``end`` is added to the logit of the end of sequence; large weights prefer some tokens."""
    words = tokenizer()
    model_class, config = config_of(family, len(words) + 5)  # like T5, more embeddings than tokens
    torch.manual_seed(seed)
    found = model_class(config).eval()
    with torch.no_grad():
        for name, weight in found.named_parameters():
            if weight.dim() > 1 and "norm" not in name:
                weight.normal_(0, spread)
    head = torch.nn.Linear(config.d_model, config.vocab_size, bias=True)  # not tied: the end can be made likely
    with torch.no_grad():
        head.weight.normal_(0, spread * (4 if family == "t5" else 1))
        head.bias.zero_()
        head.bias[1] = end
    found.lm_head = head
    return found.to(dtype).eval()


def generator(family="t5", **how):
    return EncoderDecoder(f"toy-{family}", model(family, **how), tokenizer())


def save(folder, family="t5", **how):
    """Save a folder that transformers loads; there, the end of sequence cannot be made likelier."""
    words = tokenizer()
    model_class, config = config_of(family, len(words) + 5)
    torch.manual_seed(how.get("seed", 0))
    found = model_class(config)
    with torch.no_grad():
        for name, weight in found.named_parameters():
            if weight.dim() > 1 and "norm" not in name:
                weight.normal_(0, how.get("spread", 0.4))
    found.save_pretrained(folder)
    words.save_pretrained(folder)
    return folder
