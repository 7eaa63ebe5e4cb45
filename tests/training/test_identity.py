"""The same command finds its folder: of the commit before too, whatever class paths and defaults have become."""

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from command.config_files import CONFIGS
from training.identity import Identity, earlier_folder, identity_of, named_folder
from training.stages import forced, stages_of

OF_STSB = "monitor=stsb-dev/cosine/spearman evaluation.during=[stsb-dev]"
OF_GENSE = f"{OF_STSB} model.max_length=64 model.mask_duplicates=true model.truncation=keep_prompt"
FORMERLY = {  # words with the defaults of then, where others hold now: what they named the folder
    "experiment=declutr_base evaluation.suite=sts": "f3a81ba5",
    "experiment=dino_x2 model.max_length=128": "92421586",
    f"experiment=gense_plus {OF_GENSE}": "cbb70f94",
    f"experiment=gense_qa {OF_GENSE}": "42085a60",
    f"experiment=gense_small_demo {OF_GENSE}": "dcad7fb2",
    "experiment=quickstart_random monitor=pydocs/cosine/mrr": "533c763f",
    "experiment=quickstart_random monitor=pydocs/cosine/mrr model.matryoshka=null model.guide=null": "533c763f",
    "experiment=quickstart_random monitor=pydocs/cosine/mrr evaluation.precision=fp32": "533c763f",
    "experiment=sbert_nli model.max_length=128": "c65be92e",
    f"experiment=simcse_sup {OF_STSB} model.max_length=32": "bcc1858a",
    f"experiment=simcse_unsup {OF_STSB} model.max_length=32": "793d1c60",
    "model=declutr data=pydocs": "5cc00367",
    "model=declutr data=openwebtext": "ff43242c",
    "model=gense_generator data=nli_generation": "330ae180",
    "model=sroberta data=dino model.max_length=128": "82407dc8",
}


@pytest.mark.parametrize("words", FORMERLY)
def test_the_name_by_the_former_rule_is_that_of_the_commit_before(words, monkeypatch):
    monkeypatch.delenv("SHARED_DATA", raising=False)
    given = forced(["output_dir=somewhere", *words.split()])
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        last = stages_of(compose("train", overrides=given), given)[-1]
    assert last.identity.former == FORMERLY[words]
    assert last.identity.now != last.identity.former


def identity(**changed):
    model = {"_target_": "encoders.simcse.SimCSE", "temperature": 0.05, "prompt": None} | changed
    return identity_of(OmegaConf.create({"output_dir": "x", "model": model, "seed": 1}))


def test_it_is_over_keys_and_values_and_not_over_class_paths_or_keys_without_a_value():
    plain = identity()
    for same in ({"_target_": "losses.room.SimCSE"}, {"new_key": None}, {"_convert_": "all"}):
        assert identity(**same).now == plain.now
        assert identity(**same).former != plain.former
    for other in ({"temperature": 0.1}, {"prompt": " It is:"}, {"_target_": "encoders.simcse.Other"}):
        assert identity(**other).now != plain.now


def test_an_adapter_that_is_off_says_nothing_and_one_that_is_on_says_what_it_is():
    off = identity(lora={"rank": None, "alpha": None, "dropout": 0.0, "seed": 3}, frozen_weights="fp32")
    assert off == identity()
    four = identity(lora={"rank": 4, "seed": 3}, frozen_weights="fp32")
    assert (
        len(
            {
                off,
                four,
                identity(lora={"rank": 8, "seed": 3}),
                identity(lora={"rank": 4, "seed": 3}, frozen_weights="bf16"),
            }
        )
        == 4
    )


def test_a_folder_of_the_former_name_is_taken_unless_there_is_a_new_one(tmp_path):
    known = Identity("new", "old")
    assert named_folder(tmp_path, "m-d", known).name == "m-d-new"
    (tmp_path / "m-d-old").mkdir()
    assert named_folder(tmp_path, "m-d", known).name == "m-d-old"
    (tmp_path / "m-d-new").mkdir()
    assert named_folder(tmp_path, "m-d", known).name == "m-d-new"


def test_a_folder_of_the_same_words_and_other_defaults_is_named(tmp_path):
    record = tmp_path / "m-d-1" / ".hydra" / "overrides.yaml"
    record.parent.mkdir(parents=True)
    OmegaConf.save(OmegaConf.create(["model=m", "data=d"]), record)
    damaged = tmp_path / "m-d-0" / ".hydra" / "overrides.yaml"
    damaged.parent.mkdir(parents=True)
    damaged.write_text(": : [")
    assert earlier_folder(tmp_path / "m-d-2", ["model=m", "data=d"]) == Path(tmp_path / "m-d-1")
    assert earlier_folder(tmp_path / "m-d-2", ["model=m", "data=d", "seed=2"]) is None
    assert earlier_folder(tmp_path / "m-d-1", ["model=m", "data=d"]) is None
