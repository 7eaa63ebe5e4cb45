"""``recipe=queries`` as a command, with a toy model; and common prefixes of prompts, read once."""

import csv
import gzip
import json
import re
import shlex
import shutil
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_dir
from transformers import AutoModelForCausalLM, AutoTokenizer

import contrastive_encoders.cli.generate as command
from contrastive_encoders.cli.compare import plain
from contrastive_encoders.cli.hydra_main import config_of
from contrastive_encoders.cli.main import adapt_arguments
from contrastive_encoders.comparison.race_data import commands_of
from contrastive_encoders.core import InputError
from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.evaluation.custom_tasks.beir import find_sets, read_set
from contrastive_encoders.evaluation.tasks.retrieval import RetrievalTask
from contrastive_encoders.synthesis.decoding.generator import group_similar, load_generator
from contrastive_encoders.synthesis.questions.rules import UNANSWERED
from contrastive_encoders.synthesis.recipes.queries import WrittenQuestions
from contrastive_encoders.synthesis.rules.filters import FEW_WORDS
from contrastive_encoders.synthesis.shards.store import SynthesisError, shard_name
from contrastive_encoders.training.composition.config_files import CONFIGS
from contrastive_encoders.training.composition.config_store import compose_config
from tests.synthesis.commands import here, refusal, rows_of, start
from tests.synthesis.conftest import families
from tests.synthesis.openai_server import Stand
from tests.synthesis.test_questions import story
from tests.synthesis.test_synthesis_command import write_toy_generator

