"""A card carries the run's facts, opens in the hub's own reader, and gives away no folder of the machine."""

import re

import pytest
import yaml
from huggingface_hub import ModelCard
from hydra.utils import get_class

import datamodules.settings
import encoders.settings
from contracts.settings import keys_of
from export.model_card import OBJECTIVES, OF_A_RECIPE, card_of_folder, model_card
from export.training_prompts import learnt_prompts
from training.settings import Run


@pytest.fixture
def results():
    return {
        "version": 1,
        "objective": "declutr",
        "backbone": "distilbert/distilroberta-base",
        "recipe": {
            "backbone": "distilbert/distilroberta-base",
            "max_steps": 300,
            "model": {"temperature": 0.05, "prompt": "a | b\nc"},
            "data": {"path": ["/home/someone/secret/corpus.txt"]},
        },
        "scores": {"sts12/all/spearman": 61.234, "stsb-dev/cosine/spearman": 70.0},
        "intervals": {"sts12/all/spearman": [60.1, 62.3]},
        "scores_before": {"sts12/all/spearman": 41.0},
        "baselines": {"tfidf": 33.3},
        "best_step": 250,
        "spent": {
            "steps": 300,
            "examples": 9600,
            "real_tokens": 1_500_000,
            "padded_tokens": 500_000,
            "wall_seconds": 90.0,
            "peak_memory_bytes": 2**31,
        },
        "seeds": [17],
        "versions": {"torch": "2.13.0"},
        "device": "cpu",
        "processes": 2,
        "git_commit": "abc123",
        "data": [
            {"source": {"hub": [{"id": "Skylion007/openwebtext"}], "sha256": "0f" * 32}, "kept": 5},
            {
                "kind": "text",
                "path": "/home/someone/secret/corpus.txt",
                "licence": "cc-by-4.0",
                "files": [{"name": "a"}, {"name": "b"}],
            },
        ],
        "overlap": {"sts12": {"checked": 1000, "found": 3}},
    }


def front_matter(card):
    return yaml.safe_load(card.split("---\n")[1])


def test_prefixes_that_were_trained_are_told(results):
    assert "truncate_dim" not in model_card(results)
    results["recipe"]["model"]["matryoshka"] = [768, 256]
    assert "`truncate_dim=256`" in model_card(results)


def test_scores_of_products_in_16_bits_say_so(results):
    assert "16 bits" not in model_card(results)
    results["recipe"]["evaluation"] = {"precision": "bf16"}
    assert "Products were in 16 bits" in model_card(results)


def test_the_verdict_is_told_as_it_was_found(results):
    said = "Worse: nDCG@10 of my_faq 42.1 -> 40.0. Keep what you had."
    assert "Worse" not in model_card(results)
    results["verdict"] = {"sentence": said, "to_try": ["Half the rate."]}
    card = model_card(results)
    assert "nDCG@10 of my\\_faq 42.1 -\\> 40.0. Keep" in card.partition("## Scores")[2].partition("On a scale")[0]
    assert "Half the rate" not in card


def test_the_hub_reads_the_front_matter(results):
    data = ModelCard(model_card(results)).data
    assert data.library_name == "sentence-transformers"
    assert data.pipeline_tag == "sentence-similarity"
    assert data.base_model == "distilbert/distilroberta-base"
    assert data.datasets == ["Skylion007/openwebtext"]
    assert {"sentence-transformers", "sentence-similarity", "declutr"} <= set(data.tags)


def test_the_scores_are_in_the_index_of_the_hub(results):
    data = ModelCard(model_card(results)).data
    found = {(one.dataset_type, one.dataset_split, one.metric_type): one.metric_value for one in data.eval_results}
    assert found == {("sts12", "test", "spearman_cosine"): 0.61234, ("stsb", "dev", "spearman_cosine"): 0.7}
    assert data.model_name == "sentence encoder by declutr"


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("sts16/all/pearson", ("semantic-similarity", "sts16", "test", "pearson_cosine")),
        ("mr/default/accuracy", ("text-classification", "mr", "test", "accuracy")),
        ("mr-dev/fast/accuracy", ("text-classification", "mr", "dev", "accuracy")),
        ("sts16/mean/spearman", None),
        ("sts16@senteval/all/spearman", None),
        ("stsb/geometry/uniformity", None),
    ],
)
def test_what_the_index_holds(results, name, entry):
    found = ModelCard(model_card({**results, "scores": {name: 50.0}, "intervals": {}})).data.eval_results or []
    assert [(one.task_type, one.dataset_type, one.dataset_split, one.metric_type) for one in found] == (
        [entry] if entry else []
    )


@pytest.mark.parametrize("library", ["sentence-transformers", "transformers", "onnx"])
def test_the_card_of_an_encoder_of_others(library):
    settings = {"kind": "transformers", "backbone": "/home/someone/m", "pooling": "mean", "prompt": ""}
    card = card_of_folder("/home/someone/m", settings, use="USE IT SO", library=library)
    data = ModelCard(card).data
    assert (data.library_name, data.pipeline_tag, data.base_model) == (library, "sentence-similarity", None)
    assert library in data.tags or library == "transformers"
    assert "USE IT SO" in card
    assert "| pooling | mean |" in card
    assert "/home" not in card
    assert ModelCard(card_of_folder("org/name", settings)).data.base_model == "org/name"


