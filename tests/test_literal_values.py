"""Text values of a command line reach a command as they were written, as Hydra's parser and the shell show."""

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import example, given, settings
from hypothesis import strategies as st

import contrastive_encoders.training.run_config  # noqa: F401  it registers the keys
from contrastive_encoders.cli.preview import read_arguments
from contrastive_encoders.core import InputError
from contrastive_encoders.training.compose import compose
from contrastive_encoders.training.composition.literal_values import literal_override, literal_overrides

TEXTS = [
    "faq (final).csv",
    "数据.csv",
    "a=b.csv",
    "a,b.csv",
    "[draft] faq.csv",
    "it's.csv",
    'the "new" one.csv',
    "faq#1.csv",
    "~/faq.csv",
    "50% off; really?.csv",
    "C:\\data\\a (1).csv",
    "https://x.y/z?a=b&c=d",
    "2024",
    "1e5",
    "true",
    "choice(a,b)",
    "a{b}.csv",
    "Größe & Gewicht.csv",
]


def value(override):
    return OverridesParser.create().parse_override(override).value()


@pytest.mark.parametrize("key", ["data.path", "backbone", "data.dev_path", "stages.one.data.path", "data.parts.x.path"])
@pytest.mark.parametrize("text", TEXTS)
def test_a_text_is_taken_as_it_is(key, text):
    [override] = literal_overrides("train", [f"{key}={text}"])
    assert value(override) == text
    assert literal_overrides("train", [override]) == [override], "a second time it stays"


@settings(deadline=None, max_examples=200)
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
@example("null.")
@example("query ")
@example(" ")
def test_any_text_is_taken_as_it_is(text):
    if text[0] in "'\"[{\\" or "\\" in text or "${" in text or text.strip().lower() == "null":
        return  # quotes, lists, mappings, and escapes of the user
    assert value(literal_override(f"k={text}", [str | Sequence[str]])) == text


@pytest.mark.parametrize(
    ("written", "texts"),
    [
        ("[Frage,Antwort (Support)]", ["Frage", "Antwort (Support)"]),
        ("[Frage, Antwort]", ["Frage", "Antwort"]),
        ("[a (1).csv,b=2.csv]", ["a (1).csv", "b=2.csv"]),
        ("[Antwort (Support, intern),Frage]", ["Antwort (Support, intern)", "Frage"]),
        ('["a, b",c (1)]', ["a, b", "c (1)"]),
        ("['a, b',c]", ["a, b", "c"]),
        ("[1,2]", ["1", "2"]),
        ("[Größe]", ["Größe"]),
        ("[a]", ["a"]),
    ],
)
def test_the_texts_of_a_list_are_taken_one_by_one(written, texts):
    for key in ("data.columns", "data.path"):
        assert value(literal_overrides("train", [f"{key}={written}"])[0]) == texts


@pytest.mark.parametrize(
    "override",
    [
        "data.path=null",
        "data.path=${oc.env:HOME}/x.csv",
        "backbone='${installed:package/file}'",
        "data.path='a (1).csv'",
        'data.path="a, b.csv"',
        "data.prompts={question: 'query: ', answer: 'passage: '}",
        "data.prompts=query: ",
        "data.columns=[a,b]",
        "model.lr=1e-5",
        "seed=3",
        "data=qa",
        "experiment=[a,b]",
        "~data",
        "+callbacks.x._target_=a.B",
        "devices=auto",
        "data.max_span=auto",
    ],
)
def test_values_that_hydra_reads_correctly_are_unchanged(override):
    assert literal_overrides("train", [override]) == [override]


def test_an_interpolation_beside_other_characters_stays_one():
    run = compose(["data=qa", "data.path=${output_dir}/faq (1).csv", "output_dir=runs (2)", "model=pairs"])
    assert run.data.path == "runs (2)/faq (1).csv"


