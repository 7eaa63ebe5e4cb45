"""Keys of a teacher that a run cannot use are refused before training."""

import pytest
import transformers

from contrastive_encoders.core import InputError
from contrastive_encoders.training.checks import check_model_and_data
from contrastive_encoders.training.compose import compose
from contrastive_encoders.training.resolve import resolve
from contrastive_encoders.training.run_setup import prepare_multi_stage_run
from contrastive_encoders.training.teacher import check_teacher_keys, load_teacher


def run_of(*overrides):
    return resolve(compose(["output_dir=somewhere", *overrides]))


def test_a_comparison_without_a_teacher_is_refused():
    overrides = ["model=simcse", "data=sentences", "data.path=x", "evaluation.compare_with_teacher=true"]
    with pytest.raises(InputError) as refused:
        check_teacher_keys(run_of(*overrides))
    assert (refused.value.key, refused.value.value) == ("evaluation.compare_with_teacher", True)


def test_layers_that_the_first_stage_has_removed_are_refused(tmp_path):
    overrides = ["model=distil", "model.teacher=x"]
    overrides += [
        "+stages.one.data=sentences",
        "+stages.one.data.path=x",
        "+stages.two.data=triplets",
        "+stages.two.data.path=y",
    ]
    prepare_multi_stage_run(run_of(*overrides, "+stages.one.model.keep_layers=[0,2]", f"output_dir={tmp_path / 'a'}"))
    with pytest.raises(InputError) as refused:
        prepare_multi_stage_run(run_of(*overrides, "model.keep_layers=[0,2]", f"output_dir={tmp_path / 'b'}"))
    assert (refused.value.key, refused.value.value) == ("stages.two.model.keep_layers", [0, 2])


def test_a_reranker_is_refused_as_a_teacher(tiny_bert, tmp_path):
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    config = transformers.BertConfig(vocab_size=1000, num_labels=1, **sizes)
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path)
    transformers.AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(tmp_path)
    run = run_of("model=distil", f"model.teacher={tmp_path}", "data=sentences", "data.path=x")
    with pytest.raises(InputError) as refused:
        load_teacher(run)
    assert (refused.value.key, refused.value.value) == ("model.teacher", str(tmp_path))
    assert "BertForSequenceClassification" in refused.value.expected


@pytest.mark.parametrize("teacher", ["/no/such/folder", "{empty}"])
def test_error_about_a_teacher_names_its_key_once(teacher, tmp_path):
    run = run_of("model=distil", f"model.teacher={teacher.format(empty=tmp_path)}", "data=sentences", "data.path=x")
    with pytest.raises(InputError) as refused:
        load_teacher(run)
    assert refused.value.key == "model.teacher"
    assert str(refused.value).count("model.teacher") == 1
    assert "encoder=" not in str(refused.value)


def test_prompts_of_a_reranker_are_refused():
    run = run_of("model=reranker", "data=triplets", "data.path=x", "data.prompts='query: '")
    with pytest.raises(InputError) as refused:
        check_model_and_data(run)
    assert (refused.value.key, refused.value.value) == ("data.prompts", "query: ")