PROMPTS = """
styles:
  keywords: "Title: {heading}\\nText: {passage}\\nQuery:"
  question: "Title: {heading}\\nText: {passage}\\nAsked:"
judge: {prefix: "Text: ", between: "\\nQuestion: ", suffix: "\\nAnswer: ", "yes": "Yes", "no": "No"}
"""
TOPICS = [f"topic{letter}" for letter in "abcdefghijklmnop"]
CHAT = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<answer>{% endif %}"  # noqa: E501
OPEN = ["rules.max_rank=null", "rules.max_copied=null", "rules.max_from_prompt=null", "rules.duplicates=false"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("queries")
    write_toy_generator(folder / "lm", quote=-4.0, positions=1024)
    model = AutoModelForCausalLM.from_pretrained(folder / "lm")
    tokenizer = AutoTokenizer.from_pretrained(folder / "lm")
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(folder / "lm")
    newline = tokenizer("\n")["input_ids"][0]
    with torch.no_grad():
        model.lm_head.weight[newline, 0] = 2.5  # most texts end
    model.save_pretrained(folder / "lm")
    (folder / "prompts.yaml").write_text(PROMPTS)
    rows = [{"_id": f"d{n}", "title": f"On {topic}", "text": story(topic)} for n, topic in enumerate(TOPICS)]
    rows[3] |= {"title": "<script>alert(1)</script>", "text": f"<img src=x onerror=alert(2)> =1+1 {story('script')}"}
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def overrides_for(place, output, *overrides):
    given = [f"generator={place / 'lm'}", f"input={place / 'corpus.jsonl'}", f"output={output}"]
    small = ["passages.max_words=30", "passages.min_words=5", "shard_size=8", "max_new_tokens=12", "precision=fp32"]
    prompts = [f"+prompts.file={place / 'prompts.yaml'}", "seed=3"]
    return ["recipe=queries", *given, *small, *prompts, "device=cpu", "quiet=true", "chat_template=true", *overrides]


def planned_recipe(overrides):
    cfg = compose_config("generate", overrides)
    recipe = config_of(cfg, command.kind_of(cfg))
    recipe.plan()
    return recipe


def unpacked(path):
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


@pytest.fixture(scope="module")
def written(place, tiny_bert):
    """The output of one undisturbed process."""
    here(*overrides_for(place, place / "out", f"encoder={tiny_bert}", "negative_margin=0", *OPEN))
    return place / "out"


def without_p(row):
    return {name: value for name, value in row.items() if name != "p_yes"}


def contents(folder):
    """Return the contents of all files that depend on the seed."""
    names = ["pairs.jsonl.gz", "train.jsonl.gz", "candidates.jsonl.gz", "held_out/queries.jsonl", "annotation.csv"]
    shards = sorted(path.relative_to(folder) for path in folder.rglob("shard-*.jsonl"))
    return {str(name): (folder / name).read_bytes() for name in [*shards, *names]}


@pytest.mark.parametrize("family", list(families(9, 0)))
def test_prompts_that_begin_alike_are_read_once_to_the_same_end(toy_generator, family):
    """The truth is each prompt alone; lengths of prefixes and suffixes vary."""
    generator = toy_generator(family)
    draw = np.random.default_rng(1)
    head = draw.integers(5, 200, 70).tolist()
    passages = [draw.integers(5, 200, size).tolist() for size in (3, 17, 9)]
    groups = [[[*head, *passage, *draw.integers(5, 200, size).tolist()] for size in (1, 4)] for passage in passages]
    rows = [row for group in groups for row in group]
    assert list(group_similar(rows)) != [[row] for row in rows]
    with torch.inference_mode():
        alone = torch.cat([generator.first_logits([row]) for row in rows])
        begun = generator.begin(rows)
        assert begun.lengths_R.tolist() == [len(row) for row in rows]
        near = {"rtol": 1e-4, "atol": 2e-6} if family == "bloom" else {}  # its distance biases are float32
        torch.testing.assert_close(begun.logits_RV, alone, **near)
        assert (generator.shared(rows) == 64) == (family != "mistral"), "its window would count gaps"
        if not generator.has_window:
            torch.testing.assert_close(generator.of_groups(groups)[1], alone, **near)
        for place, row in enumerate(rows):
            for layer, wanted in zip(begun.layers, generator.begin([row]).layers, strict=True):
                for part, other in zip(layer, wanted, strict=True):
                    torch.testing.assert_close(part[place, :, -len(row) :], other[0], **near)


def test_every_question_is_kept_with_its_scores_and_judged_as_a_plain_pass_does(place, written):
    rows = rows_of(written / "scored")
    passages = [json.loads(line) for line in (written / "held_out/corpus.jsonl").read_text().splitlines()]
    assert len(rows) == 2 * len(passages)
    tokenizer = AutoTokenizer.from_pretrained(place / "lm")
    model = AutoModelForCausalLM.from_pretrained(place / "lm").eval()
    yes, no = (tokenizer(word)["input_ids"][0] for word in ("Yes", "No"))
    judged = [row for row in rows if row["text"]]
    assert len(judged) > len(passages)
    assert all(row["p_yes"] is None for row in rows if not row["text"])
    for row in judged[:12]:
        one = passages[row["passage"]]
        text = tokenizer.decode(tokenizer(f"{one['title']} {one['text']}")["input_ids"][:160])
        ids = tokenizer(f"<user>Text: {text}\nQuestion: {row['text']}\n<answer>Answer: ", return_tensors="pt")[
            "input_ids"
        ]
        with torch.no_grad():
            wanted = model(ids).logits[0, -1, [yes, no]].softmax(0)[0]
        assert row["p_yes"] == pytest.approx(float(wanted), abs=2e-6)
    found = unpacked(written / "candidates.jsonl.gz")
    assert [one["text"] for one in found] == [row["text"] for row in rows]
    assert {"kept"} < {one["fate"] for one in found} <= {"kept", "cut off", FEW_WORDS, "empty"}


def test_no_text_of_a_held_out_document_is_trained_on(written):
    found = unpacked(written / "candidates.jsonl.gz")
    parts = {one["document"]: one["part"] for one in found}
    assert set(parts.values()) == {"train", "dev", "held_out"}
    corpus = {row["_id"]: row for row in map(json.loads, (written / "development/corpus.jsonl").open())}
    whole = {f"{row['title']} {row['text']}": key for key, row in corpus.items()}
    part_of = {one["passage"]: one["part"] for one in found}
    document_of = {one["passage"]: one["document"] for one in found}
    rows = unpacked(written / "train.jsonl.gz")
    assert rows
    for row in rows:
        texts = [row[name] for name in ("positive", "negative_1", "negative_2", "negative_3")]
        assert {part_of[whole[text]] for text in texts} == {"train"}
        assert document_of[whole[texts[0]]] not in {document_of[whole[text]] for text in texts[1:]}
    for part, directory in (("dev", "development"), ("held_out", "held_out")):
        asked = [json.loads(line) for line in (written / directory / "queries.jsonl").read_text().splitlines()]
        kept = [one["id"] for one in found if one["part"] == part and one["fate"] == "kept"]
        assert [one["_id"] for one in asked] == kept != []


def test_the_held_out_folder_scores_as_the_librarys_evaluator_does(written, tiny_bert):
    """nDCG@10 of both is equal to six decimals."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.evaluation import InformationRetrievalEvaluator

    folder = written / "held_out"
    corpus = {one["_id"]: one for one in map(json.loads, (folder / "corpus.jsonl").read_text().splitlines())}
    queries = {one["_id"]: one["text"] for one in map(json.loads, (folder / "queries.jsonl").read_text().splitlines())}
    with (folder / "qrels/test.tsv").open() as file:
        relevant = {row["query-id"]: {row["corpus-id"]} for row in csv.DictReader(file, delimiter="\t")}
    texts = {key: f"{one['title']} {one['text']}" for key, one in corpus.items()}
    library = InformationRetrievalEvaluator(queries, texts, relevant, write_csv=False, ndcg_at_k=[10])
    model = SentenceTransformer(str(tiny_bert), device="cpu")
    wanted = library(model)["cosine_ndcg@10"]
    task = read_set("held_out", find_sets(folder, None, {})[""])
    encoder = load_encoder(str(tiny_bert), device="cpu")
    asked, texts_there = (
        torch.nn.functional.normalize(torch.as_tensor(encoder.embed(list(some), convert_to_numpy=True)).double())
        for some in (task.queries, task.documents)
    )
    found = RetrievalTask(task).scores("cosine", lambda begin, end: asked[begin:end] @ texts_there.T, intervals=False)
    assert found["held_out/cosine/ndcg@10"].value / 100 == pytest.approx(wanted, abs=1e-6)


def test_a_shard_is_the_same_whoever_writes_it_and_after_whatever_others(place, written):
    """The work items of a worker are run by hand, with the last shards first."""
    generator = load_generator(str(place / "lm"), device="cpu", chat_template=True)
    recipe = planned_recipe(overrides_for(place, place / "elsewhere", *OPEN, "negatives=0"))
    for stage, folder in ((recipe.written, "written"), (recipe.scored, "scored")):
        inputs = (
            WrittenQuestions(written / "written", recipe.collection.passages, 8) if folder == "scored" else stage.inputs
        )
        tasks = list(replace(stage, inputs=inputs).tasks(range(stage.shards)))
        found = {number: made.lines for number, made in stage.work(generator, iter(tasks[::-1])) if number is not None}
        assert len(found) == stage.shards > 2
        for number, lines in found.items():
            assert lines == (written / folder / shard_name(number)).read_bytes()


def test_a_data_set_of_more_documents_takes_what_an_earlier_one_has_and_equals_one_from_nothing(
    place, written, tiny_bert, tmp_path
):
    rows = (place / "corpus.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "some.jsonl").write_text("".join(rows[::2]))
    common = [f"encoder={tiny_bert}", "negative_margin=0", *OPEN]
    some = [f"input={tmp_path / 'some.jsonl'}", f"output={tmp_path / 'some'}"]
    here(*overrides_for(place, tmp_path / "some", *common, *some))
    here(*overrides_for(place, tmp_path / "all", *common, f"reuse_from={tmp_path / 'some'}"))
    assert len(rows_of(tmp_path / "all" / "written")) < len(rows_of(written / "written"))
    for name in ("train.jsonl.gz", "held_out/queries.jsonl", "development/queries.jsonl"):
        assert (tmp_path / "all" / name).read_bytes() == (written / name).read_bytes()
    found, wanted = (unpacked(folder / "candidates.jsonl.gz") for folder in (tmp_path / "all", written))
    assert all(without_p(one) == without_p(other) for one, other in zip(found, wanted, strict=True))
    judged = [[row["p_yes"] or 0.0 for row in rows] for rows in (found, wanted)]
    np.testing.assert_allclose(*judged, atol=2e-6)  # other passages were in the same pass
    here(*overrides_for(place, tmp_path / "again", *common, f"reuse_from={tmp_path / 'all'}"))
    assert rows_of(tmp_path / "again" / "written") == []
    assert unpacked(tmp_path / "again" / "candidates.jsonl.gz") == found


def test_an_unsuitable_earlier_data_set_is_refused(place, written, tmp_path):
    with pytest.raises(InputError) as error:
        planned_recipe(overrides_for(place, tmp_path / "new", *OPEN, "negatives=0", f"reuse_from={tmp_path}"))
    assert (error.value.key, "manifest.json" in error.value.expected) == ("reuse_from", True)
    with pytest.raises(InputError) as error:
        planned_recipe(
            overrides_for(place, tmp_path / "new", *OPEN, "negatives=0", f"reuse_from={written}", "temperature=0.9")
        )
    assert (error.value.key, bool(re.search(r"temperature .*0\.9", error.value.expected))) == ("reuse_from", True)


@pytest.mark.slow  # two processes that load everything
def test_two_workers_write_what_one_writes(place, written, tiny_bert):
    here(*overrides_for(place, place / "two", f"encoder={tiny_bert}", "negative_margin=0", *OPEN, "devices=2"))
    assert contents(place / "two") == contents(written)


def test_a_killed_command_resumes_to_the_same_bytes(place, written, tiny_bert):
    overrides = overrides_for(place, place / "killed", f"encoder={tiny_bert}", "negative_margin=0", *OPEN)
    running = start(*overrides)
    running.wait_for(lambda: any((place / "killed").glob("written/shard-*.jsonl")))
    running.kill(signal.SIGKILL)
    here(*overrides)
    assert contents(place / "killed") == contents(written)


def test_other_rules_select_other_questions_without_a_model(place, written, tiny_bert, monkeypatch):
    def load(*_, **__):
        raise AssertionError("no language model is needed")

    monkeypatch.setattr("contrastive_encoders.synthesis.recipe.load_generator", load)
    before = contents(written)
    others = [f"encoder={tiny_bert}", *OPEN, "rules.max_words=6", "negatives=0", "held_out_fraction=0.4"]
    here(*overrides_for(place, written, *others))
    after = contents(written)
    assert {one for one in before if "shard" in one} == {one for one in after if "shard" in one}
    assert all(before[name] == after[name] for name in before if "shard" in name or name == "annotation.csv")
    rows = unpacked(written / "train.jsonl.gz")
    assert all(set(row) == {"anchor", "positive"} and len(row["anchor"].split()) <= 6 for row in rows)
    here(*overrides_for(place, written, f"encoder={tiny_bert}", "negative_margin=0", *OPEN))
    assert contents(written) == before
    error = refusal(*overrides_for(place, written, f"encoder={tiny_bert}", "temperature=0.9"))
    assert (error.key, bool(re.search(r"temperature .*0\.9", error.expected))) == ("output", True)


def test_a_missing_file_is_recreated_from_the_questions(place, written, tiny_bert, monkeypatch):
    before = contents(written)
    shutil.rmtree(written / "held_out")
    (written / "train.jsonl.gz").unlink()
    (written / "pairs.jsonl.gz").unlink()  # an earlier version did not write it
    monkeypatch.setattr("contrastive_encoders.synthesis.recipe.load_generator", None)
    here(*overrides_for(place, written, f"encoder={tiny_bert}", "negative_margin=0", *OPEN))
    assert contents(written) == before


@pytest.mark.parametrize("margin", [0, 0.02, 1])
def test_every_kept_question_is_a_pair_whether_or_not_it_has_negatives(
    place, written, tiny_bert, tmp_path, caplog, margin
):
    """With a margin of 1, negatives would need a cosine of at most 0."""
    folder = tmp_path / "out"
    shutil.copytree(written, folder)
    here(*overrides_for(place, folder, f"encoder={tiny_bert}", f"negative_margin={margin}", *OPEN))
    corpus = [json.loads(line) for line in (folder / "development/corpus.jsonl").read_text().splitlines()]
    text_of = {one["_id"]: f"{one['title']} {one['text']}".strip() for one in corpus}
    asked = [one for one in unpacked(folder / "candidates.jsonl.gz") if (one["fate"], one["part"]) == ("kept", "train")]
    pairs = unpacked(folder / "pairs.jsonl.gz")
    assert pairs == [{"anchor": one["text"], "positive": text_of[one["passage"]]} for one in asked] != []
    rows = unpacked(folder / "train.jsonl.gz")
    assert all({"anchor": row["anchor"], "positive": row["positive"]} in pairs for row in rows)
    assert bool(rows) is (margin < 1)
    assert any("train.jsonl.gz" in record.args for record in caplog.records) is (margin == 1)


@pytest.mark.advice("contrastive_encoders.synthesis.recipes.queries:Queries._write_outputs")
def test_few_questions_for_development_are_reported_with_a_setting_that_gives_more(
    place, written, tiny_bert, tmp_path, caplog
):
    folder, other = tmp_path / "out", tmp_path / "other"
    shutil.copytree(written, folder)
    settings = [f"encoder={tiny_bert}", "negative_margin=0", *OPEN, "rules.min_words=3"]

    def number_of_questions(output):
        return len((output / "development/queries.jsonl").read_text().splitlines())

    here(*overrides_for(place, folder, *settings))
    [message] = [record.getMessage() for record in caplog.records if "dev_fraction" in record.getMessage()]
    before = number_of_questions(folder)
    assert 0 < before < 50
    assert f"{before} question" in message
    pattern = r"set (dev_fraction=\S+) (reuse_from=\S+) with another output\. .* set (race\.questions=.*) with another"
    *advised, race = re.search(pattern, message).groups()
    here(*overrides_for(place, other, *settings), *advised)
    assert number_of_questions(other) > before
    arguments = adapt_arguments(["docs", *shlex.split(race)])[1:]
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        composed = compose("compare", [*arguments, "race.backbone=b", "race.generator=g"])
    assert set(advised) < set(commands_of(plain(composed.race)["prepare"], "")["questions"])


def test_a_part_without_questions_is_an_error_that_loses_no_data(place, written, tiny_bert, tmp_path):
    folder = tmp_path / "out"
    shutil.copytree(written, folder)
    overrides = overrides_for(place, folder, f"encoder={tiny_bert}", "negative_margin=0", *OPEN)
    error = refusal(*overrides, "rules.min_words=30")
    assert (error.location, error.key) == (str(folder), "rules")
    assert re.search(r"\btrain\b.*\bdev\b.*\bheld_out\b", error.expected)
    assert (folder / "report.html").exists()
    here(*overrides)
    assert contents(folder) == contents(written)


def test_another_judge_judges_the_same_questions_again(place, written, tiny_bert):
    overrides = overrides_for(place, written, f"encoder={tiny_bert}", "negative_margin=0", *OPEN)
    before = contents(written)
    here(*overrides, "use_judge=false")
    after = contents(written)
    assert {row["p_yes"] for row in rows_of(written / "scored")} == {None}
    assert all(before[name] == after[name] for name in before if name.startswith(("written", "train", "held_out")))
    here(*overrides)
    assert contents(written) == before


def test_documents_cannot_inject_markup_into_a_page_or_formulas_into_the_sheet(written):
    page = (written / "report.html").read_text()
    assert "<script>alert(1)" not in page
    assert "<img src=x" not in page
    corpus = (written / "held_out/corpus.jsonl").read_text()
    assert "<script>alert(1)</script>" in corpus, "the texts are unchanged"
    sheet = list(csv.DictReader((written / "annotation.csv").read_text(encoding="utf-8-sig").splitlines()))
    assert len(sheet) == 50 or len(sheet) == len(rows_of(written / "scored"))
    assert set(sheet[0]) == {"id", "style", "question", "heading", "passage", "answered"}
    assert not any(value.startswith(("=", "+", "@")) for row in sheet for value in row.values())


def test_a_persons_answers_are_counted_for_kept_questions_and_others(place, written, tmp_path):
    """Truth: the outcomes in the manifest's own file, and Wilson's interval written out."""
    folder = tmp_path / "out"
    shutil.copytree(written, folder)
    fates = {row["id"]: row["fate"] for row in unpacked(folder / "candidates.jsonl.gz")}
    key = json.loads((folder / "annotation-key.json").read_text())["key"]
    sheet = list(csv.DictReader((folder / "annotation.csv").read_text(encoding="utf-8-sig").splitlines()))
    for number, row in enumerate(sheet):
        row["answered"] = ("yes", "no", "Yes", "")[number % 4]
    filled = tmp_path / "filled.csv"
    with filled.open("w", encoding="utf-8-sig") as file:
        writer = csv.DictWriter(file, list(sheet[0]))
        writer.writeheader()
        writer.writerows(sheet)
    here(f"output={folder}", f"annotation_sheet={filled}")
    table = (folder / "annotation.md").read_text()
    kept = [row["answered"] for row in sheet if row["answered"] and fates[key[row["id"]]] == "kept"]
    yes, n = sum(answer.lower() == "yes" for answer in kept), len(kept)
    p, z = yes / n, 1.959964
    middle, half = p + z * z / (2 * n), z * (p * (1 - p) / n + z * z / (4 * n * n)) ** 0.5
    low, high = ((middle + sign * half) / (1 + z * z / n) for sign in (-1, 1))
    row = next(line for line in table.splitlines() if line.startswith("| kept, all styles"))
    assert [one.strip() for one in row.strip("|").split("|")][1:] == [
        f"{n}",
        f"{yes}",
        f"{p:.1%}",
        f"{low:.1%} to {high:.1%}",
    ]
    sheet[0]["answered"] = "perhaps"
    with filled.open("w", encoding="utf-8-sig") as file:
        writer = csv.DictWriter(file, list(sheet[0]))
        writer.writeheader()
        writer.writerows(sheet)
    error = refusal(f"output={folder}", f"annotation_sheet={filled}")
    assert (error.location, error.key, error.value) == (f"{filled}, row 2", "answered", "perhaps")
    error = refusal(f"output={folder}", "annotation_sample=5")
    assert (error.key, "questions" in error.expected) == ("output", True)


@pytest.mark.parametrize(
    ("overrides", "key", "fact"),
    [
        ([], "encoder", "encoder"),
        (["rules.max_rank=null"], "encoder", "encoder"),
        (
            ["rules.max_rank=null", "negatives=0", "passages.min_words=500", "passages.max_words=500"],
            "input",
            "500",
        ),
        (
            ["rules.max_rank=null", "negatives=0", "held_out_fraction=0.9", "dev_fraction=0.1"],
            "held_out_fraction",
            "0.1",
        ),
        (
            ["rules.max_rank=null", "negatives=0", "use_judge=false", "rules.min_p_yes=0.5"],
            "use_judge",
            "rules.min_p_yes",
        ),
        (["rules.max_rank=null", "negatives=0", "rules.max_words=1"], "rules.max_words", "rules.min_words=2"),
        (["rules.max_rank=null", "negatives=0", "passages.overlap=20"], "passages.max_words", "passages.overlap=20"),
    ],
)
def test_invalid_settings_are_refused_before_any_file_is_written(place, tmp_path, overrides, key, fact):
    error = refusal(*overrides_for(place, tmp_path / "out", *overrides))
    assert (error.key, fact in error.expected) == (key, True)
    assert not (tmp_path / "out").exists()


def test_an_estimate_measures_the_time_and_writes_no_files(place, tmp_path, caplog):
    caplog.set_level("INFO")
    here(*overrides_for(place, tmp_path / "out", "rules.max_rank=null", "negatives=0", "estimate_only=true"))
    assert "16 documents" in caplog.text
    assert re.search(r"\d minutes", caplog.text)
    assert not (tmp_path / "out").exists()


def test_the_reason_is_logged_if_few_questions_are_kept(place, tmp_path, caplog):
    overrides = overrides_for(
        place, tmp_path / "out", "rules.max_rank=null", "negatives=0", "held_out_fraction=0", "dev_fraction=0"
    )
    error = refusal(*overrides, "rules.min_p_yes=0.99")
    assert (error.key, UNANSWERED in error.value, "train" in error.expected) == ("rules", True, True)
    best = max(row["p_yes"] for row in rows_of(tmp_path / "out" / "scored") if row["text"])
    here(*overrides, f"rules.min_p_yes={best}", "rules.max_copied=null", "rules.min_words=1")
    [warning] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert warning.args[0] == tmp_path / "out"
    assert UNANSWERED in warning.args[1]


def test_only_missing_answers_are_requested_after_a_server_failure(place, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    monkeypatch.setattr("openai._base_client.MAX_RETRY_DELAY", 0.02)
    stand = Stand()
    try:
        served = ["engine=openai", f"base_url={stand.url}", "requests.max_retries=2", "requests.timeout=2"]
        served += ["requests.in_flight=2"]  # up to 2 answers can be lost
        overrides = overrides_for(place, tmp_path / "out", *served, "rules.max_rank=null", "negatives=0")
        overrides = [override for override in overrides if not override.startswith("precision")]
        stand.most_answered = 30
        with pytest.raises(SynthesisError):
            here(*overrides)
        stand.most_answered = None
        here(*overrides)
        rows = rows_of(tmp_path / "out" / "scored")
        assert len(rows) == len({(row["passage"], row["style"]) for row in rows})
        assert len(stand.answered) <= len(rows) + 2, "no answer is requested twice"
        assert all(row["text"] and row["p_yes"] is None for row in rows)
    finally:
        stand.close()


def test_another_model_of_the_server_judges_its_questions(place, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    monkeypatch.setattr("tests.synthesis.openai_server.JUDGED", {"Yes": 0.6, "No": 0.2})
    stand = Stand()
    try:
        served = ["engine=openai", f"base_url={stand.url}", "generator=some/writer", "judge=some/judge"]
        rules = ["rules.min_p_yes=0.7", "rules.max_rank=null", "negatives=0"]
        given = overrides_for(place, tmp_path / "out", *served, *rules)
        here(*(override for override in given if not override.startswith(("precision", f"generator={place}"))))
        models = {"logprobs" in body: set[str]() for body in stand.answered}
        for body in stand.answered:
            models["logprobs" in body].add(body["model"])
        assert models == {False: {"some/writer"}, True: {"some/judge"}}
        assert {row["p_yes"] for row in rows_of(tmp_path / "out" / "scored")} == {0.75}
    finally:
        stand.close()