def test_commas_are_sweeps_where_several_runs_are_asked_for():
    [_, rate, path, odd] = literal_overrides("train", ["-m", "model.lr=1e-5,1e-4", "data.path=a,b", "backbone=a (1),b"])
    assert [rate, path] == ["model.lr=1e-5,1e-4", "data.path=a,b"]
    parsed = OverridesParser.create().parse_override(odd)
    assert [str(one.text) if hasattr(one, "text") else one for one in parsed.value().list] == ["a (1)", "b"]


@pytest.mark.parametrize(
    ("override", "advised"),
    [
        ("model.lr=1e-5 (slow)", "1e-5 (slow)"),
        ("seed=[1", "[1"),
        ("data.prompts={question: query (x): , answer: p}", {"question": "query (x):", "answer": "p"}),
    ],
)
def test_another_value_that_hydra_cannot_read_is_shown_as_the_shell_takes_it(override, advised):
    with pytest.raises(InputError) as caught:
        literal_overrides("train", [override])
    key, _, text = override.partition("=")
    assert (caught.value.key, caught.value.value) == (key, text)
    quoted = caught.value.hint.partition(": ")[2]
    echoed = subprocess.run(["sh", "-c", f"printf %s {quoted}"], capture_output=True, text=True, check=True).stdout
    assert shlex.split(quoted) == [echoed]
    assert value(echoed) == advised


def test_keys_of_other_commands_go_by_their_declared_types():
    @dataclass(kw_only=True)
    class Keys:
        input: str | Sequence[str] | None
        batches: int
        prompts: Mapping[str, str]

    overrides = ["input=a (1).txt", "batches=3", "unknown=x (1)"]
    assert [value(override) for override in literal_overrides("mine-negatives", overrides, Keys)] == [
        "a (1).txt",
        3,
        "x (1)",
    ]
    assert value(literal_overrides("mine-negatives", ["input=7"], Keys)[0]) == "7"
    assert value(literal_overrides("mine-negatives", ["unknown=7"], Keys)[0]) == 7


def test_the_preview_and_the_python_api_take_them_too(tmp_path):
    path = tmp_path / "faq (final) ä=1.csv"
    path.write_text("Frage,Antwort (Support)\na,b\n", encoding="utf-8")
    overrides = ["data=qa", f"data.path={path}", "data.columns=[Frage,Antwort (Support)]", "output=page (1).png"]
    asked = read_arguments(overrides)
    assert (asked.run.data.path, asked.run.data.columns) == (str(path), ["Frage", "Antwort (Support)"])
    assert asked.config.output == "page (1).png"


@pytest.mark.parametrize("override", ["--config-dir=conf", "--config-dir=my conf (2)", "-cd=conf"])
def test_an_option_of_hydra_is_not_a_key(override):
    assert literal_overrides("train", [override]) == [override]


@pytest.mark.parametrize(
    "written", ["${x}.csv", "a${oc.env:NO_SUCH_VARIABLE}.csv", "${x} (1).csv", "[${x}.csv,b.csv]", "${data.nothing}"]
)
def test_a_reference_to_nothing_names_its_key_and_the_literal_text(written):
    overrides = literal_overrides("train", ["model=simcse", "data=sentences", f"data.path={written}"])
    with pytest.raises(InputError) as caught:
        compose(overrides)
    message = str(caught.value)
    assert caught.value.key == "data.path"
    (advised,) = shlex.split(message.rpartition("set ")[2].removesuffix("."))
    path = compose([*overrides[:2], advised]).data.path
    assert (path[0] if isinstance(path, list) else path) == written.strip("[]").split(",")[0]


def test_a_reference_to_a_key_is_followed():
    assert compose(["model=simcse", "data=sentences", "data.path=a${seed}.txt", "seed=7"]).data.path == "a7.txt"


@pytest.mark.parametrize("text", ["${.csv", "a ${b.csv", "${}"])
def test_a_reference_without_an_end_is_refused(text):
    with pytest.raises(InputError) as caught:
        literal_overrides("train", [f"data.path={text}"])
    assert (caught.value.key, caught.value.value) == ("data.path", text)
