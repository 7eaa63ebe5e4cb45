"""``contrastive-encoders adapt DOCS``: from documents to a recommended encoder, or to none; and resuming."""

import gzip
import json
import re
import shutil
import signal

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf
from transformers import AutoModelForCausalLM, AutoTokenizer

from contrastive_encoders.cli.compare import check_texts, plain
from contrastive_encoders.cli.main import ADAPT_OUTPUT, adapt_arguments, main
from contrastive_encoders.comparison.race_data import commands_of, needed, race_overrides
from contrastive_encoders.core import InputError
from contrastive_encoders.core.override_format import format_override
from contrastive_encoders.training.composition.config_files import CONFIGS
from contrastive_encoders.training.composition.literal_values import literal_overrides
from tests.forks import Started, run_command
from tests.synthesis.test_queries import PROMPTS
from tests.synthesis.test_questions import story
from tests.synthesis.test_synthesis_command import write_toy_generator

ARMS = ("titles", "questions")
TOPICS = [f"topic{letter}" for letter in "abcdefghijklmnopqrst"]
OPEN = [
    "rules.max_rank=null",
    "rules.max_copied=null",
    "rules.max_from_prompt=null",
    "rules.duplicates=false",
    "negative_margin=0",
    "negatives=1",
    "temperature=1.5",  # the questions differ, so a batch has negatives
    "top_p=null",
]
DOCUMENTS, OUTPUT = "my documents (2)", "adapted (1)"


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder with documents and a language model of random weights."""
    folder = tmp_path_factory.mktemp("desk")
    write_toy_generator(folder / "lm", quote=-4.0, positions=1024)
    model = AutoModelForCausalLM.from_pretrained(folder / "lm")
    newline = AutoTokenizer.from_pretrained(folder / "lm")("\n")["input_ids"][0]
    with torch.no_grad():
        model.lm_head.weight[newline, 0] = 2.5  # most texts end
    model.save_pretrained(folder / "lm")
    (folder / "prompts.yaml").write_text(PROMPTS)
    (folder / DOCUMENTS).mkdir()
    for topic in TOPICS:
        (folder / DOCUMENTS / f"{topic}.md").write_text(f"# On {topic}\n\n{story(topic)}\n")
    return folder


@pytest.fixture(scope="module")
def overrides(desk, tiny_bert):
    questions = [
        "passages.max_words=30",
        "passages.min_words=5",
        "shard_size=8",
        "max_new_tokens=12",
        "precision=fp32",
        *OPEN,
    ]
    questions += [f"+prompts.file={desk / 'prompts.yaml'}", "device=cpu", "held_out_fraction=0.3", "dev_fraction=0.2"]
    left_out = [f"~race.arms.{name}" for name in ("declutr", "tsdae", "dino", "questions-hard", "titles-and-questions")]
    given = [
        f"race.backbone={tiny_bert}",
        f"race.generator={desk / 'lm'}",
        "race.questions=[" + ",".join(f"'{override}'" for override in questions) + "]",
    ]
    return [
        *given,
        *left_out,
        "budget={steps: 2}",
        "seeds=[1]",
        "sentences=0",
        "device=cpu",
        "race.batch_size=8",
    ]


@pytest.fixture(scope="module")
def adapted(desk, overrides):
    done = run_command(
        [
            "-m",
            "contrastive_encoders",
            "compare",
            "race=documents",
            format_override("race.texts", DOCUMENTS),
            f"output='{OUTPUT}'",
            *overrides,
        ],
        desk,
    )
    assert done.returncode == 0, done.stderr
    return done, desk / OUTPUT


@pytest.mark.slow  # runs train.py eight times
def test_the_page_begins_with_what_is_recommended(adapted):
    done, folder = adapted
    numbers = json.loads((folder / "comparison.json").read_text())
    assert numbers["recommended"].startswith(("Better: ", "Nothing "))
    assert numbers["recommended"] in " ".join(done.stdout.split())
    assert (folder / "encoder" / "modules.json").exists() == numbers["recommended"].startswith("Better")
    assert numbers["headline"]["name"] == "held_out/cosine/ndcg@10"
    assert {*ARMS, "untrained", "TF-IDF"} <= set(numbers["arms"])
    page = (folder / "report.html").read_text()
    assert page.index(numbers["recommended"][:30]) < page.index("Ranking")
    assert "five-questions" in page


@pytest.mark.slow  # runs train.py eight times
def test_rates_are_chosen_on_questions_that_are_not_reported(adapted):
    _, folder = adapted
    chosen = json.loads((folder / "selected_hyperparameters.json").read_text())
    assert chosen["score"] == "development/cosine/ndcg@10"
    for arm in ARMS:
        best = max(chosen["values"][arm], key=chosen["values"][arm].get)
        results = json.loads((folder / "runs" / f"{arm}-seed1" / "results.json").read_text())
        assert results["recipe"]["model"]["lr"] == float(best)
        for value, score in chosen["values"][arm].items():
            results = json.loads((folder / "selection" / f"{arm}-{value}" / "results.json").read_text())
            assert results["scores"][chosen["score"]] == pytest.approx(score)
            assert not [name for name in results["scores"] if name.startswith("held_out")]


@pytest.mark.slow  # runs train.py eight times
def test_no_held_out_document_was_trained_on(adapted):
    _, folder = adapted
    made = folder / "data" / "questions"
    held_out = {line.split("\t")[1] for line in (made / "held_out/qrels/test.tsv").read_text().splitlines()[1:]}
    corpus = map(json.loads, (made / "held_out/corpus.jsonl").read_text().splitlines())
    texts = {row["_id"]: row["text"] for row in corpus}
    trained = gzip.decompress((made / "documents.jsonl.gz").read_bytes()).decode()
    assert held_out
    assert not [key for key in held_out if texts[key] in trained]
    assert len([key for key in texts if texts[key] in trained]) > len(held_out)


def test_documents_stand_without_a_key_on_the_console(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    wanted = [
        "hydra/help=adapt",
        "race=documents",
        "race.texts=[docs,more docs]",
        f"output={ADAPT_OUTPUT}",
        "seeds=[1]",
    ]
    assert adapt_arguments(["docs", "more docs", "seeds=[1]"]) == wanted
    assert adapt_arguments(["a'b.txt", "output_dir=o"]) == [*wanted[:2], "race.texts='a\\'b.txt'", "output=o"]
    overrides = ["~race.arms.dino", "+race.new=1", "--config-dir", "mine"]
    expected = [*wanted[:2], "race.texts='~/docs'", *overrides, "output=o"]
    assert adapt_arguments(["~/docs", *overrides, "output_dir=o"]) == expected
    with pytest.raises(InputError) as refused:
        adapt_arguments(["seeds=[1]"])
    assert refused.value.key == "race.texts"


@pytest.mark.advice("contrastive_encoders.cli.main:adapt_arguments")
def test_adapt_calls_its_output_directory_as_improve_does(tmp_path, capsys):
    with pytest.raises(InputError) as refused:
        adapt_arguments(["docs/", "output=o"])
    assert (refused.value.key, refused.value.value, refused.value.hint) == ("output", "o", "Set output_dir=o.")
    assert adapt_arguments(["docs/", "output_dir=o"])[-1] == "output=o"
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "letter.txt").write_text("mine")
    with pytest.raises(SystemExit) as ended:
        main(["adapt", str(tmp_path), f"output_dir={tmp_path / 'out'}"])
    assert ended.value.code == 2
    message = capsys.readouterr().err
    assert f"output_dir={tmp_path / 'out'}: " in message
    assert " output=" not in message


@pytest.mark.slow  # runs train.py eight times
def test_an_interrupted_race_goes_on_and_its_questions_stay(desk, overrides, tmp_path):
    line = [
        "race=documents",
        format_override("race.texts", str(desk / DOCUMENTS)),
        f"output={tmp_path / 'out'}",
        *overrides,
        "seeds=[1]",
    ]
    run = Started("compare", line)
    run.wait_for(lambda: (tmp_path / "out" / "data" / "questions" / "manifest.json").exists())
    assert run.process.is_alive(), run.said()
    run.kill(signal.SIGKILL)
    run.finish()
    done = run_command(["-m", "contrastive_encoders", "compare", *line])
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "report.html").is_file()


@pytest.mark.slow  # starts two commands
def test_a_plan_of_a_race_says_how_long_it_takes_and_leaves_nothing(desk, overrides, tmp_path, monkeypatch):
    documents = shutil.copytree(desk / DOCUMENTS, desk / "some broken")
    for number in range(3):
        (documents / f"{number}.docx").write_text("not a zip file")
    line = ["race=documents", format_override("race.texts", str(documents)), f"output={tmp_path / 'out'}", *overrides]
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = run_command(
        ["-m", "contrastive_encoders", "compare", *line, "race.estimate_only=true", "race.reuse_from=null"]
    )
    assert done.returncode == 0, done.stderr
    # two arms with two rates each; two arms with one seed and the untrained encoder
    assert re.search(r"\b4 runs .*\b3 runs", done.stderr)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("texts", [2024, [2024, "notes.txt"]])
def test_the_name_of_a_folder_may_be_a_number(texts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    race = OmegaConf.create({"texts": texts, "prepare": {"questions": ["input=${race.texts}"]}})
    with pytest.raises(InputError) as missing:
        check_texts(race)
    assert (missing.value.key, str(missing.value.value)) == ("race.texts", "2024")
    (tmp_path / "2024").mkdir()
    (tmp_path / "2024" / "a.md").write_text("text")
    (tmp_path / "notes.txt").write_text("text")
    check_texts(race)


def test_a_text_that_is_a_list_is_refused():
    race = OmegaConf.create({"texts": [["a.txt"]], "prepare": {"questions": ["input=${race.texts}"]}})
    with pytest.raises(InputError) as error:
        check_texts(race)
    assert error.value.key == "race.texts"


def test_only_data_that_an_arm_uses_is_prepared():
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        overrides = ["race=documents", "race.texts=docs", "output='my (1)'", "race.backbone=b", "race.generator=g"]
        races = [plain(compose("compare", [*overrides, *more]).race) for more in ([], ["~race.arms.dino"])]
    names = [[*needed(commands_of(race["prepare"], ""), race_overrides(race))] for race in races]
    assert names == [["questions", "dino"], ["questions"]]


def test_only_the_arm_that_trains_on_negatives_reads_the_rows_that_need_them():
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        race = plain(compose("compare", ["race=documents", "race.texts=d", "output=o", "race.backbone=b"]).race)
    reads = {name: " ".join(overrides) for name, overrides in race["arms"].items()}
    assert [name for name, overrides in reads.items() if "/train.jsonl.gz" in overrides] == ["questions-hard"]
    assert [name for name in reads if "pairs.jsonl.gz" in reads[name]] == ["questions", "titles-and-questions"]


def test_the_questions_have_the_encoding_and_the_column_of_the_command():
    """These are keys that messages of `generate` name."""
    overrides = adapt_arguments(["docs", "encoding=cp1250", "input_column=Antwort (Support)"])[1:]
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        overrides = [*literal_overrides("compare", overrides), "race.backbone=b", "race.generator=g"]
        race = plain(compose("compare", overrides).race)
    command = commands_of(race["prepare"], "")["questions"]
    values = {override.key_or_group: override.value() for override in OverridesParser.create().parse_overrides(command)}
    assert (values["encoding"], str(values["input_column"])) == ("cp1250", "Antwort (Support)")


def test_data_that_other_data_is_made_of_is_prepared():
    commands = {
        "raw": ["recipe=a", "output=made/raw"],
        "judged": ["recipe=b", "input=made/raw/texts.txt", "output=made/judged"],
        "other": ["recipe=a", "output=made/raw-2"],
        "same beginning": ["recipe=a", "output=made/judge"],
        "without output": ["recipe=c"],
    }
    assert [*needed(commands, ["data.path=[made/judged]"])] == ["raw", "judged", "without output"]
    assert [*needed(commands, ["data.path=made/raw-2"])] == ["other", "without output"]


@pytest.mark.slow  # starts two commands
def test_documents_that_are_too_few_are_refused_once(overrides, tmp_path):
    (tmp_path / "one.txt").write_text(f"{story('alone')}\n")
    done = run_command(
        [
            "-m",
            "contrastive_encoders",
            "compare",
            "race=documents",
            f"race.texts={tmp_path / 'one.txt'}",
            f"output={tmp_path / 'out'}",
            *overrides,
        ]
    )
    assert done.returncode == 2
    refusal, place = done.stderr.strip().splitlines()[-2:]
    assert refusal.startswith("contrastive-encoders generate: input: ")
    assert place.startswith("contrastive-encoders compare: race.prepare.questions: ")
    assert "Traceback" not in done.stderr
