"""GenSE's prompts as token ids, identical in training, synthesis, and scoring.

Data modules (which tokenize training instances), encoders, and synthesis must agree on every one of these ids, so this
module imports none of them. The prompt texts are in ``configs/prompts/gense.yaml``. The ``generator.json`` in a
generator's folder stores the prompts that it was trained with, and how they were assembled.

With the assembly ``pieces``, as published, the prefix, sentence, and suffix are tokenized separately, and their ids are
concatenated and followed by the end-of-sequence token. With SentencePiece, each piece then begins with a space. With
the assembly ``string``, the texts are joined first and then tokenized.

A causal language model continues the prompt, so the tokenizer's beginning-of-sequence tokens come before the prompt and
no end-of-sequence token follows it. Sentences and answers begin with a space there, too, because the generated text
follows a word.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args

from contrastive_encoders.core import InputError

Assembly = Literal["pieces", "string"]
Direction = Literal["entailment", "contradiction"]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
GENERATOR_FILE = "generator.json"
IGNORED_PROMPT_KEYS = (
    "embedding",
    "file",
)  # other keys of a prompts config: the encoder prompts and their origin


class Generation(NamedTuple):
    """Prompt that asks for a sentence that is entailed by a given sentence or contradicts it: the texts before and
    after the given sentence.
    """

    prefix: str
    suffix: str


class Discrimination(NamedTuple):
    """Prompt that asks whether a premise entails a hypothesis: the texts before, between, and after the two sentences,
    and the answers yes and no.
    """

    prefix: str
    between: str
    suffix: str
    yes: str
    no: str


class Prompts(NamedTuple):
    """All prompts of a generator, and how they are joined with sentences."""

    entailment: Generation
    contradiction: Generation
    discrimination: Discrimination
    assembly: Assembly = "pieces"

    def to_json(self) -> dict[str, Any]:
        """Return the contents of ``generator.json``, which `parse_prompts` reads."""
        words = {name: part._asdict() for name, part in self._asdict().items() if name != "assembly"}
        return {"prompts": words, "prompt_assembly": self.assembly}


def parse_prompts(found: Mapping[str, Any], assembly: object, where: str) -> Prompts:
    """Parse prompts from a config or a file. The encoder's prompts and the key that names the file are ignored.

    Raises:
        InputError: a piece is missing or is not a string, a key is unknown, or the assembly is unknown.
    """
    if assembly not in get_args(Assembly):
        raise InputError(
            location=where,
            key="prompt_assembly",
            value=repr(assembly),
            expected=f"one of {', '.join(get_args(Assembly))}",
        )
    kinds: dict[str, Any] = {"entailment": Generation, "contradiction": Generation, "discrimination": Discrimination}
    parsed: dict[str, Any] = {}
    where = f"prompts={found['file']}" if isinstance(found, Mapping) and "file" in found else where
    _check_prompt_keys(found, (*kinds, *IGNORED_PROMPT_KEYS), where, "prompts")
    for name, kind in kinds.items():
        part: Any = found.get(name) if isinstance(found, Mapping) else None
        _check_prompt_keys(part, kind._fields, where, f"prompts.{name}")
        for key in kind._fields:
            if not isinstance(part, Mapping) or not isinstance(part.get(key), str):
                raise InputError(
                    location=where,
                    key=f"prompts.{name}.{key}",
                    value=repr(part),
                    expected="a string",
                    hint="See configs/prompts/gense.yaml for all keys.",
                )
        parsed[name] = kind(**{key: part[key] for key in kind._fields})
    return Prompts(**parsed, assembly=cast(Assembly, assembly))


def _check_prompt_keys(found: object, known: Sequence[str], where: str, name: str) -> None:
    if isinstance(found, Mapping) and (others := [key for key in found if key not in known]):
        hint = "YAML reads yes and no as booleans: quote them." if isinstance(others[0], bool) else None
        raise InputError(
            location=where, key=f"{name}.{others[0]}", expected=f"one of the keys {', '.join(known)}", hint=hint
        )


def read_generator_prompts(folder: Path) -> Prompts | None:
    """Read the prompts in a generator's folder. Return None if it has none, as published generators do.

    Raises:
        InputError: the file is damaged.
    """
    path = folder / GENERATOR_FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            location=str(path),
            expected=f"JSON with prompts and prompt_assembly, but the file cannot be read ({error})",
            hint="Copy the file from the generator's run, or remove it if the generator was trained with the "
            "published "
            "prompts.",
        ) from None
    if not isinstance(found, dict):
        raise InputError(
            location=str(path), value=type(found).__name__, expected="a mapping with prompts and prompt_assembly"
        )
    return parse_prompts(found.get("prompts", {}), found.get("prompt_assembly"), str(path))


def write_generator_prompts(folder: Path, prompts: Prompts) -> None:
    text = json.dumps(prompts.to_json(), indent=1, ensure_ascii=False)
    (folder / GENERATOR_FILE).write_text(text + "\n", encoding="utf-8")


class PromptIds:
    """Converter of sentences to the input ids of a generator, which consist of ``begin``, the prompt with the sentences
    inserted, and ``close``. ``end`` terminates the generated text.

    Args:
        prompts: the prompts of the generator.
        tokenizer: a Transformers tokenizer; only its ``__call__``, ``decode`` and ``eos_token_id`` are required.
        alone: whether the tokenizer belongs to a causal language model (without an encoder).

    The argument ``max_tokens`` of the methods limits the tokens of each *sentence*, before the prompt is added.
    Prompts are never truncated.

    Raises:
        InputError: the tokenizer of a causal language model has no end-of-sequence token.
    """

    def __init__(self, prompts: Prompts, tokenizer: Any, *, alone: bool) -> None:
        self.prompts, self.tokenizer = prompts, tokenizer
        self.end: list[int] = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
        if alone and not self.end:
            raise InputError(
                location="the tokenizer",
                expected="an end-of-sequence token, which ends a generated text",
                hint="Set the eos_token of the tokenizer.",
            )
        self.begin, self.close = (self._beginning(), []) if alone else ([], self.end)
        self.blank = " " if alone and not self._writes_blanks() else ""
        words = {name: list(getattr(prompts, name)) for name in (*DIRECTIONS, "discrimination")}
        words["discrimination"][3:] = self.written(words["discrimination"][3:])
        self.parts = {name: self.ids(texts) for name, texts in words.items()}

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text, without special tokens."""
        if not texts:
            return []
        return cast(list[list[int]], self.tokenizer(list(texts), add_special_tokens=False)["input_ids"])

    def generation(self, direction: Direction, sentences: Sequence[str], max_tokens: int) -> list[list[int]]:
        """Return, for each sentence, the input ids that ask for an entailed or contradicting sentence."""
        if self.prompts.assembly == "string":
            return self._framed(self.generation_texts(direction, sentences, max_tokens))
        prefix, suffix = self.parts[direction]
        rows = self.ids(self.written(sentences))
        return [[*self.begin, *prefix, *one[:max_tokens], *suffix, *self.close] for one in rows]

    def discrimination(self, premises: Sequence[str], hypotheses: Sequence[str], max_tokens: int) -> list[list[int]]:
        """Return, for each pair, the input ids that ask whether the premise entails the hypothesis."""
        if self.prompts.assembly == "string":
            return self._framed(self.discrimination_texts(premises, hypotheses, max_tokens))
        prefix, between, suffix = self.parts["discrimination"][:3]
        begin, close = [*self.begin, *prefix], [*suffix, *self.close]
        rows = zip(*(self.ids(self.written(part)) for part in (premises, hypotheses)), strict=True)
        return [[*begin, *one[:max_tokens], *between, *other[:max_tokens], *close] for one, other in rows]

    def max_pair_length(self, max_tokens: int) -> int:
        """Return the maximum number of tokens that `discrimination` returns for a pair."""
        fixed = [self.begin, *self.parts["discrimination"][:3], self.close]
        return sum(map(len, fixed)) + 2 * max_tokens

    def written(self, sentences: Sequence[str]) -> list[str]:
        """Prepend ``blank`` to each sentence: a space for a causal language model whose tokenizer adds no space,
        otherwise an empty string.
        """
        return [f"{self.blank}{one}" for one in sentences]

    def columns(self, triplets: Sequence[Sequence[str]], max_tokens: int) -> list[list[str]]:
        """Return the columns of texts that must be tokenized to train on these triplets. All training instances are
        built from their token ids.

        There are three columns with the assembly ``pieces``, namely the triplets themselves. With the assembly
        ``string`` there are six: the prompts of the four instances and the two target texts.
        """
        premises, entailed, contradicted = (list(column) for column in zip(*triplets, strict=True))
        others = [self.written(entailed), self.written(contradicted)]
        if self.prompts.assembly == "pieces":
            return [self.written(premises), *others]
        prompts = [self.generation_texts(direction, premises, max_tokens) for direction in DIRECTIONS]
        prompts += [self.discrimination_texts(premises, other, max_tokens) for other in (entailed, contradicted)]
        return [*prompts, *others]

    def generation_texts(self, direction: Direction, sentences: Sequence[str], max_tokens: int) -> list[str]:
        """Insert each sentence into the prompt, and return the resulting strings, for the assembly ``string``."""
        prompt = getattr(self.prompts, direction)
        return [f"{prompt.prefix}{one}{prompt.suffix}" for one in self._truncate(sentences, max_tokens)]

    def discrimination_texts(self, premises: Sequence[str], hypotheses: Sequence[str], max_tokens: int) -> list[str]:
        """Insert each premise and hypothesis into the prompt, and return the resulting strings, for the assembly
        ``string``.
        """
        prompt = self.prompts.discrimination
        pairs = zip(self._truncate(premises, max_tokens), self._truncate(hypotheses, max_tokens), strict=True)
        return [f"{prompt.prefix}{one}{prompt.between}{other}{prompt.suffix}" for one, other in pairs]

    def answers(self) -> tuple[int, int]:
        """Return the id of the first token of each answer, yes and no; the logits of these two tokens at the first
        position after the prompt are compared.

        Raises:
            InputError: the tokenizer has no id for an answer, or the same id for both.
        """
        words = self.prompts.discrimination
        unknown = getattr(self.tokenizer, "unk_token_id", None)
        found = self.parts["discrimination"][3:]
        yes, no = (ids[0] if ids and ids[0] != unknown else None for ids in found)
        if yes is None or no is None or yes == no:
            raise InputError(
                location="the tokenizer",
                expected=f"different first tokens for the answers {words.yes!r} and {words.no!r}, because the "
                "discriminator compares the logits of these tokens",
                value=f"{yes} and {no}",
                hint="Choose other answers: prompts.discrimination.yes and prompts.discrimination.no.",
            )
        return yes, no

    def _truncate(self, sentences: Sequence[str], max_tokens: int) -> list[str]:
        """Truncate each sentence to ``max_tokens`` tokens, and return it as text, because its tokens may change when it
        is inserted into a prompt.
        """
        rows = self.ids(sentences)
        return [
            one if len(ids) <= max_tokens else self.tokenizer.decode(ids[:max_tokens])
            for one, ids in zip(sentences, rows, strict=True)
        ]

    def _framed(self, texts: Sequence[str]) -> list[list[int]]:
        return [[*self.begin, *ids, *self.close] for ids in self.ids(texts)]

    def _beginning(self) -> list[int]:
        """Return the ids of the special tokens that the tokenizer adds before every text."""
        [plain], ids = self.ids(["a"]), list(self.tokenizer("a")["input_ids"])
        places = [start for start in range(len(ids)) if ids[start : start + len(plain)] == plain]
        if not plain or not places:
            raise InputError(
                location="the tokenizer",
                value=ids,
                expected=f"special tokens only before and after {plain}, the token ids of the text 'a'",
            )
        return ids[: places[0]]

    def _writes_blanks(self) -> bool:
        """Return whether the tokenizer adds a space before every text, as SentencePiece does."""
        [one] = self.ids(["a"])
        return cast(str, self.tokenizer.decode([*one, *one])).strip() == "a a"
