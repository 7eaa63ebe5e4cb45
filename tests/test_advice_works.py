"""Advice of ``train.py`` is followed: an input causes the message, and the advised settings end the refusal.

The command that follows the advice is the neighboring input, which does not cause the message.
"""

import ast
import json
import logging
import re
import shlex
import shutil
from pathlib import Path
from string import Template

import pytest
import torch
from transformers import BertConfig, BertModel

from contrastive_encoders.cli import compare, evaluate
from contrastive_encoders.cli.preview import run as preview
from contrastive_encoders.core import InputError, OutputError
from contrastive_encoders.core.errors import TrainingError
from contrastive_encoders.training.api import train
from tests.advice import advice, followed
from tests.damage import flip
from tests.decoders import save_decoder
from tests.in_process import run_here
from tests.test_command_advice import REFUSED as COMMANDS
from tests.test_printed_commands import BAD_ROWS

NOUNS = "ferry harbor violin bread comet orchard telescope spoon market clock river glass".split()
SIZES = ["tiny.vocab_size=300", "tiny.hidden_size=16", "tiny.layers=1", "tiny.heads=2", "tiny.intermediate_size=16"]
TINY = ["backbone=tiny", *SIZES, "tiny.max_length=64", "batch_size=4", "max_steps=1", "few_rows_epochs=null"]
SENTENCES = [*TINY, "model=simcse", "data=sentences", "data.path=$sentences"]
PAIRS = [*TINY, "model=pairs", "data=qa", "data.path=$pairs"]
TRIPLETS = [*TINY, "model=pairs", "data=triplets", "data.path=$triplets"]
SCORED = [*TINY, "model=cosent", "data=dino", "data.path=$scored"]
SPANS = [*TINY, "model=declutr", "data=text", "data.path=$documents", "data.min_span=4", "data.max_span=16"]
STAGES = [*TRIPLETS, "+stages.a.max_steps=1", "+stages.b.max_steps=1"]
TRIPLETS = ["model=pairs", "data=triplets", "data.path=$triplets"]
MIXTURE = [*TINY, "model=pairs", "data=mixture", "data.parts.a.data=qa", "data.parts.a.path=$pairs"]
MIXTURE += ["data.parts.b.data=triplets", "data.parts.b.path=$triplets"]


