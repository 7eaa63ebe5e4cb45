"""``recipe=gense chat_template=true``: an instruct model that was not trained for the task writes and judges."""

import json
import shutil

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

from contrastive_encoders.core.gense_prompts import parse_prompts, write_generator_prompts
from contrastive_encoders.synthesis.decoding.generator import apply_chat_template
from tests.forks import run_command
from tests.synthesis.commands import ROOT, here, refusal, rows_of
from tests.synthesis.test_synthesis_command import write_toy_generator

pytestmark = pytest.mark.usefixtures("no_pictures")

SHIPPED = ROOT / "configs/prompts/gense_instruct.yaml"
CHAT = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<answer>{% endif %}"  # noqa: E501
OPEN = ["rules.agree=false", "rules.threshold=null", "rules.drop_near_copies=false", "rules.min_hypothesis_words=0"]
SENTENCES = [f"the old cat sings in the red house number {n} again" for n in range(6)]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("instruct")
    write_toy_generator(folder / "lm", positions=512)
    tokenizer = AutoTokenizer.from_pretrained(folder / "lm")
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(folder / "lm")
    (folder / "in.txt").write_text("\n".join(SENTENCES))
    return folder


def overrides_for(place, output, *overrides):
    given = [f"generator={place / 'lm'}", f"input={place / 'in.txt'}", f"output={output}", "shard_size=4", "workers=1"]
    return ["recipe=gense_instruct", *given, "max_new_tokens=24", *OPEN, *overrides]


def test_texts_and_judgments_equal_those_of_a_plain_chat(place, tmp_path):
    """The template is written by hand, one question at a time: P(yes) of {yes, no} after the prompt's last line."""
    here(*overrides_for(place, tmp_path / "out", "candidates=2"))
    prompts = yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))
    asks = prompts["discrimination"]
    tokenizer = AutoTokenizer.from_pretrained(place / "lm")
    model = AutoModelForCausalLM.from_pretrained(place / "lm").eval()
    yes, no = (tokenizer(asks[answer])["input_ids"][0] for answer in ("yes", "no"))
    rows, seen = rows_of(tmp_path / "out" / "scored"), set()
    assert [row["premise"] for row in rows] == SENTENCES
    for row in rows:
        for direction in ("entailment", "contradiction"):
            assert len(row[direction]) == 2
            for one in row[direction]:
                asked = f"{asks['prefix']}{row['premise']}{asks['between']}{one['text']}{asks['suffix']}"
                question, _, begun = asked.rpartition("\n")
                ids = tokenizer(f"<user>{question}\n<answer>{begun}", return_tensors="pt")["input_ids"]
                with torch.no_grad():
                    wanted = model(ids).logits[0, -1, [yes, no]].softmax(0)[0]
                assert one["p_true"] == pytest.approx(float(wanted), abs=2e-6)
                assert '"' not in one["text"], "it runs to the quotation mark"
                seen.add((one["text"], one["closed"]))
    assert len(seen) > 12
    taken = rows_of(tmp_path / "out")
    closed = {text for text, whole in seen if whole}
    assert taken
    assert {row["entailment"] for row in taken} | {row["contradiction"] for row in taken} <= closed
    about = json.loads((tmp_path / "out" / "manifest.json").read_text())["identity"]["scored"]
    assert about["chat_template"] is True
    assert "instruct" in (tmp_path / "out" / "report.html").read_text()


