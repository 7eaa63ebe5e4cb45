"""Compare what every objective, recipe, and synthesis computes in this checkout with what it computed at a commit.

    python -m benchmarks.frozen --against COMMIT [--cases NAME ...] [--list]

Each case is one command on small data and a small model, with fixed seeds, one process and one thread. Recorded are ten
losses (``metrics.csv``), the scores (``results.json``), ten embeddings of the exported encoder, and a digest of every
exported tensor; of a synthesis, its texts. The same command runs in a git worktree of COMMIT and in this checkout. For
each case the table says ``identical``, ``differs`` with the first difference, or ``failed`` with the last line of the
log. The exit code is 0 if all cases are identical.

The side of COMMIT is stored in ``outputs/benchmarks/frozen/COMMIT`` and computed once. Commands run in forks of a
process that has imported torch, Lightning, and transformers, but nothing of this project; COMMIT must have the same
names of keys.
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
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.texts import ROOT, invented

PLACE = ROOT / "outputs" / "benchmarks" / "frozen"
MATERIALS = PLACE / "materials"
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "CUDA_VISIBLE_DEVICES": "",
}
WARM_MODULES = ("torch", "pytorch_lightning", "transformers", "peft", "hydra", "datasets", "sentence_transformers")
PRODUCTS = ("encoder", "generator", "reranker")  # folders with the product of a run
KINDS = ("losses", "scores", "vectors", "weights", "texts")
Record = dict[str, Any]


class Case(NamedTuple):
    """A command and its arguments; ``{m}`` in an argument is the folder of the materials, ``{out}`` the output."""

    name: str
    arguments: tuple[str, ...]
    command: str = "train"


TINY_SIZES = "tiny.vocab_size=600 tiny.hidden_size=32 tiny.layers=2 tiny.heads=2 tiny.intermediate_size=64"
TINY = f"backbone=tiny {TINY_SIZES} tiny.max_length=128"
TINY_DECLUTR = f"{TINY} data.min_span=4 data.max_span=16"
TABLES = "evaluation.data_root={m}/eval evaluation.suite=[stsb]"
# Published recipes get few steps and small batches; 16-bit floats with scaling need a GPU
LIMITS = "max_steps=10 max_epochs=null batch_size=8"
PLAIN = f"precision=fp32 {TABLES} evaluation.every_n_steps=5"
TRIPLETS, QA, SENTENCES, PAIRS = "{m}/triplets.jsonl", "{m}/qa.jsonl", "{m}/sentences.txt", "{m}/pairs.jsonl"
NO_RULES = (
    "rules.agree=false rules.threshold=null rules.min_premise_words=0 rules.min_hypothesis_words=0 "
    "rules.drop_near_copies=false sentences.min_words=1 max_new_tokens=8"
)
ON_TRIPLETS = f"model=simcse data=triplets data.path={TRIPLETS} {TINY}"
OBJECTIVES = {
    "declutr with MLM": f"model=declutr data=text data.path={{m}}/documents.txt {TINY_DECLUTR}",
    "simcse unsupervised": f"model=simcse data=sentences data.path={SENTENCES} {TINY}",
    "simcse supervised": f"{ON_TRIPLETS} model.mlp_only_train=false",
    "pairs in a batch": f"model=simcse data=qa data.path={QA} {TINY} model.mlp=false model.pooling=mean",
    "sroberta": f"model=sroberta data=dino data.path={PAIRS} {TINY}",
    "sbert_nli": f"model=sbert_nli data=nli data.path={{m}}/nli.jsonl {TINY}",
    "gense": f"model=gense data=triplets data.path={TRIPLETS} {TINY}",
    "gense with a guide and prefixes": f"model=gense data=triplets data.path={TRIPLETS} {TINY} "
    "model.guide={m}/bert model.matryoshka=[32,16]",
    "gense without prompt, AdamW": f"model=gense data=qa data.path={QA} {TINY} model.prompt_suffix=null "
    "model.optimizer=adamw",
    "gense_generator": f"model=gense_generator data=nli_generation data.path={TRIPLETS} {TINY}",
    "gense_generator, a decoder": f"model=gense_generator data=nli_generation data.path={TRIPLETS} "
    "backbone={m}/llama model.optimizer=adamw prompts.discrimination.yes=ba prompts.discrimination.no=ce",
    "tsdae": f"model=tsdae data=sentences data.path={SENTENCES} backbone={{m}}/bert",
    "MNTP": "model=declutr data=text data.path={m}/documents.txt backbone={m}/llama model.attention=bidirectional "
    "model.contrastive_weight=0.0 model.mlm_weight=1.0 data.min_span=4 data.max_span=16",
    "chunks": f"{ON_TRIPLETS} token_budget=200 model.activation_checkpointing=on",
    "bf16, weight decay": f"model=sroberta data=dino data.path={PAIRS} {TINY} precision=bf16 freeze=embeddings",
    "mixture": f"model=simcse data=mixture {TINY} data.parts.qa.data=qa data.parts.qa.path={QA} "
    f"data.parts.nli.data=triplets data.parts.nli.path={TRIPLETS}",
}
OPENWEBTEXT = (
    "data.path={m}/documents.jsonl data.revision=null data.data_files=null data.streaming=null "
    f"data.min_document_length=64 {TINY_DECLUTR} {LIMITS} {PLAIN}"
)
DINO = f"data.path={PAIRS} {TINY} {LIMITS} {PLAIN}"
SIMCSE = f"data.path={TRIPLETS} {TINY} {LIMITS} {PLAIN}"
RECIPES = {
    "declutr_base": OPENWEBTEXT,
    "declutr_small": OPENWEBTEXT,
    "declutr_tiny": f"data.path={{m}}/documents.txt {TINY} {LIMITS} {TABLES} evaluation.every_n_steps=5",
    "dino_demo": f"data.path={PAIRS} backbone={{m}}/llama {LIMITS} {PLAIN}",
    "dino_x1x2": DINO,
    "dino_x2": DINO,
    "dino_x2_no_augmentation": DINO,
    "dino_x2_no_smoothing": DINO,
    "gense_nli": SIMCSE,
    "gense_generator": f"data.path={TRIPLETS} {TINY} {LIMITS}",
    "improve": f"data.path={QA} backbone={{m}}/bert max_steps=10 batch_size=8 precision=fp32",
    "quickstart": "backbone={m}/bert max_steps=10 batch_size=8 precision=fp32",
    "quickstart_random": f"{TINY} max_steps=10 batch_size=8",
    "sbert_nli": f"data.path={{m}}/nli.jsonl {TINY} {LIMITS} {PLAIN}",
    "simcse_sup": SIMCSE,
    "simcse_unsup": f"data.path={SENTENCES} {TINY} {LIMITS} {PLAIN}",
}
GENSE_DOMAIN = (
    f"{TINY} domain.path={{m}}/domain.txt domain.generator={{m}}/t5 domain.folder={{out}}-domain "
    + " ".join(f"+domain.synthesis.{argument}" for argument in NO_RULES.split())
)
LLM2VEC = "backbone={m}/llama stages.mntp.data.min_span=16 stages.mntp.data.max_span=16"
STAGES = {  # recipe -> its arguments, and stage -> path of its data (none: it follows another key)
    "gense": (TINY, {"open": TRIPLETS, "nli": TRIPLETS}),
    "gense_domain": (GENSE_DOMAIN, {"open": TRIPLETS, "domain": None, "nli": TRIPLETS}),
    "gense_open_in": (TINY, {"open": TRIPLETS, "domain": TRIPLETS}),
    "gense_plus": (TINY, {"open": TRIPLETS, "qa": QA, "nli": TRIPLETS}),
    "gense_qa": (TINY, {"qa": QA, "nli": TRIPLETS}),
    "gense_small_demo": (f"{TINY} data_root={{m}}", {"open": TRIPLETS, "qa": QA, "nli": TRIPLETS}),
    "llm2vec": (LLM2VEC, {"mntp": "{m}/documents.txt", "simcse": SENTENCES, "supervised": TRIPLETS}),
    "simcse_in_nli": ("backbone={m}/bert", {"domain": SENTENCES, "nli": TRIPLETS}),
    "tsdae_in_nli": ("backbone={m}/bert", {"domain": SENTENCES, "nli": TRIPLETS}),
}
DINO_SMALL = "generator={m}/gpt2 max_new_tokens=12 shard_size=4 filters.keep_unclosed=true"
SYNTHESES = {
    "synthesis of DINO": f"recipe=dino_x2 input={{m}}/few.txt per_label=2 {DINO_SMALL}",
    "synthesis of DINO, both sentences": f"recipe=dino_x1x2 num_x1=9 per_label=2 {DINO_SMALL}",
    "synthesis of GenSE": f"recipe=gense input={{m}}/few.txt generator={{m}}/t5 shard_size=4 workers=1 {NO_RULES}",
}


def make_cases() -> Iterator[Case]:
    for name, arguments in OBJECTIVES.items():
        task = "" if "generator" in name else "evaluation.custom_tasks=[{m}/scored.jsonl]"
        yield Case(name, (*f"{arguments} max_steps=10 batch_size=8 {task}".split(), "log_every_n_steps=1"))
    for name, arguments in RECIPES.items():
        yield Case(f"experiment={name}", (f"experiment={name}", *arguments.split(), "log_every_n_steps=1"))
    for name, (arguments, stages) in STAGES.items():
        for stage, path in stages.items():
            arguments += f" stages.{stage}.data.path={path}" if path else ""
            arguments += f" ++stages.{stage}.max_steps=10 ++stages.{stage}.max_epochs=null"
            arguments += f" ++stages.{stage}.batch_size={8 if path else 2}"  # of the few that a synthesis accepts
        yield Case(f"experiment={name}", (f"experiment={name}", *f"{arguments} {PLAIN}".split(), "log_every_n_steps=1"))
    for name, arguments in SYNTHESES.items():
        yield Case(name, tuple(arguments.split()), "generate")


CASES = list(make_cases())


# ---------------------------------------------------------------------------- materials


def write_materials() -> None:
    """Write the texts and the small models that both sides read; they are kept, as trained tokenizers may differ."""
    draft = MATERIALS.with_name("materials.part")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    sentences = [invented(number, random.Random(number).randint(5, 40)) for number in range(800)]
    texts = list(dict.fromkeys(text for text in sentences if 4 <= len(text.split()) <= 30))
    stream, rng = itertools.cycle(texts), random.Random(1)

    def rows(name: str, make: Callable[[int], Mapping[str, Any]], count: int = 96) -> None:
        lines = (json.dumps(make(number)) + "\n" for number in range(count))
        (draft / name).write_text("".join(lines), encoding="utf-8")

    long = [" ".join(invented(number, 2_100).split()[:400]) for number in range(40)]
    rows("documents.jsonl", lambda number: {"text": long[number]}, len(long))
    (draft / "documents.txt").write_text("\n".join(long) + "\n", encoding="utf-8")
    for name, count in (("sentences.txt", 96), ("domain.txt", 24), ("few.txt", 8)):
        (draft / name).write_text("".join(next(stream) + "\n" for _ in range(count)), encoding="utf-8")
    rows("triplets.jsonl", lambda _: dict(zip(("premise", "entailment", "contradiction"), stream)))  # noqa: B905
    rows("qa.jsonl", lambda _: dict(zip(("question", "answer"), stream)))  # noqa: B905
    labels = ("entailment", "neutral", "contradiction")
    rows("nli.jsonl", lambda n: {"premise": next(stream), "hypothesis": next(stream), "label": labels[n % 3]})
    rows("pairs.jsonl", lambda n: {"text_a": texts[n // 3], "text_b": next(stream), "label": n % 3 / 2})
    rows("scored.jsonl", lambda _: {"sentence1": next(stream), "sentence2": next(stream), "score": rng.random()}, 40)
    tables = draft / "eval" / "STSBenchmark"
    tables.mkdir(parents=True)
    for name in ("train.tsv", "dev.tsv", "dev.senteval.tsv", "test.tsv"):
        pairs = [f"{next(stream)}\t{next(stream)}\t{rng.uniform(0, 5):.2f}".replace('"', "'") for _ in range(40)]
        (tables / name).write_text("\n".join(["sentence1\tsentence2\tscore", *pairs, ""]), encoding="utf-8")
    write_models(draft, texts)
    for record in PLACE.glob("*/*.json"):  # made of other materials
        record.unlink()
    draft.replace(MATERIALS)


def write_models(folder: Path, texts: Sequence[str]) -> None:
    """Write models of width 32 with tokenizers trained on ``texts``: ``bert``, ``llama``, ``t5``, and ``gpt2``.

    The texts of ``gpt2`` often end with a quotation mark, as those of a model that follows DINO's instructions do.
    """
    import torch
    import transformers as hf
    from tokenizers import ByteLevelBPETokenizer, Tokenizer, decoders, models, pre_tokenizers, processors

    from contrastive_encoders.encoders.loading.tiny import write_tiny_t5

    def save(name: str, model: Any, tokenizer: Any) -> None:
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)

    torch.manual_seed(1)
    sizes: Any = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    words = sorted({word for text in texts[:200] for word in text.lower().split() if word.isalpha()})[:600]
    letters = [chr(code) for code in range(33, 127)]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters), *words]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    bert = hf.BertConfig(vocab_size=len(vocabulary), max_position_embeddings=128, pad_token_id=0, **sizes)
    tokenizer: Any = hf.BertTokenizer(vocab=vocabulary, model_max_length=128, do_lower_case=True)
    save("bert", hf.BertForMaskedLM(bert), tokenizer)

    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(texts, vocab_size=600, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False)
    bpe._tokenizer.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A $B", [("<s>", 1)])
    ids: Any = {"bos_token_id": 1, "eos_token_id": 2, "vocab_size": 600, "max_position_embeddings": 256}
    roles = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>"}
    tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=bpe._tokenizer, model_max_length=256, **roles)
    save("llama", hf.LlamaForCausalLM(hf.LlamaConfig(**ids, **sizes)), tokenizer)

    prompts = ["is it true or false that two sentences mean the same?"] * 20
    sizes = {"hidden_size": 32, "layers": 2, "heads": 2, "intermediate_size": 64, "max_length": 512, "dropout": 0.0}
    write_tiny_t5(folder / "t5", iter([*texts, *prompts]), seed=1, vocab_size=600, **sizes)

    end, whole = "<|endoftext|>", [f"Ġ{word}" for word in words[:40]]
    pieces = [end, *sorted(pre_tokenizers.ByteLevel.alphabet()), *whole]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    byte_level = Tokenizer(models.BPE(vocabulary, []))
    byte_level.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    byte_level.decoder = decoders.ByteLevel()
    sizes = {"n_positions": 512, "n_embd": 32, "n_layer": 2, "n_head": 2, "bos_token_id": 0, "eos_token_id": 0}
    gpt2 = hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=len(vocabulary), tie_word_embeddings=False, **sizes))
    with torch.no_grad():  # a hidden state that is always 1 carries how frequent a token is
        gpt2.transformer.ln_f.weight[0], gpt2.transformer.ln_f.bias[0] = 0.0, 1.0
        gpt2.lm_head.weight.normal_(std=0.3)
        gpt2.lm_head.weight[:, 0] = -4.0
        gpt2.lm_head.weight[-len(whole) :, 0] = 1.0
        gpt2.lm_head.weight[vocabulary['"'], 0] = 3.0
    save("gpt2", gpt2, hf.PreTrainedTokenizerFast(tokenizer_object=byte_level, eos_token=end))


# ---------------------------------------------------------------------------- one side of a case


def read_output(case: Case, output: Path) -> Record:
    """Read the results of a command: name of a figure -> its text, with every digit."""
    if case.command == "generate":
        texts = {
            f"{path.relative_to(output)}, row {number}": row
            for path in sorted(output.rglob("shard-*.jsonl"))
            for number, row in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        }
        return {"texts": texts}
    losses = dict[str, str]()
    for path in sorted(output.rglob("metrics.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                step = f"{path.parent.relative_to(output)}, step {row['step']}, "
                losses |= {step + name: row[name] for name in row if "loss" in name and row[name]}
    product = next(output / name for name in PRODUCTS if (output / name).is_dir())
    record = {"losses": losses, "scores": read_scores(output / "results.json"), "weights": digest_tensors(product)}
    return record | ({"vectors": embed(product)} if product.name == "encoder" else {})


def read_scores(path: Path) -> dict[str, str]:
    results = json.loads(path.read_text(encoding="utf-8"))
    parts = {part: results.get(part) or {} for part in ("scores", "scores_before", "baselines")}
    parts |= {name: stage.get("scores") or {} for name, stage in (results.get("stages") or {}).items()}
    return {f"{part}, {name}": repr(value) for part, scores in parts.items() for name, value in scores.items()}


def digest_tensors(folder: Path) -> dict[str, str]:
    from safetensors.numpy import load_file

    return {
        f"{path.relative_to(folder)}, {name}": hashlib.sha256(tensor.tobytes()).hexdigest()
        for path in sorted(folder.rglob("*.safetensors"))
        for name, tensor in sorted(load_file(path).items())
    }


def embed(folder: Path) -> dict[str, str]:
    """Return the bits of the embeddings that sentence-transformers computes of ten texts."""
    from sentence_transformers import SentenceTransformer

    texts = (MATERIALS / "sentences.txt").read_text(encoding="utf-8").splitlines()[:10]
    model = SentenceTransformer(str(folder), device="cpu")
    vectors = [model.encode(text, show_progress_bar=False) for text in texts]
    return {f"text {number}": vector.tobytes().hex() for number, vector in enumerate(vectors, 1)}


def run_in_fork(work: Callable[[], object], log: Path, folder: Path) -> int:
    """Return the exit code of ``work``, done in a fork of this process in ``folder``, with its output in ``log``."""

    def redirect_and_work() -> None:
        stream = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(stream, 1)
        os.dup2(stream, 2)
        os.chdir(folder)
        work()

    process = multiprocessing.get_context("fork").Process(target=redirect_and_work)
    process.start()
    process.join()
    return process.exitcode or 0


def run_command(command: str, arguments: Sequence[str], tree: Path) -> None:
    """Run a command of the checkout in ``tree``, and make sure that the package came from there."""
    sys.path[0] = os.environ["PYTHONPATH"] = str(tree)
    import contrastive_encoders

    if not Path(contrastive_encoders.__file__).is_relative_to(tree):
        raise SystemExit(f"contrastive_encoders came from {contrastive_encoders.__file__}, not from {tree}")
    sys.argv = ["contrastive_encoders", command, *arguments]
    runpy.run_module("contrastive_encoders", run_name="__main__", alter_sys=True)


def run_side(case: Case, tree: Path, place: Path) -> Record:
    """Return the results of a case in ``tree``, from their file in ``place`` if there is one; if it failed, ``failed``
    is the last line of its log.
    """
    name = "".join(letter if letter.isalnum() else "_" for letter in case.name)
    digest = hashlib.sha256(repr(case).encode()).hexdigest()[:8]  # another one if the arguments change
    output, log, path = place / name, place / f"{name}.log", place / f"{name}-{digest}.json"
    if path.is_file():
        return json.loads(path.read_text(encoding="utf-8"))
    os.environ["CONTRASTIVE_ENCODERS_CACHE"] = str(place / "cache")
    for old in (output, place / f"{name}-domain"):
        shutil.rmtree(old, ignore_errors=True)
    log.unlink(missing_ok=True)
    key = "output_dir" if case.command == "train" else "output"
    arguments = [one.replace("{m}", str(MATERIALS)).replace("{out}", str(output)) for one in case.arguments]
    arguments.append(f"{key}={output}")

    def write_record() -> None:
        path.write_text(json.dumps(read_output(case, output)), encoding="utf-8")

    status = run_in_fork(lambda: run_command(case.command, arguments, tree), log, tree)
    status = status or run_in_fork(write_record, log, tree)
    record = {"failed": f"{status}: {last_line(log)}"} if status else json.loads(path.read_text(encoding="utf-8"))
    shutil.rmtree(output, ignore_errors=True)
    return record


def last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1][:200] if lines else "nothing was printed"


# ---------------------------------------------------------------------------- both sides


def compare(then: Record, now: Record) -> str:
    """Return ``identical`` with what was compared, ``differs`` with the first difference, or ``failed``."""
    failures = [f"{side}: {one['failed']}" for side, one in (("commit", then), ("here", now)) if "failed" in one]
    if failures:
        return f"failed   {'; '.join(failures)}"
    for kind in KINDS:
        old, new = then.get(kind, {}), now.get(kind, {})
        for name in [*old, *(name for name in new if name not in old)]:
            if old.get(name) != new.get(name):
                values = [str(values.get(name, "absent"))[:60] for values in (old, new)]
                return f"differs  {kind}, {name}: {' -> '.join(values)}"
    counts = ", ".join(f"{len(then[kind])} {kind}" for kind in KINDS if then.get(kind))
    return f"identical  {counts}" if counts else "failed   nothing was recorded"


def check_out(commit: str) -> tuple[str, Path]:
    """Return the full name of a commit, and a git worktree of it."""
    command = ["git", "rev-parse", "--verify", f"{commit}^{{commit}}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"--against {commit}: no such commit. {done.stderr.strip()}")
    name = done.stdout.strip()
    tree = PLACE / name / "tree"
    if not (tree / "train.py").is_file():
        subprocess.run(["git", "worktree", "prune"], cwd=ROOT, check=True)
        subprocess.run(["git", "worktree", "add", "--force", "--detach", tree, name], cwd=ROOT, check=True)
    return name, tree


def compare_all(cases: Sequence[Case], commit: str) -> Iterator[tuple[Case, str, float]]:
    """Yield each case, the result of the comparison, and the duration of its run in this checkout, in seconds."""
    name, tree = check_out(commit)
    then, now = PLACE / name, PLACE / "here"
    shutil.rmtree(now, ignore_errors=True)
    now.mkdir(parents=True)
    os.environ |= ENVIRONMENT
    for module in WARM_MODULES:  # so that a fork need not
        __import__(module)
    sys.modules["torch"].set_num_threads(1)  # no thread of torch may run before a fork
    if not MATERIALS.is_dir() and run_in_fork(write_materials, now / "materials.log", ROOT):
        raise SystemExit(f"The materials could not be written: {last_line(now / 'materials.log')}")
    for case in cases:
        before = run_side(case, tree, then)
        start = time.perf_counter()
        after = run_side(case, ROOT, now)
        yield case, compare(before, after), time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="COMMIT", help="the commit to compare this checkout with")
    parser.add_argument("--cases", nargs="+", metavar="NAME", help="all whose name contains one of these; default: all")
    parser.add_argument("--list", action="store_true", help="print the names of the cases and end")
    options = parser.parse_args()
    cases = [case for case in CASES if not options.cases or any(part in case.name for part in options.cases)]
    if not cases:
        parser.error(f"--cases: no name contains any of {', '.join(options.cases)}; --list prints the names")
    if options.list or not options.against:
        print("\n".join(case.name for case in cases))
        raise SystemExit(0 if options.list else 2)
    start, identical = time.perf_counter(), 0
    for case, verdict, seconds in compare_all(cases, options.against):
        identical += verdict.startswith("identical")
        print(f"{case.name:36}  {seconds:5.1f} s  {verdict}", flush=True)
    print(f"{identical} of {len(cases)} cases are identical ({time.perf_counter() - start:.0f} s)")
    raise SystemExit(identical != len(cases))


if __name__ == "__main__":
    main()