@pytest.fixture(scope="module")
def files(tmp_path_factory, corpus_file, tiny_bert, tiny_t5, small_tables):
    """Inputs, by their placeholders in the tables below."""
    folder = tmp_path_factory.mktemp("inputs")
    texts = [f"The {one} is by the {other}." for one in NOUNS for other in NOUNS if one != other][:60]
    short = {"question": [f"Where is {text}" for text in texts], "answer": texts}
    tables = {
        "pairs": [short["question"], short["answer"]],
        "triplets": [short["question"], short["answer"], texts[::-1]],
        "scored": [texts, texts[::-1], [str(n % 5 / 4) for n in range(len(texts))]],
    }
    found = {"sentences": folder / "sentences.txt", "documents": corpus_file, "tables": small_tables}
    found |= {"bert": tiny_bert, "t5": tiny_t5, "llama": save_decoder("llama", folder / "llama")}
    found["pooled"] = shutil.copytree(tiny_bert, folder / "pooled")
    with torch.random.fork_rng(devices=[]):
        BertModel(BertConfig.from_pretrained(tiny_bert)).save_pretrained(found["pooled"])
    found["sentences"].write_text("\n".join(texts) + "\n")
    for name, columns in tables.items():
        found[name] = folder / f"{name}.tsv"
        heads = ("text_a", "text_b", "label") if name == "scored" else ("anchor", "positive", "negative")
        rows = [heads[: len(columns)], *zip(*columns, strict=True)]
        found[name].write_text("".join("\t".join(row) + "\n" for row in rows))
    lines = {
        "gaps": ["question,answer", *(f"Where is {text},{text if n else ''}" for n, text in enumerate(texts))],
        "sorted": ["question,answer", *(f"Is {n} even?,{'yes' if n < 25 else 'no'}" for n in range(50))],
        "split": ["question,answer,split", *(f"Where is {text},{text},other" for text in texts)],
    }
    for name, written in lines.items():
        found[name] = folder / f"{name}.csv"
        found[name].write_text("\n".join(written) + "\n")
    found["single"] = folder / "single.csv"
    found["single"].write_text("\n".join(["Frage", *(f"Where is {text}?" for text in texts)]) + "\n")
    lines = found["pairs"].read_text().splitlines()
    found["twice"] = folder / "twice.tsv"
    found["twice"].write_text("\n".join([*lines, *(line.replace("by", "near") for line in lines[1:])]) + "\n")
    found["broken"] = folder / "broken.jsonl"
    rows = [json.dumps({"question": f"Where is {text}", "answer": text}) for text in texts]
    found["broken"].write_text("\n".join(row[:20] if n % 5 == 4 else row for n, row in enumerate(rows)) + "\n")
    found["uneven"] = folder / "uneven.jsonl"
    rows = [
        {"query": f"Where is {text}", "pos": [text], "neg": texts[n : n + 1 + n % 2]}
        for n, text in enumerate(texts[:50], 3)
    ]
    found["uneven"].write_text("".join(json.dumps(row) + "\n" for row in rows))
    found["nli"] = folder / "nli.jsonl"
    rows = [{"premise": text, "entailment": text, "contradiction": text[::-1], "split": "train"} for text in texts]
    found["nli"].write_text("".join(json.dumps(row) + "\n" for row in rows))
    raw = [{"text_a": text, "text_b": text[::-1], "label": str(n % 3 / 2)} for n, text in enumerate(texts)]
    found["raw"] = folder / "raw.jsonl"
    found["raw"].write_text("".join(json.dumps(row) + "\n" for row in raw))
    found["notes"] = folder / "notes"
    found["notes"].mkdir()
    for n, text in enumerate(corpus_file.read_text().splitlines()):
        (found["notes"] / f"{n}.md").write_text(text)
    found["stubs"] = folder / "stubs"
    found["stubs"].mkdir()
    (found["stubs"] / "a.txt").write_text("short text\n")
    return {name: str(path) for name, path in found.items()}