def test_a_prompt_file_gives_the_same_texts_as_the_same_config(place, tmp_path):
    """The argument is prompts=FILE, although configs/ has a group of that name."""
    mine = tmp_path / "mine.yaml"
    mine.write_text(SHIPPED.read_text(encoding="utf-8"))
    overrides = overrides_for(place, tmp_path / "typed", f"prompts={mine}", "quiet=true")
    refused = run_command(["-m", "contrastive_encoders", "generate", *overrides, "prompts.discrimination.yes=Sure"])
    assert (refused.returncode, (tmp_path / "typed").exists()) == (2, False)
    assert "prompts.discrimination.yes=Sure" in refused.stderr
    assert str(mine) in refused.stderr
    done = run_command(["-m", "contrastive_encoders", "generate", *overrides])
    assert done.returncode == 0, done.stderr
    here(*overrides_for(place, tmp_path / "out"))
    assert rows_of(tmp_path / "typed" / "scored") == rows_of(tmp_path / "out" / "scored")


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        (None, ["prompts=", "existing"]),
        ("entailment: {prefix: a}\n", ["prompts.entailment.suffix"]),
        ("entailment: {prefix: a, sufix: b}\n", ["prompts.entailment.sufix", "prefix, suffix"]),
        (SHIPPED.read_text().replace('"yes"', "yes"), ["prompts.discrimination.True"]),
    ],
)
def test_an_invalid_prompt_file_is_refused(place, tmp_path, text, facts):
    mine = tmp_path / "mine.yaml"
    if text is not None:
        mine.write_text(text)
    error = refusal(*overrides_for(place, tmp_path / "out", f"+prompts.file={mine}"))
    assert not [fact for fact in [str(mine), *facts] if fact not in str(error)], error
    assert not (tmp_path / "out").exists()


def test_both_prompts_or_neither_must_open_a_quotation(place, tmp_path):
    error = refusal(*overrides_for(place, tmp_path / "out", "prompts.entailment.suffix='.'"))
    assert (error.key, "entailment.suffix" in error.expected) == ("prompts", True)


def test_a_prompt_that_fills_the_context_is_refused(place, tmp_path):
    long = "prompts.entailment.prefix='" + "the " * 420 + "'"
    error = refusal(*overrides_for(place, tmp_path / "out", long))
    assert (error.key, error.value) == ("max_source_tokens", 96)
    assert all(fact in error.expected for fact in ("prompts.entailment", "512"))


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (
            "{% if messages[0].role != 'system' %}{{ raise_exception('no system') }}{% endif %}",
            "TemplateError: no system",
        ),
        ("{{ messages", "TemplateSyntaxError"),
        ("Hello, <answer>", "omits"),
    ],
)
def test_a_template_without_user_messages_is_refused(place, tmp_path, template, reason):
    write_toy_generator(tmp_path / "base")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "base")
    tokenizer.chat_template = template
    tokenizer.save_pretrained(tmp_path / "base")
    error = refusal(*overrides_for(place, tmp_path / "out", f"generator={tmp_path / 'base'}"))
    assert (error.key, error.value, reason in error.expected) == ("chat_template", True, True)


def test_prompts_do_not_depend_on_the_current_date(place):
    """Llama 3's and other templates insert the date; this is their default date."""
    tokenizer = AutoTokenizer.from_pretrained(place / "lm")
    asks = "{% if strftime_now is defined %}{% set day = strftime_now('%d %b %Y') %}{% else %}{% set day = '26 Jul 2024' %}{% endif %}"  # noqa: E501
    tokenizer.chat_template = asks + "{% for m in messages %}{{ day }}: {{ m.content }}{% endfor %}"
    assert apply_chat_template(tokenizer, "Why?") == "26 Jul 2024: Why?"


def test_a_generator_with_its_own_prompts_refuses_others(place, tmp_path):
    shutil.copytree(place / "lm", tmp_path / "lm")
    own = parse_prompts(yaml.safe_load((ROOT / "configs/prompts/gense.yaml").read_text()), "string", "")
    write_generator_prompts(tmp_path / "lm", own)
    overrides = overrides_for(place, tmp_path / "out", f"generator={tmp_path / 'lm'}", "chat_template=false")
    error = refusal(*overrides, f"+prompts.file={SHIPPED}")
    assert (error.key, error.value) == ("prompts", str(SHIPPED))