@pytest.mark.parametrize("backbone", ["tiny", "/models/roberta", "./here", "a/b/c", "~/roberta"])
def test_what_is_no_hub_id_is_no_base_model(results, backbone):
    assert "base_model" not in front_matter(model_card({**results, "backbone": backbone}))


def test_a_folder_is_no_base_model(results, tmp_path, monkeypatch):
    (tmp_path / "outputs" / "run").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert "base_model" not in front_matter(model_card({**results, "backbone": "outputs/run"}))


@pytest.mark.parametrize(
    "fact",
    [
        "| `sts12/all/spearman` | 61.23 | 60.10 to 62.30 | 41.00 |",
        "| `stsb-dev/cosine/spearman` | 70.00 |  |  |",
        "| `tfidf` | 33.30 |",
        "| padding | 25.0% of all tokens |",
        "| real tokens | 1,500,000 |",
        "| time | 1.5 minutes on 2 x cpu |",
        "| peak memory of a process | 2.00 GiB |",
        "| seeds | 17 |",
        "| versions | torch 2.13.0 |",
        "| model.temperature | 0.05 |",
        "| sts12 | 1000 | 3 |",
        "0f" * 32,
        "abc123",
        "step 250",
        "DeCLUTR (Giorgi et al., ACL 2021)",
        "`all`: one correlation of the cosines over all subsets together",
        "Licence: not recorded by the run. Find it out before you publish this encoder. See "
        "https://huggingface.co/datasets/Skylion007/openwebtext.",
        "Licence: cc-by-4.0.",
        "## Intended use",
    ],
)
def test_the_card_states(results, fact):
    assert fact in model_card(results)


def test_every_table_row_has_the_cells_of_its_header(results):
    """A pipe or a line break in a value must not break the table."""
    blocks = [block for block in model_card(results).split("\n\n") if block.startswith("|")]
    assert len(blocks) >= 6
    for block in blocks:
        assert len({line.replace("\\|", "").count("|") for line in block.splitlines()}) == 1, block


def test_no_folder_of_the_machine_is_published(results):
    card = model_card({**results, "backbone": "/home/someone/models/roberta"})
    assert "/home" not in card
    assert "secret" not in card
    assert "corpus.txt" in card


def test_a_run_without_scores_says_so(results):
    del results["scores_before"], results["baselines"]
    card = model_card({**results, "scores": {}, "intervals": {}, "overlap": {}, "data": [], "git_commit": None})
    for sentence in ("no evaluation data", "Not recorded", "Not counted", "It was not scored", "no commit recorded"):
        assert sentence in card


def test_every_objective_that_leaves_an_encoder_has_its_sentence():
    classes = [get_class(kind.target) for kind in encoders.settings.KINDS.values()]
    assert {one.objective for one in classes if one.product == "encoder"} == set(OBJECTIVES)


def test_a_reader_meets_a_dozen_rows_of_the_recipe_and_the_others_when_asked_for(results):
    results["recipe"] = {"seed": 3, "model": {"lr": 0.1, "eps": 1e-8, "attention": None}, "data": {}}
    section = model_card(results).partition("## Recipe\n")[2].partition("\n## ")[0]
    shown, _, folded = section.partition("<details>")
    assert re.findall(r"^\| (\w\S*) \| (\S+) \|$", shown, re.M) == [("seed", "3"), ("model.lr", "0.1")]
    assert "| model.eps | 1e-08 |" in folded
    assert folded.rstrip().endswith("</details>")


def test_what_is_shown_of_a_recipe_are_keys():
    kinds = [("data", kind) for kind in datamodules.settings.KINDS.values()]
    kinds += [("model", kind) for kind in encoders.settings.KINDS.values()]
    keys = {f"{group}.{key.name}" for group, kind in kinds for key in keys_of(kind)}
    keys |= {key.name for key in keys_of(Run)} | {
        f"model.lora.{key.name}" for key in keys_of(encoders.settings.Adapter)
    }
    assert set(OF_A_RECIPE) - keys == set()


@pytest.mark.parametrize(
    ("prompts", "wanted"),
    [
        ([["q: ", "d: "]], {"query": "q: ", "document": "d: "}),
        ([["q: ", "", "n: "]], {"query": "q: "}),
        ([["s: "]], {"query": "s: ", "document": "s: "}),
        ([["q: ", "d: "], ["q: ", "", ""]], {"query": "q: "}),
        ([["q: ", "d: "], None], {}),
        ([None], {}),
    ],
)
def test_prompts_that_all_data_of_the_last_stage_share_have_names(prompts, wanted, results):
    accounts = [{"source": {"prompts": one} if one else {}} for one in prompts]
    earlier = {"source": {"prompts": ["earlier: "]}}
    last = accounts[0] if len(accounts) == 1 else {"parts": dict(zip("ab", accounts, strict=False))}
    card = model_card({**results, "data": [earlier, last]})
    assert learnt_prompts({"data": [earlier, last]}) == wanted
    assert all((f"`encode_{name}`" in card) == (name in wanted) for name in ("query", "document"))