@pytest.fixture
def said(files, tmp_path, caplog, monkeypatch):
    """Train with these arguments in this process; return the refusal, and the log."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("contrastive_encoders.training.finish.draw_curve", lambda *_, **__: None)
    caplog.set_level(logging.INFO)

    def run(arguments):
        caplog.clear()
        arguments = [Template(argument).safe_substitute(files, here=tmp_path) for argument in arguments]
        arguments = [f"output_dir={tmp_path / 'run'}", "quiet=true", *arguments]
        try:
            train(overrides=list({argument.lstrip("+").partition("=")[0]: argument for argument in arguments}.values()))
        except (InputError, OutputError, TrainingError) as error:
            return str(error), caplog.text
        return None, caplog.text

    return run


# id of the advice; arguments that cause the message; advised arguments, or {text of the message: arguments to run}
REFUSED = [
    (
        "contrastive_encoders.training.checks:check_model_and_data#1",
        [*TINY, "data=sentences", "data.path=$sentences"],
        {"model=simcse": "model=simcse"},
    ),
    (
        "contrastive_encoders.training.checks:check_model_and_data#2",
        [*TINY, "model=reranker", "data=triplets", "data.path=$triplets", "data.prompts='query: '"],
        ["data.prompts=null"],
    ),
    (
        "contrastive_encoders.training.checks:check_average",
        [*PAIRS, "initial_weights_fraction=0.5", "model.lora.rank=2"],
        ["initial_weights_fraction=null"],
    ),
    (
        "contrastive_encoders.training.checks:check_values#1",
        [*PAIRS, "batch_size=null"],
        {"batch_size=64": "batch_size=64 data.path=$twice"},
    ),
    (
        "contrastive_encoders.training.checks:check_values#2",
        [*PAIRS, "backbone=null"],
        {"backbone=tiny": "backbone=tiny"},
    ),
    (
        "contrastive_encoders.training.checks:check_device",
        [*SENTENCES, "precision=fp16"],
        {"precision=bf16": "precision=bf16", "fp32": "precision=fp32"},
    ),
    (
        "contrastive_encoders.training.checks:check_scoring#1",
        [*SENTENCES, "evaluation.during_training=sts", "evaluation.every_n_steps=1"],
        ["evaluation.every_n_steps=null"],
    ),
    ("contrastive_encoders.training.checks:check_scoring#2", [*SENTENCES, "early_stopping=2"], ["monitor=train/loss"]),
    (
        "contrastive_encoders.training.checks:check_scoring#2",
        [*SENTENCES, "early_stopping=2", "evaluation.data_root=$tables"],
        {"a score and evaluation.every_n_steps": "monitor=stsb-dev/cosine/spearman evaluation.every_n_steps=1"},
    ),
    (
        "contrastive_encoders.training.checks:check_scoring#3",
        [*SENTENCES, "monitor=stsb-dev/cosine/spearman", "evaluation.data_root=$tables"],
        {"evaluation.every_n_steps": "evaluation.every_n_steps=1", "monitor=null": "monitor=null"},
    ),
    (
        "contrastive_encoders.encoders.sentence_encoder:check_decoder",
        [*SENTENCES, "model.pooling=first_decoder"],
        ["model.pooling=mean", "model.pooling=cls"],
    ),
    (
        "contrastive_encoders.encoders.loading.bert_pooler:shipped_pooler",
        [*PAIRS, "backbone=$bert", "model.pooling=pooler_output"],
        ["model.pooling=cls", "model.pooling=mean"],
    ),
    (
        "contrastive_encoders.encoders.loading.bert_pooler:shipped_pooler",
        [*PAIRS, "backbone=$llama", "model.pooling=pooler_output"],
        ["model.pooling=mean"],
    ),
    (
        "contrastive_encoders.encoders.attention:check_first_token",
        [*PAIRS, "backbone=$llama", "model.pooling=cls"],
        ["model.pooling=mean", "model.attention=bidirectional"],
    ),
    (
        "contrastive_encoders.encoders.loading.backbones:load_masked_lm",
        [*SPANS, "backbone=$llama", "model.mask_token=</s>", "model.mlm_weight=1"],
        ["model.attention=bidirectional", "model.mlm_weight=0"],
    ),
    (
        "contrastive_encoders.encoders.loading.backbones:_no_head",
        [*SPANS, "backbone=$t5", "model.mlm_weight=1"],
        ["model.mlm_weight=0"],
    ),
    (
        "contrastive_encoders.encoders.objectives.simcse:SimCSE.__init__#1",
        [*SENTENCES, "model.pooling=pooler_output", "model.mlp_only_train=false"],
        ["model.pooling=cls"],
    ),
    (
        "contrastive_encoders.encoders.objectives.simcse:SimCSE.__init__#1",
        [*SENTENCES, "model.pooling=cls_before_pooler", "model.mlp_only_train=false"],
        ["model.pooling=cls", "model.mlp_only_train=true"],
    ),
    (
        "contrastive_encoders.encoders.objectives.simcse:SimCSE.__init__#2",
        [*SENTENCES, "model.matryoshka=[16,8]", "model.mlp_only_train=true"],
        ["model.mlp=false", "model.mlp_only_train=false"],
    ),
    (
        "contrastive_encoders.encoders.objectives.simcse:SimCSE.views#1",
        [*SENTENCES, "data.deletion_ratio=0.6"],
        ["data.deletion_ratio=null", "model=tsdae"],
    ),
    (
        "contrastive_encoders.encoders.objectives.simcse:SimCSE.views#2",
        [*SENTENCES, "backbone=$bert"],
        ["model.dropout=0.1"],
    ),
    (
        "contrastive_encoders.encoders.objectives.declutr:_check_metric_loss",
        [*SPANS, "model.guide=$bert", "model.metric_loss=NTXentLoss"],
        ["model.guide=null"],
    ),
    (
        "contrastive_encoders.encoders.objectives.declutr:_check_metric_loss",
        [*SPANS, "model.guide=$bert", "model.contrastive_weight=0"],
        ["model.guide=null"],
    ),
    (
        "contrastive_encoders.encoders.objectives.reranker:Reranker.check_batch#1",
        [*SCORED, "model=reranker", "model.loss=listwise"],
        ["model.loss=binary"],
    ),
    (
        "contrastive_encoders.encoders.objectives.reranker:Reranker.check_batch#3",
        [*TINY, "model=reranker", "data=triplets", "data.path=$uneven"],
        ["model=pairs"],
    ),
    (
        "contrastive_encoders.encoders.lengths:length_to_train",
        [*PAIRS, "model.max_length=999"],
        ["model.max_length=64", "model.max_length=null"],
    ),
    (
        "contrastive_encoders.training.max_length:_refuse_longer",
        [*PAIRS, "data.max_length=999"],
        ["data.max_length=64"],
    ),
    (
        "contrastive_encoders.training.max_length:_refuse_longer",
        [*PAIRS, "model.max_length=32", "data.max_length=48"],
        {"data.max_length=32": "data.max_length=32", "model.max_length": "model.max_length=64"},
    ),
    (
        "contrastive_encoders.training.teacher:check_teacher_keys#1",
        [*PAIRS, "evaluation.compare_with_teacher=true"],
        ["evaluation.compare_with_teacher=false"],
    ),
    (
        "contrastive_encoders.training.teacher:check_teacher_keys#2",
        [*SPANS, "model.teacher=$bert"],
        ["model.teacher=null"],
    ),
    (
        "contrastive_encoders.training.teacher:learn_from_teacher",
        [*TINY, "model=pairs", "data=triplets", "data.path=$uneven", "model.teacher=$bert"],
        ["model.teacher=null"],
    ),
    (
        "contrastive_encoders.encoders.loading.trainable:TrainableEncoder.load#1",
        [*TINY[1:], *TRIPLETS, "backbone=$bert", "model.lora.rank=2", "model.keep_layers=[0]"],
        ["model.keep_layers=[0] model.lora.rank=null model.lr=0 max_steps=1"],
    ),
    # data
    (
        "contrastive_encoders.datamodules.documents:DocumentSpans._check#1",
        [*SPANS, "data.prompts={query: 'q '}"],
        ["data.prompts={}"],
    ),
    (
        "contrastive_encoders.datamodules.documents:DocumentSpans._check#2",
        [*SPANS, "data.min_document_length=40"],
        {"data.max_span (to 10)": "data.max_span=10", "data.max_span=auto": "data.max_span=auto"},
    ),
    (
        "contrastive_encoders.datamodules.store.tokenization:LongDocuments.nothing_kept#1",
        [*TINY, "model=declutr", "data=text", "data.path=$sentences"],
        ["model=simcse data=sentences"],
    ),
    (
        "contrastive_encoders.datamodules.store.tokenization:LongDocuments.nothing_kept#2",
        [*SPANS, "data.min_document_length=4000"],
        ["data.max_span=auto data.min_document_length=null"],
    ),
    (
        "contrastive_encoders.datamodules.store.tokenization:LongDocuments.nothing_kept#2",
        [*SPANS, "data.max_span=900"],
        ["data.max_span=auto data.min_document_length=null"],
    ),
    (
        "contrastive_encoders.datamodules.documents:TextDocuments.open_documents",
        [*SPANS, "data.held_out_fraction=0.1"],
        ["data.held_out_fraction=0", "experiment=improve model=pairs"],
    ),
    (
        "contrastive_encoders.datamodules.mixture:Mixture.__init__",
        [*TINY, "model=pairs", "data=mixture"],
        {
            "data.parts.NAME.data=triplets data.parts.NAME.path=FILE": "data.parts.a.data=triplets "
            "data.parts.a.path=$triplets"
        },
    ),
    (
        "contrastive_encoders.datamodules.sampling.interleaving:shares",
        [*MIXTURE, "data.weights.a=1"],
        ["data.weights.b=1"],
    ),
    (
        "contrastive_encoders.datamodules.sampling.mixed_batches:check_alike",
        [*MIXTURE, "data.homogeneous=false"],
        ["data.homogeneous=true"],
    ),
    (
        "contrastive_encoders.training.compose:_parts",
        [*TINY, "model=pairs", "data=mixture", "data.parts.a.path=$triplets"],
        ["data.parts.a.data=triplets"],
    ),
    (
        "contrastive_encoders.datamodules.sampling.example_order:check_batch_size",
        [*SENTENCES, "batch_size=61"],
        ["batch_size=60"],
    ),
    (
        "contrastive_encoders.datamodules.scored_pairs:decide#2",
        [*SCORED, "data.postprocess=on", "batch_size=16"],
        ["data.postprocess=off", "data.smoothing=0"],
    ),
    (
        "contrastive_encoders.datamodules.nli_generation:NLIGeneration._check",
        [*TINY, "model=gense_generator", "data=nli_generation", "data.path=$nli", "data.dev_split=train"],
        {"data.dev_path=FILE": "data.dev_path=$nli"},
    ),
    (
        "contrastive_encoders.datamodules.passages:PassageRows.__iter__",
        [*TINY, "model=pairs", "experiment=improve", "data=text", "data.path=$stubs"],
        {"data=qa data.path=FILE": "data=qa data.path=$pairs"},
    ),
    (
        "contrastive_encoders.datamodules.sources.row_filter:RowFilter._unusable_row",
        [*PAIRS, "data.path=$gaps"],
        ["data.on_error=skip"],
    ),
    (
        "contrastive_encoders.datamodules.sources.row_filter:RowFilter.check",
        [*PAIRS, "data.path=$broken", "data.on_error=skip"],
        ["data.max_skipped=0.2"],
    ),
    (
        "contrastive_encoders.datamodules.sources.row_filter:RowFilter._refuse_nothing",
        [*PAIRS, "data.path=$split", "data.split=test"],
        {"data.split=NAME": "data.split=other"},
    ),
    (
        "contrastive_encoders.datamodules.sources.records:RecordSource._columns_hint",
        [*PAIRS, "data.path=$single"],
        {
            "model=simcse model.dropout=0.1 data=sentences": "model=simcse model.dropout=0.1 data=sentences "
            "data.columns=[Frage]"
        },
    ),
    (
        "contrastive_encoders.io.atomic:translate_write_errors",
        [*PAIRS, "data.cache_dir=/sys/cache"],
        {"data.cache_dir=FOLDER": "data.cache_dir=$here/cache"},
    ),
    (
        "contrastive_encoders.io.file_discovery:_list_folder",
        [*PAIRS, "data.path=$notes"],
        {"data=text": "model=declutr data=text data.min_span=4 data.max_span=16"},
    ),
    (
        "contrastive_encoders.io.file_discovery:_unknown_format_error",
        [*PAIRS, "data.path=$notes/0.md"],
        {"data=text": "model=declutr data=text data.path=$notes data.min_span=4 data.max_span=16"},
    ),
    (
        "contrastive_encoders.io.file_discovery:_missing_path_error",
        [*PAIRS, "data.path=$pairs,$sorted"],
        {"data.path=[": "data.path=[$pairs,$sorted]"},
    ),
    (
        "contrastive_encoders.io.file_discovery:list_files",
        [*PAIRS, "data.path=[]"],
        {"data.path=FILE_OR_FOLDER": "data.path=$pairs"},
    ),
    (
        "contrastive_encoders.io.file_discovery:_each_path",
        [*PAIRS, "data.path="],
        {"data.path=FILE_OR_FOLDER": "data.path=$pairs"},
    ),
    (
        "contrastive_encoders.training.usable_negatives:_no_gradient",
        [*PAIRS, "data.path=$sorted", "batch_size=2"],
        ["batch_size=50"],
    ),
    # stages
    (
        "contrastive_encoders.training.compose:unknown_stage",
        [*SENTENCES, "stages.c.max_steps=1"],
        {"+stages.c.KEY=VALUE": "~stages.c.max_steps +stages.c.max_steps=1"},
    ),
    (
        "contrastive_encoders.training.compose:unknown_stage",
        [*STAGES, "stages.c.max_steps=1"],
        {"+stages.c.KEY=VALUE": "~stages.c.max_steps +stages.c.max_steps=1"},
    ),
    (
        "contrastive_encoders.training.run_setup:_refuse_lost_pooling",
        [*STAGES, "backbone=$pooled", "+stages.b.model.pooling=pooler_output"],
        ["stages.a.model.pooling=pooler_output"],
    ),
    ("contrastive_encoders.training.run_setup:prepare_multi_stage_run", [*STAGES, "resume=$pairs"], ["resume=auto"]),
    (
        "contrastive_encoders.training.compose:unknown_stage",
        [*SENTENCES, "only_stage=a"],
        {"+stages.a.KEY=VALUE": "+stages.a.max_steps=1"},
    ),
    (
        "contrastive_encoders.training.run_setup:_refuse_lost_head",
        [*SPANS, "model.mlm_weight=0", "+stages.a.max_steps=1", "+stages.b.max_steps=1", "stages.b.model.mlm_weight=1"],
        ["stages.b.model.mlm_weight=0"],
    ),
]


def cases(table):
    return [pytest.param(*row, marks=pytest.mark.advice(row[0]), id=f"{row[0]}-{at}") for at, row in enumerate(table)]


@pytest.mark.rotates
@pytest.mark.parametrize(("name", "arguments", "advised"), cases(REFUSED))
def test_a_refused_run_continues_as_advised(name, arguments, advised, said):
    pattern = advice()[name].pattern
    message, _ = said(arguments)
    assert pattern.search(str(message)), message
    for shown, taken in advised.items() if isinstance(advised, dict) else zip(advised, advised, strict=True):
        assert shown in message
        assert said(followed(arguments, taken))[0] is None
        shutil.rmtree("run")


# id of the advice; arguments whose run logs it; the advised arguments
LOGGED = [
    (
        "contrastive_encoders.datamodules.documents:DocumentSpans._report#3",
        [*SPANS, "data.max_span=80", "data.min_document_length=null"],
        ["data.max_span=64"],
    ),
    (
        "contrastive_encoders.datamodules.scored_pairs:decide#1",
        [*SCORED, "data.path=$raw", "data.postprocess=off", "batch_size=16"],
        ["data.postprocess=auto"],
    ),
]


@pytest.mark.parametrize(("name", "arguments", "advised"), cases(LOGGED))
def test_a_run_logs_no_advice_once_it_is_followed(name, arguments, advised, said):
    pattern = advice()[name].pattern
    refused, log = said(arguments)
    assert refused is None
    [message] = [line for line in log.splitlines() if pattern.search(line)]
    for one in advised:
        assert one in message
        shutil.rmtree("run")
        refused, log = said(followed(arguments, one))
        assert refused is None
        assert not pattern.search(log)


@pytest.mark.advice("contrastive_encoders.comparison.arms:_evaluation")
def test_a_run_without_scores_is_compared_once_it_was_scored_as_advised(files, said):
    assert said(SENTENCES)[0] is None
    with pytest.raises(InputError) as refused:
        run_here("compare", compare.run, ["runs=[run]", "output=comparison"])
    command, name = re.search(r"contrastive-encoders evaluate (.*), .* (\S+) to runs\.$", str(refused.value)).groups()
    arguments = shlex.split(command.replace("EVAL", files["tables"]))
    run_here("evaluate", evaluate.run, arguments)
    run_here("compare", compare.run, [f"runs=[{name}]", "output=comparison"])


@pytest.mark.advice("contrastive_encoders.cli.preview:run")
def test_a_preview_shows_the_selected_stage(files, capsys):
    arguments = [Template(argument).substitute(files) for argument in STAGES]
    preview(arguments)
    shown = capsys.readouterr().out
    assert re.search(r"[Ss]tage a\b.* only_stage=NAME", shown)
    preview([*arguments, "only_stage=b"])
    assert re.search(r"[Ss]tage b\b.* only_stage=NAME", capsys.readouterr().out)


@pytest.mark.advice("contrastive_encoders.datamodules.documents:DocumentSpans._report#1")
def test_texts_that_are_too_short_for_automatic_spans_are_sentences(said, tmp_path):
    arguments = [*SPANS, f"data.path={tmp_path / 'short.txt'}", "data.max_span=auto", "quiet=false"]
    texts = [" ".join(NOUNS * 40), *(f"{' '.join(NOUNS[:4])} {n}" for n in range(30))]
    (tmp_path / "short.txt").write_text("".join(f"{text}\n" for text in texts * 4))
    refused, log = said(arguments)
    assert refused is None
    [(dropped, advised)] = re.findall(r"dropped (\d+) .* (model=simcse data=sentences) ", log)
    assert int(dropped) == 120
    shutil.rmtree("run")
    kept = [override for override in arguments if "_span=" not in override]
    assert said(followed(kept, advised))[0] is None


@pytest.mark.advice("contrastive_encoders.datamodules.documents:DocumentSpans._report#2")
def test_short_documents_are_kept_with_the_span_of_the_message(said, tmp_path):
    arguments = [*SPANS, f"data.path={tmp_path / 'short.txt'}", "data.max_span=60", "quiet=false"]
    texts = [" ".join(NOUNS * 40), *(" ".join(NOUNS * 2) for _ in range(20))]
    (tmp_path / "short.txt").write_text("".join(f"{text} {n}\n" for n, text in enumerate(texts * 4)))
    refused, log = said(arguments)
    assert refused is None
    [(dropped, advised)] = re.findall(r"dropped (\d+) .* (data\.max_span=auto) ", log)
    shutil.rmtree("run")
    refused, log = said(followed(arguments, advised))
    assert refused is None
    assert int(dropped) > sum(map(int, re.findall(r"dropped (\d+) ", log)))


@pytest.mark.advice("contrastive_encoders.datamodules.store.token_store:TokenStore._damaged")
def test_a_damaged_token_store_is_rebuilt_as_advised(said, tmp_path):
    arguments = [*SENTENCES, f"data.cache_dir={tmp_path / 'cache'}"]
    assert said(arguments)[0] is None
    shutil.rmtree("run")
    [offsets] = Path("cache").rglob("offsets.bin")
    intact = offsets.read_bytes()
    flip(offsets, at=0.2, count=64)
    refused, _ = said(arguments)
    assert str(offsets.parent) in refused
    [advised] = re.findall(r"Set (verify=true)", refused)
    assert said(followed(arguments, advised))[0] is None
    assert offsets.read_bytes() == intact


# Advice that no test follows, and why
UNTESTED = {
    "contrastive_encoders.cli.completion:FISH": "a script for a shell that is not installed everywhere",
    "contrastive_encoders.cli.completion:ZSH": "a script for a shell that is not installed everywhere",
    "contrastive_encoders.core.runtime.exit_codes:_server_error": "W&B's server fails; its login tests the setting",
    "contrastive_encoders.io.installed_models:find_installed": "pip would download a package again",
}


def test_all_other_advice_is_followed_by_a_test():
    marked = set[str]()
    for path in Path(__file__).parent.rglob("test_*.py"):
        calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
        advised = [call for call in calls if getattr(call.func, "attr", "") == "advice"]
        marked |= {one.value for call in advised for one in call.args if isinstance(one, ast.Constant)}
    marked |= {name for name, *_ in [*REFUSED, *LOGGED, *COMMANDS, *BAD_ROWS]}
    assert marked <= advice().keys()
    assert advice().keys() - marked == UNTESTED.keys()
