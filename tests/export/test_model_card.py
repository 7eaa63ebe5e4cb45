"""A card contains the run's facts, opens in the hub's own reader, and reveals no folder of the machine."""

import pytest
import yaml
from huggingface_hub import ModelCard

from contrastive_encoders.export.model_card import card_without_run, model_card


@pytest.fixture
def results():
    return {
        "version": 2,
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
        "cost": {
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
            {
                "source": {"hub": [{"id": "Skylion007/openwebtext"}], "sha256": "0f" * 32},
                "kept": 5,
                "unknown_tokens": {"unknown": 119, "tokens": 108_562, "rows_with_unknown": 10, "rows": 525},
            },
            {
                "kind": "text",
                "path": "/home/someone/secret/corpus.txt",
                "license": "cc-by-4.0",
                "files": [{"name": "a"}, {"name": "b"}],
            },
        ],
        "overlap": {"sts12": {"checked": 1000, "found": 3}},
    }


def front_matter(card):
    return yaml.safe_load(card.split("---\n")[1])


def test_the_hub_reads_the_front_matter(results):
    data = ModelCard(model_card(results)).data
    assert data.library_name == "sentence-transformers"
    assert data.pipeline_tag == "sentence-similarity"
    assert data.base_model == "distilbert/distilroberta-base"
    assert data.datasets == ["Skylion007/openwebtext"]


def test_the_scores_are_in_the_index_of_the_hub(results):
    data = ModelCard(model_card(results)).data
    found = {(one.dataset_type, one.dataset_split, one.metric_type): one.metric_value for one in data.eval_results}
    assert found == {("sts12", "test", "spearman_cosine"): 0.61234, ("stsb", "dev", "spearman_cosine"): 0.7}
    assert "declutr" in data.model_name


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("sts16/all/pearson", ("semantic-similarity", "sts16", "test", "pearson_cosine")),
        ("mr/default/accuracy", ("text-classification", "mr", "test", "accuracy")),
        ("mr-dev/fast/accuracy", ("text-classification", "mr", "dev", "accuracy")),
        ("sts16/mean/spearman", None),
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
    card = card_without_run("/home/someone/m", settings, use="USE IT SO", library=library)
    data = ModelCard(card).data
    assert (data.library_name, data.pipeline_tag, data.base_model) == (library, "sentence-similarity", None)
    assert library in data.tags or library == "transformers"
    assert "USE IT SO" in card
    assert "| pooling | mean |" in card
    assert "/home" not in card
    assert ModelCard(card_without_run("org/name", settings)).data.base_model == "org/name"


@pytest.mark.parametrize("backbone", ["tiny", "/models/roberta", "a/b/c"])
def test_what_is_no_hub_id_is_no_base_model(results, backbone):
    assert "base_model" not in front_matter(model_card({**results, "backbone": backbone}))


def test_an_installed_model_has_its_name_on_the_hub(results, minilm_path):
    card = model_card({**results, "backbone": str(minilm_path)})
    assert front_matter(card)["base_model"] == "sentence-transformers/all-MiniLM-L6-v2"
    assert "Backbone: sentence-transformers/all-MiniLM-L6-v2." in card


@pytest.mark.parametrize(
    "fact",
    [
        "| `sts12/all/spearman` | 61.23 | 60.10 to 62.30 | 41.00 |",
        "| real tokens | 1,500,000 |",
        "| model.temperature | 0.05 |",
        "| sts12 | 1000 | 3 |",
        "0f" * 32,
        "| 119 of 108,562, in 10 of 525 rows |",
        "abc123",
        "License: not ",
        "License: cc-by-4.0",
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


def test_settings_that_changed_while_training_are_listed_with_their_step(results):
    assert "`model.lr`" not in model_card(results)
    results["resumed"] = [
        {"step": 100, "changed": {"model.lr": [0.1, 0.2]}},
        {"step": 200, "changed": {"evaluation.custom_tasks": [None, "/home/someone/secret/x.csv"]}},
    ]
    card = model_card(results)
    assert "| 100 | `model.lr` | 0.1 | 0.2 |" in card
    assert "| 200 | `evaluation.custom_tasks` | null | x.csv |" in card


def test_no_folder_of_the_machine_is_published(results):
    card = model_card({**results, "backbone": "/home/someone/models/roberta"})
    assert "/home" not in card
    assert "secret" not in card
    assert "corpus.txt" in card


@pytest.mark.parametrize(
    ("named", "default", "functions"),
    [
        ({"query": "q: ", "document": "d: "}, None, {"encode_query", "encode_document"}),
        ({"query": "q: ", "passage": "p: "}, "query", {"encode_query", "encode_document"}),
        ({"plain": "s: "}, "plain", set()),
    ],
)
def test_prompts_are_listed_with_the_functions_that_use_them(named, default, functions, results):
    card = model_card({**results, "prompts": {"named": named, "default_name": default}})
    assert {name for name in ("encode_query", "encode_document") if f"`{name}`" in card} == functions
    assert all(text.strip() in card for text in named.values())
    assert ("default prompt" in card) == (default is not None)
    assert "prompts" not in model_card(results)
