"""Loading a generator: folders of several families, precision, chat templates, and models that cannot generate."""

import json

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import BertConfig, BertForMaskedLM, MambaConfig, MambaForCausalLM, PreTrainedTokenizerFast

from contrastive_encoders.core import InputError
from contrastive_encoders.synthesis.decoding.continuations import Prompt
from contrastive_encoders.synthesis.decoding.generator import Generator, load_generator
from contrastive_encoders.synthesis.decoding.loop import decode
from tests.synthesis.settings import decoding

CHAT = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.fixture
def saved(toy_generator, tmp_path):
    def save(family="gpt2", **changes):
        generator = toy_generator(family, dtype=torch.float32, quote=3.0)
        generator.model.set_output_embeddings(generator.model.get_output_embeddings().head)
        generator.model.save_pretrained(tmp_path)
        generator.tokenizer.save_pretrained(tmp_path)
        config = tmp_path / "config.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | changes))
        return str(tmp_path)

    return save


@pytest.mark.parametrize("family", ["gpt2", "opt", "neox", "llama", "mistral"])
def test_a_folder_whose_tokenizer_has_no_pad_token_generates(saved, family):
    generator = load_generator(saved(family), device="cpu")
    assert generator.tokenizer.pad_token is None
    assert generator.context == 128
    prompts = [Prompt((text,), f'{text}: "', samples=range(2)) for text in ("a", "much longer than the other")]
    assert len(list(decode(generator, iter(prompts), decoding(max_new_tokens=5)))) == 4
    assert generator.tokenizer.pad_token is None


def test_an_instruct_model_reads_the_prompt_as_a_conversation(saved):
    folder = saved()
    prompt = 'Task: Write two.\nSentence 1: "a"\nSentence 2: "'
    with pytest.raises(InputError) as error:
        load_generator(folder, device="cpu", chat_template=True)
    assert (error.value.key, error.value.value) == ("chat_template", True)
    tokenizer = load_generator(folder, device="cpu").tokenizer
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(folder)
    generator = load_generator(folder, device="cpu", chat_template=True)
    (ids,) = generator.encode([prompt])
    assert generator.tokenizer.decode(ids) == ('<|user|>Task: Write two.\nSentence 1: "a"\n<|assistant|>Sentence 2: "')
    assert load_generator(folder, device="cpu").encode([prompt])[0] == tokenizer(prompt)["input_ids"]


def test_a_masked_language_model_is_refused(byte_tokenizer, tmp_path):
    config = BertConfig(
        vocab_size=260, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    BertForMaskedLM(config).save_pretrained(tmp_path)
    byte_tokenizer.save_pretrained(tmp_path)
    with pytest.raises(InputError) as error:
        load_generator(str(tmp_path))
    assert (error.value.key, error.value.value) == ("generator", str(tmp_path))
    assert "BertForMaskedLM" in error.value.expected


def test_a_model_with_a_recurrent_state_is_refused(byte_tokenizer, tmp_path):
    MambaForCausalLM(MambaConfig(vocab_size=260, hidden_size=16, num_hidden_layers=1, state_size=4)).save_pretrained(
        tmp_path
    )
    byte_tokenizer.save_pretrained(tmp_path)
    with pytest.raises(InputError) as error:
        load_generator(str(tmp_path))
    assert (error.value.key, error.value.value) == ("generator", str(tmp_path))
    assert "mamba" in error.value.expected


def test_a_tokenizer_of_another_model_is_refused(toy_generator, byte_tokenizer):
    generator = toy_generator("llama")
    generator.model.set_output_embeddings(generator.model.get_output_embeddings().head)
    generator.model.resize_token_embeddings(100)
    with pytest.raises(InputError) as error:
        Generator("x", generator.model, byte_tokenizer)
    assert all(fact in str(error.value) for fact in ("generator=x", "258", "100"))


def test_rows_of_the_vocabulary_without_a_token_are_never_drawn(toy_generator):
    """Models pad their vocabulary to a round number."""
    generator = toy_generator("llama")
    model = generator.model
    model.set_output_embeddings(model.get_output_embeddings().head)
    model.resize_token_embeddings(320)
    wide = Generator("x", model.double(), generator.tokenizer)
    with torch.no_grad():
        model.get_output_embeddings().weight[258:] *= 50
    for one in decode(
        wide, iter([Prompt((0,), 'a "', ('b "',), samples=range(20))]), decoding(top_k=0, max_new_tokens=10)
    ):
        assert len(wide.encode([one.text])[0]) + one.closed == one.tokens or "�" in one.text or "." in one.text


def test_a_tokenizer_that_ends_every_text_does_not_end_a_prompt(toy_generator, byte_tokenizer):
    """Special tokens before a text stay."""
    backend = Tokenizer.from_str(byte_tokenizer.backend_tokenizer.to_str())
    end = byte_tokenizer.eos_token_id
    backend.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A <|endoftext|>", special_tokens=[("<|endoftext|>", end)]
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>")
    generator = Generator("x", toy_generator().model, tokenizer)
    plain = byte_tokenizer('a "')["input_ids"]
    assert tokenizer('a "')["input_ids"] == [end, *plain, end]
    assert generator.encode(['a "']) == [[end, *plain]]


def test_the_blank_before_the_first_word_is_kept(toy_generator):
    """SentencePiece drops it at the start of a text; here the continuation follows the prompt."""
    vocabulary = {"<unk>": 0, "▁the": 1, "the": 2, "▁cat": 3, '"': 4, '▁"': 5, "▁": 6, '."': 7}
    backend = Tokenizer(models.Unigram([(token, -1.0) for token in vocabulary], unk_id=0))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    backend.decoder = decoders.Metaspace(prepend_scheme="first")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")
    generator = Generator("x", toy_generator("llama").model, tokenizer)
    assert tokenizer.decode([1, 3]) == "the cat"
    assert generator.decode(4, [1, 3]) == " the cat"
    assert generator.decode(4, [2, 3]) == "the cat"
    assert generator.tokens_with('"').nonzero()[:, 0].tolist() == [4, 5, 7]
