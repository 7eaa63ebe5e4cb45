"""Compare what every objective, recipe and synthesis computes in this checkout with what it computed at a commit.

    python -m benchmarks.frozen --against COMMIT [--cases NAME ...] [--list]

Each case is one command on small data and a small model, with fixed seeds, one process and one thread. It records ten
losses (``metrics.csv``), the scores (``results.json``), ten vectors of the exported encoder and a digest of every
exported tensor, or the texts of a synthesis. The same command runs in a git worktree of COMMIT and in this checkout.
For each case the table says ``identical``, ``differs`` with the first difference, or ``failed`` with the last line of
the log. The exit status is 0 where all cases are identical.

The side of COMMIT is kept in ``outputs/benchmarks/frozen/COMMIT`` and computed once. Commands run in forks of a process
that has imported torch, Lightning and transformers, but nothing of this project.
"""

import argparse
import csv
import hashlib
import itertools
import json
import multiprocessing
import os
import random
import runpy
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.texts import ROOT, invented
from contrastive_encoders.io.model_names import PRODUCTS

PLACE = ROOT / "outputs" / "benchmarks" / "frozen"
MATERIALS = PLACE / "materials"
STEPS = 10
VECTORS = 10  # texts that the exported encoder reads
SURROUNDINGS = {
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "CUDA_VISIBLE_DEVICES": "",
}
WARM = "torch pytorch_lightning transformers peft hydra datasets sentence_transformers"
MODULES_BEFORE_PACKAGE = {"generate": "synthesis"}  # command -> module, at commits without contrastive_encoders/
Record = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A command and its words; ``{m}`` in a word stands for the folder of the
    materials, ``{out}`` for the one that the command writes.

    ``earlier`` maps a word to the one that the compared commit has for it; to an empty one where it has none.
    """

    name: str
    words: tuple[str, ...]
    command: str = "train"
    earlier: Mapping[str, str] = field(default_factory=dict)

    def words_at(self, commit: bool) -> list[str]:
        """The words for the commit, or for this checkout."""
        words = [self.earlier.get(word, word) if commit else word for word in self.words]
        key = "output_dir" if self.command == "train" else "output"
        return [*filter(None, words), f"{key}={{out}}"]


TINY = (
    "backbone=tiny tiny.vocab_size=600 tiny.hidden_size=32 tiny.layers=2 tiny.heads=2 tiny.intermediate_size=64 "
    "tiny.max_length=128"
)
TINY_DECLUTR = f"{TINY} data.min_span=4 data.max_span=16"
SCORED = "evaluation.tasks=[{m}/scored.jsonl]"
TABLES = "evaluation.data_root={m}/eval evaluation.suite=[stsb]"
# Of published recipes: the number of steps and the batch are made small; 16-bit floats with scaling want a GPU
LIMITS = f"max_steps={STEPS} max_epochs=null batch_size=8"
PLAIN = f"precision=fp32 {TABLES} evaluation.every_n_steps=5"
SHORT = f"{LIMITS} {PLAIN}"
TRIPLETS, QA, SENTENCES = "{m}/triplets.jsonl", "{m}/qa.jsonl", "{m}/sentences.txt"
NO_RULES = (
    "rules.agree=false rules.threshold=null rules.min_premise_words=0 rules.min_hypothesis_words=0 "
    "rules.drop_near_copies=false sentences.min_words=1 max_new_tokens=8"
)


def _objective(name: str, words: str, steps: str = f"max_steps={STEPS} batch_size=8", task: str = SCORED) -> Case:
    return Case(name, (*words.split(), *steps.split(), *task.split(), "log_every_n_steps=1"))


def _recipe(name: str, words: str, short: str = SHORT) -> Case:
    return Case(f"experiment={name}", (f"experiment={name}", *words.split(), *short.split(), "log_every_n_steps=1"))


def _staged(name: str, words: str, stages: Mapping[str, str]) -> Case:
    """A recipe of stages: name of each -> path of its data."""
    said = [
        f"{key}={value}"
        for stage, path in stages.items()
        for key, value in (
            (f"stages.{stage}.data.path", path),
            (f"++stages.{stage}.max_steps", STEPS),
            (f"++stages.{stage}.max_epochs", "null"),
            (f"++stages.{stage}.batch_size", 2 if path == "null" else 8),  # of few that a synthesis accepts
        )
        if value != "null" or key.endswith("max_epochs")  # a path that follows another key is left to do so
    ]
    return _recipe(name, f"{words} {' '.join(said)}", PLAIN)


OBJECTIVES = [
    _objective("declutr with MLM", f"model=declutr data=text data.path={{m}}/documents.txt {TINY_DECLUTR}"),
    _objective("simcse unsupervised", f"model=simcse data=sentences data.path={SENTENCES} {TINY}"),
    _objective(
        "simcse supervised", f"model=simcse data=triplets data.path={TRIPLETS} {TINY} model.mlp_only_train=false"
    ),
    _objective(
        "pairs in a batch",
        f"model=simcse data=qa data.path={QA} {TINY} model.mlp=false model.pooling=mean",
    ),
    _objective("sroberta", f"model=sroberta data=dino data.path={{m}}/pairs.jsonl {TINY}"),
    _objective("sbert_nli", f"model=sbert_nli data=nli data.path={{m}}/nli.jsonl {TINY}"),
    _objective("gense", f"model=gense data=triplets data.path={TRIPLETS} {TINY}"),
    _objective(
        "gense with a guide and prefixes",
        f"model=gense data=triplets data.path={TRIPLETS} {TINY} model.guide={{m}}/bert model.matryoshka=[32,16]",
    ),
    _objective(
        "gense without prompt, AdamW",
        f"model=gense data=qa data.path={QA} {TINY} model.prompt=null model.optimizer=adamw",
    ),
    _objective("gense_generator", f"model=gense_generator data=nli_generation data.path={TRIPLETS} {TINY}", task=""),
    _objective(
        "gense_generator, a decoder",
        f"model=gense_generator data=nli_generation data.path={TRIPLETS} backbone={{m}}/llama model.optimizer=adamw "
        "prompts.discrimination.yes=ba prompts.discrimination.no=ce",
        task="",
    ),
    _objective("tsdae", f"model=tsdae data=sentences data.path={SENTENCES} backbone={{m}}/bert"),
    _objective(
        "MNTP",
        "model=declutr data=text data.path={m}/documents.txt backbone={m}/llama model.attention=bidirectional "
        "model.contrastive_weight=0.0 model.mlm_weight=1.0 data.min_span=4 data.max_span=16",
    ),
    _objective(
        "chunks",
        f"model=simcse data=triplets data.path={TRIPLETS} {TINY} token_budget=200 model.recompute=on",
    ),
    _objective(
        "bf16, weight decay",
        f"model=sroberta data=dino data.path={{m}}/pairs.jsonl {TINY} precision=bf16 freeze=embeddings",
    ),
    _objective(
        "mixture",
        f"model=simcse data=mixture {TINY} data.parts.qa.data=qa data.parts.qa.path={QA} "
        f"data.parts.nli.data=triplets data.parts.nli.path={TRIPLETS}",
    ),
]
RECIPES = [
    _recipe(
        "declutr_base",
        f"data.path={{m}}/documents.jsonl data.revision=null data.data_files=null data.streaming=null "
        f"data.min_document_length=64 {TINY_DECLUTR}",
    ),
    _recipe(
        "declutr_small",
        f"data.path={{m}}/documents.jsonl data.revision=null data.data_files=null data.streaming=null "
        f"data.min_document_length=64 {TINY_DECLUTR}",
    ),
    _recipe("declutr_tiny", f"data.path={{m}}/documents.txt {TINY}", f"{LIMITS} {TABLES} evaluation.every_n_steps=5"),
    _recipe("dino_demo", "data.path={m}/pairs.jsonl backbone={m}/llama"),
    _recipe("dino_x1x2", f"data.path={{m}}/pairs.jsonl {TINY}"),
    _recipe("dino_x2", f"data.path={{m}}/pairs.jsonl {TINY}"),
    _recipe("dino_x2_no_augmentation", f"data.path={{m}}/pairs.jsonl {TINY}"),
    _recipe("dino_x2_no_smoothing", f"data.path={{m}}/pairs.jsonl {TINY}"),
    _recipe("gense_nli", f"data.path={TRIPLETS} {TINY}"),
    _recipe("gense_generator", f"data.path={TRIPLETS} {TINY}", LIMITS),
    _recipe("improve", f"data.path={QA} backbone={{m}}/bert", f"max_steps={STEPS} batch_size=8 precision=fp32"),
    _recipe("quickstart", "backbone={m}/bert", f"max_steps={STEPS} batch_size=8 precision=fp32"),
    _recipe("quickstart_random", TINY, f"max_steps={STEPS} batch_size=8"),
    _recipe("sbert_nli", f"data.path={{m}}/nli.jsonl {TINY}"),
    _recipe("simcse_sup", f"data.path={TRIPLETS} {TINY}"),
    _recipe("simcse_unsup", f"data.path={SENTENCES} {TINY}"),
    _staged("gense", TINY, {"open": TRIPLETS, "nli": TRIPLETS}),
    _staged(
        "gense_domain",
        f"{TINY} domain.path={{m}}/domain.txt domain.generator={{m}}/t5 domain.folder={{out}}-domain "
        + " ".join(f"+domain.synthesis.{word}" for word in NO_RULES.split()),
        {"open": TRIPLETS, "domain": "null", "nli": TRIPLETS},
    ),
    _staged("gense_open_in", TINY, {"open": TRIPLETS, "domain": TRIPLETS}),
    _staged("gense_plus", TINY, {"open": TRIPLETS, "qa": QA, "nli": TRIPLETS}),
    _staged("gense_qa", TINY, {"qa": QA, "nli": TRIPLETS}),
    _staged("gense_small_demo", f"{TINY} data_root={{m}}", {"open": TRIPLETS, "qa": QA, "nli": TRIPLETS}),
    _staged(
        "llm2vec",
        "backbone={m}/llama stages.mntp.data.min_span=16 stages.mntp.data.max_span=16",
        {"mntp": "{m}/documents.txt", "simcse": SENTENCES, "supervised": TRIPLETS},
    ),
    _staged("simcse_in_nli", "backbone={m}/bert", {"domain": SENTENCES, "nli": TRIPLETS}),
    _staged("tsdae_in_nli", "backbone={m}/bert", {"domain": SENTENCES, "nli": TRIPLETS}),
]
DINO = ("generator={m}/gpt2", "max_new_tokens=12", "shard_size=4", "filters.keep_unclosed=true")
SYNTHESES = [
    Case("synthesis of DINO", ("recipe=dino_x2", "input={m}/few.txt", "per_label=2", *DINO), "generate"),
    Case("synthesis of DINO, both sentences", ("recipe=dino_x1x2", "num_x1=9", "per_label=2", *DINO), "generate"),
    Case(
        "synthesis of GenSE",
        ("recipe=gense", "input={m}/few.txt", "generator={m}/t5", "shard_size=4", "workers=1", *NO_RULES.split()),
        "generate",
    ),
]
CASES = {case.name: case for case in [*OBJECTIVES, *RECIPES, *SYNTHESES]}


def write_materials() -> None:
    """Write the texts and the small models that both sides read; kept, as trained tokenizers may differ."""
    draft = MATERIALS.with_name("materials.part")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    texts = list(dict.fromkeys(text for text in map(_sentence, range(800)) if 4 <= len(text.split()) <= 30))
    chosen, rng = itertools.cycle(texts), random.Random(1)

    def rows(name: str, made: Callable[[int], Mapping[str, Any]], count: int = 96) -> None:
        lines = (json.dumps(made(number)) + "\n" for number in range(count))
        (draft / name).write_text("".join(lines), encoding="utf-8")

    long = [" ".join(invented(number, 2_100).split()[:400]) for number in range(40)]
    rows("documents.jsonl", lambda number: {"text": long[number]}, len(long))
    (draft / "documents.txt").write_text("\n".join(long) + "\n", encoding="utf-8")
    for name, count in (("sentences.txt", 96), ("domain.txt", 24), ("few.txt", 8)):
        (draft / name).write_text("".join(next(chosen) + "\n" for _ in range(count)), encoding="utf-8")
    rows("triplets.jsonl", lambda _: dict(zip(("premise", "entailment", "contradiction"), chosen)))  # noqa: B905
    rows("qa.jsonl", lambda _: dict(zip(("question", "answer"), chosen)))  # noqa: B905
    labels = ("entailment", "neutral", "contradiction")
    rows("nli.jsonl", lambda n: {"premise": next(chosen), "hypothesis": next(chosen), "label": labels[n % 3]})
    rows("pairs.jsonl", lambda n: {"text_a": texts[n // 3], "text_b": next(chosen), "label": n % 3 / 2})
    rows("scored.jsonl", lambda _: {"sentence1": next(chosen), "sentence2": next(chosen), "score": rng.random()}, 40)
    tables = draft / "eval" / "STSBenchmark"
    tables.mkdir(parents=True)
    for name in ("train.tsv", "dev.tsv", "dev.senteval.tsv", "test.tsv"):
        pairs = [f"{next(chosen)}\t{next(chosen)}\t{rng.uniform(0, 5):.2f}".replace('"', "'") for _ in range(40)]
        (tables / name).write_text("\n".join(["sentence1\tsentence2\tscore", *pairs, ""]), encoding="utf-8")
    _write_models(draft, texts)
    shutil.rmtree(MATERIALS, ignore_errors=True)
    draft.replace(MATERIALS)


def _sentence(number: int) -> str:
    return invented(number, random.Random(number).randint(5, 40))


def _write_models(folder: Path, texts: Sequence[str]) -> None:
    """Models of width 32 with tokenizers trained on ``texts``: ``bert``, ``llama``, ``t5`` and ``gpt2``.

    The texts of ``gpt2`` often end with a quotation mark, as those of a model that follows DINO's instructions do.
    """
    import torch
    from tokenizers import ByteLevelBPETokenizer, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import (
        BertConfig,
        BertForMaskedLM,
        BertTokenizer,
        GPT2Config,
        GPT2LMHeadModel,
        LlamaConfig,
        LlamaForCausalLM,
        PreTrainedTokenizerFast,
        T5Config,
        T5ForConditionalGeneration,
    )

    def save(name: str, model: Any, tokenizer: Any) -> None:
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)

    torch.manual_seed(1)
    words = sorted({word for text in texts[:200] for word in text.lower().split() if word.isalpha()})[:600]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces += [*(chr(code) for code in range(33, 127)), *(f"##{chr(code)}" for code in range(33, 127)), *words]
    vocabulary = {piece: place for place, piece in enumerate(dict.fromkeys(pieces))}
    sizes: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    bert = BertConfig(vocab_size=len(vocabulary), max_position_embeddings=128, pad_token_id=0, **sizes)
    tokenizer: Any = BertTokenizer(vocab=vocabulary, model_max_length=128, do_lower_case=True)
    save("bert", BertForMaskedLM(bert), tokenizer)

    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(texts, vocab_size=600, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False)
    bpe._tokenizer.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A $B", [("<s>", 1)])
    ids: dict[str, Any] = {"bos_token_id": 1, "eos_token_id": 2, "vocab_size": 600, "max_position_embeddings": 256}
    roles = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe._tokenizer, model_max_length=256, **roles)
    save("llama", LlamaForCausalLM(LlamaConfig(**ids, **sizes)), tokenizer)

    unigram = Tokenizer(models.Unigram())
    unigram.pre_tokenizer, unigram.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    specials = ["<pad>", "</s>", "<unk>"]
    asked = ["is it true or false that two sentences mean the same?"] * 20
    trainer = trainers.UnigramTrainer(vocab_size=400, special_tokens=specials, unk_token="<unk>", show_progress=False)
    unigram.train_from_iterator([*texts, *asked], trainer)
    unigram.post_processor = processors.TemplateProcessing("$A </s>", "$A </s> $B </s>", [("</s>", 1)])
    roles = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=unigram, model_max_length=512, **roles)
    sizes = {
        "decoder_start_token_id": 0,
        "d_model": 32,
        "d_kv": 16,
        "d_ff": 64,
        "num_layers": 2,
        "num_heads": 2,
        "dropout_rate": 0.0,
    }
    t5 = T5Config(vocab_size=len(tokenizer), **sizes)
    save("t5", T5ForConditionalGeneration(t5), tokenizer)

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    whole = [f"Ġ{word}" for word in words[:40]]
    vocabulary = {token: place for place, token in enumerate(["<|endoftext|>", *alphabet, *whole])}
    byte_level = Tokenizer(models.BPE(vocabulary, []))
    byte_level.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    byte_level.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=byte_level, eos_token="<|endoftext|>")
    sizes = {"n_positions": 512, "n_embd": 32, "n_layer": 2, "n_head": 2, "bos_token_id": 0, "eos_token_id": 0}
    gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=len(vocabulary), tie_word_embeddings=False, **sizes))
    with torch.no_grad():  # a state that is always 1 carries how frequent a token is
        gpt2.transformer.ln_f.weight[0], gpt2.transformer.ln_f.bias[0] = 0.0, 1.0
        gpt2.lm_head.weight.normal_(std=0.3)
        gpt2.lm_head.weight[:, 0] = -4.0
        gpt2.lm_head.weight[-len(whole) :, 0] = 1.0
        gpt2.lm_head.weight[vocabulary['"'], 0] = 3.0
    save("gpt2", gpt2, tokenizer)


def recorded(case: Case, output: Path) -> Record:
    """Read what a command has left in ``output``: name of a figure -> its text, with every digit."""
    if case.command == "generate":
        shards = sorted(output.rglob("shard-*.jsonl"))
        texts = {
            f"{path.relative_to(output)}, row {number}": row
            for path in shards
            for number, row in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        }
        return {"texts": texts}
    record: Record = {"losses": {}, "scores": _scores(json.loads((output / "results.json").read_text()))}
    for path in sorted(output.rglob("metrics.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                named = {name: row[name] for name in row if "loss" in name and row[name]}
                place = f"{path.parent.relative_to(output)}, step {row['step']}, "
                record["losses"] |= {place + name: value for name, value in named.items()}
    product = next(output / name for name in PRODUCTS if (output / name).is_dir())
    record["weights"] = _digests(product)
    if product.name == "encoder":
        record["vectors"] = _vectors(product)
    return record


def _scores(results: Record) -> dict[str, str]:
    parts = {part: results.get(part) or {} for part in ("scores", "scores_before", "baselines")}
    stages = {name: stage.get("scores") or {} for name, stage in (results.get("stages") or {}).items()}
    return {f"{part}, {name}": repr(value) for part, found in (parts | stages).items() for name, value in found.items()}


def _digests(folder: Path) -> dict[str, str]:
    from safetensors.torch import load_file

    return {
        f"{path.relative_to(folder)}, {name}": hashlib.sha256(
            tensor.contiguous().view(-1).numpy().tobytes()
        ).hexdigest()
        for path in sorted(folder.rglob("*.safetensors"))
        for name, tensor in sorted(load_file(path).items())
    }


def _vectors(folder: Path) -> dict[str, str]:
    """The bits of the vectors that sentence-transformers makes of ten texts."""
    from sentence_transformers import SentenceTransformer

    texts = (MATERIALS / "sentences.txt").read_text(encoding="utf-8").splitlines()[:VECTORS]
    model = SentenceTransformer(str(folder), device="cpu")
    vectors = [model.encode(text, show_progress_bar=False) for text in texts]
    return {f"text {number}": vector.tobytes().hex() for number, vector in enumerate(vectors, 1)}


def in_fork(work: Callable[[], object], log: Path, folder: Path) -> int:
    """Exit status of ``work``, done in a fork of this process in ``folder``, with its output in ``log``."""

    def redirected() -> None:
        stream = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(stream, 1)
        os.dup2(stream, 2)
        os.chdir(folder)
        work()

    process = multiprocessing.get_context("fork").Process(target=redirected)
    process.start()
    process.join()
    return process.exitcode or 0


def _command(case: Case, words: Sequence[str], tree: Path) -> None:
    """Run a command of the checkout in ``tree``, and make sure that no module came from another one."""
    sys.path[0] = os.environ["PYTHONPATH"] = str(tree)
    ours = {path.stem for path in tree.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    for name in [name for name in sys.modules if name.partition(".")[0] in ours | {"contrastive_encoders"}]:
        del sys.modules[name]
    is_package = (tree / "contrastive_encoders").is_dir()
    sys.argv = ["contrastive_encoders", case.command, *words] if is_package else [case.command, *words]
    try:
        if is_package:
            runpy.run_module("contrastive_encoders", run_name="__main__", alter_sys=True)
        elif case.command == "train":
            runpy.run_path(str(tree / "train.py"), run_name="__main__")
        else:
            runpy.run_module(MODULES_BEFORE_PACKAGE[case.command], run_name="__main__", alter_sys=True)
    finally:
        for name, module in list(sys.modules.items()):
            where = getattr(module, "__file__", None)
            if name.partition(".")[0] in ours and where and not Path(where).is_relative_to(tree):
                print(f"{name} came from {where}, not from {tree}")
                os._exit(70)


def side(case: Case, tree: Path, place: Path, at_commit: bool) -> Record:
    """What a case leaves when ``tree`` runs it; ``failed`` holds the last line of its log where it did not end well."""
    name = "".join(letter if letter.isalnum() else "_" for letter in case.name)
    output, log, found = place / name, place / f"{name}.log", place / f"{name}.json"
    for old in (output, place / f"{name}-domain"):
        shutil.rmtree(old, ignore_errors=True)
    for old in (log, found):
        old.unlink(missing_ok=True)
    places = {"{m}": MATERIALS, "{out}": output}
    words = [_replaced(word, places) for word in case.words_at(at_commit)]
    status = in_fork(lambda: _command(case, words, tree), log, tree)
    if status == 0:

        def write() -> None:
            found.write_text(json.dumps(recorded(case, output)), encoding="utf-8")

        status = in_fork(write, log, tree)
    record = (
        json.loads(found.read_text(encoding="utf-8")) if status == 0 else {"failed": f"{status}: {_last_line(log)}"}
    )
    shutil.rmtree(output, ignore_errors=True)
    return record


def _replaced(word: str, places: Mapping[str, Path]) -> str:
    for mark, place in places.items():
        word = word.replace(mark, str(place))
    return word


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1][:200] if lines else "nothing was printed"


def kept(case: Case, tree: Path, place: Path, materials: str) -> Record:
    """The side of the commit, from its file where the same words and materials made it, else computed."""
    path = place / f"{hashlib.sha256(case.name.encode()).hexdigest()[:12]}.kept.json"
    made_of = {"materials": materials, "words": case.words_at(True)}
    if path.is_file():
        record: Record = json.loads(path.read_text(encoding="utf-8"))
        if record["made_of"] == made_of and "failed" not in record:
            return record
    record = side(case, tree, place, at_commit=True) | {"made_of": made_of}
    path.write_text(json.dumps(record), encoding="utf-8")
    return record


def compared(then: Record, now: Record) -> str:
    """``identical`` with what was compared, ``differs`` with the first difference, or ``failed`` and where."""
    failed = [
        f"{where}: {record['failed']}" for where, record in (("commit", then), ("here", now)) if "failed" in record
    ]
    if failed:
        return f"failed   {'; '.join(failed)}"
    for kind in ("losses", "scores", "vectors", "weights", "texts"):
        old, new = then.get(kind, {}), now.get(kind, {})
        for name in [*old, *(name for name in new if name not in old)]:
            if old.get(name) != new.get(name):
                return f"differs  {kind}, {name}: {_short(old.get(name))} -> {_short(new.get(name))}"
    counts = ", ".join(
        f"{len(then[kind])} {kind}" for kind in ("losses", "scores", "vectors", "weights", "texts") if then.get(kind)
    )
    return f"identical  {counts}" if counts else "failed   nothing was recorded"


def _short(value: str | None) -> str:
    return "absent" if value is None else value[:60]


def digest(folder: Path) -> str:
    """Of the names and bytes of all files below ``folder``."""
    found = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        found.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def checked_out(commit: str) -> tuple[str, Path]:
    """The full name of a commit, and a git worktree of it."""
    asked = ["git", "rev-parse", "--verify", f"{commit}^{{commit}}"]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"--against {commit}: no such commit. {done.stderr.strip()}")
    name = done.stdout.strip()
    tree = PLACE / name / "tree"
    if not (tree / "train.py").is_file():
        subprocess.run(["git", "worktree", "prune"], cwd=ROOT, check=True)
        subprocess.run(["git", "worktree", "add", "--force", "--detach", tree, name], cwd=ROOT, check=True)
    return name, tree


def warm() -> None:
    """Import what all commands import, so that a fork need not; no thread may be running in torch before a fork."""
    os.environ |= SURROUNDINGS
    for name in WARM.split():
        __import__(name)
    sys.modules["torch"].set_num_threads(1)


def results(cases: Sequence[Case], commit: str) -> Iterator[tuple[Case, str, float]]:
    """Each case, its verdict, and the seconds that this checkout's side took."""
    name, tree = checked_out(commit)
    then, now = PLACE / name, PLACE / "here"
    shutil.rmtree(now, ignore_errors=True)
    now.mkdir(parents=True)
    warm()
    if not MATERIALS.is_dir() and in_fork(write_materials, now / "materials.log", ROOT):
        raise SystemExit(f"The materials could not be written: {_last_line(now / 'materials.log')}")
    materials = digest(MATERIALS)
    for case in cases:
        os.environ["CONTRASTIVE_ENCODERS_CACHE"] = str(then / "cache")
        before = kept(case, tree, then, materials)
        os.environ["CONTRASTIVE_ENCODERS_CACHE"] = str(now / "cache")
        begun = time.perf_counter()
        after = side(case, ROOT, now, at_commit=False)
        yield case, compared(before, after), time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="COMMIT", help="the commit to compare this checkout with")
    parser.add_argument("--cases", nargs="+", metavar="NAME", help="all whose name contains one of these; default: all")
    parser.add_argument("--list", action="store_true", help="print the names of the cases and end")
    asked = parser.parse_args()
    cases = [case for case in CASES.values() if not asked.cases or any(part in case.name for part in asked.cases)]
    if not cases:
        parser.error(f"--cases: no name contains any of {', '.join(asked.cases)}; --list prints the names")
    if asked.list or not asked.against:
        print("\n".join(case.name for case in cases))
        raise SystemExit(0 if asked.list else 2)
    begun, identical = time.perf_counter(), 0
    for case, verdict, seconds in results(cases, asked.against):
        identical += verdict.startswith("identical")
        print(f"{case.name:36}  {seconds:5.1f} s  {verdict}", flush=True)
    print(f"{identical} of {len(cases)} cases are identical ({time.perf_counter() - begun:.0f} s)")
    raise SystemExit(identical != len(cases))


if __name__ == "__main__":
    main()
