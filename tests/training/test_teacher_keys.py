"""Keys of a teacher that a run cannot follow are refused before anything is trained."""

import pytest
import transformers

from contracts import InputError
from training.checks import check_model_and_data
from training.compose import compose
from training.stages import stages_of
from training.teacher import check_keys_of_teacher, load_teacher


def stages(*words):
    return [stage.run for stage in stages_of(compose(["output_dir=somewhere", *words]))]


def test_a_comparison_with_no_teacher():
    words = ["model=simcse", "data=sentences", "data.path=x", "evaluation.teacher=true"]
    with pytest.raises(InputError, match=r"evaluation\.teacher=true compares with model\.teacher, and there is none"):
        check_keys_of_teacher(stages(*words))


def test_layers_that_the_first_stage_has_taken_out():
    words = ["model=distil", "model.teacher=x"]
    words += [
        "+stages.one.data=sentences",
        "+stages.one.data.path=x",
        "+stages.two.data=triplets",
        "+stages.two.data.path=y",
    ]
    check_keys_of_teacher(stages(*words, "+stages.one.model.layers=[0,2]"))
    with pytest.raises(InputError, match=r"model\.layers=\[0, 2\].*of the first stage alone"):
        check_keys_of_teacher(stages(*words, "model.layers=[0,2]"))


def test_a_reranker_is_no_teacher_of_vectors(tiny_bert, tmp_path):
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    config = transformers.BertConfig(vocab_size=1000, num_labels=1, **sizes)
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path)
    transformers.AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(tmp_path)
    (run,) = stages("model=distil", f"model.teacher={tmp_path}", "data=sentences", "data.path=x")
    with pytest.raises(InputError, match=r"model\.teacher: .*is a reranker .*model=distil_scores"):
        load_teacher(run)


def test_prompts_that_no_folder_of_a_reranker_would_tell():
    (run,) = stages("model=reranker", "data=triplets", "data.path=x", "data.prompts='query: '")
    with pytest.raises(InputError, match=r"data\.prompts: a folder of a cross-encoder has no place"):
        check_model_and_data(run)
