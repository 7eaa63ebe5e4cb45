"""A run that learns from a teacher: equal on two processes and after a kill; its store, folder and table."""

import json
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file
from sklearn.linear_model import Ridge
from transformers import AutoTokenizer

from contrastive_encoders.encoders.embedding_distillation import RIDGE
from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.io.item_scores import items_path, read_items
from contrastive_encoders.io.metrics import read_rows
from contrastive_encoders.io.results import read_results
from tests.data import write_rows
from tests.forks import TRAIN, run_command
from tests.integration.curves import reached, without_times

THINGS = "ferry violin orchard clock engine choir bread referee river swallow glass comet".split()
SENTENCES = [f"The {one} is near the {other}." for one in THINGS for other in THINGS if one != other]
WIDTH = 48


@pytest.fixture(scope="module")
def teacher(tiny_bert, tmp_path_factory):
    """Make another encoder, wider and with its own prompt and length."""
    library = pytest.importorskip("sentence_transformers")
    folder = tmp_path_factory.mktemp("teacher")
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": len(tokenizer)}
    torch.manual_seed(8)
    model = transformers.BertModel(transformers.BertConfig(hidden_size=WIDTH, **sizes))
    for weight in model.parameters():
        if weight.dim() > 1:  # otherwise the states hardly depend on each other
            torch.nn.init.normal_(weight, std=0.3)
    model.save_pretrained(folder / "bert")
    tokenizer.save_pretrained(folder / "bert")
    transformer = library.sentence_transformer.modules.Transformer(str(folder / "bert"), max_seq_length=9)
    pooling = library.sentence_transformer.modules.Pooling(WIDTH)
    reference = library.SentenceTransformer(
        modules=[transformer, pooling], prompts={"of": "the river: "}, default_prompt_name="of", device="cpu"
    )
    reference.save(str(folder / "encoder"))
    return folder / "encoder"


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "texts.txt"
    path.write_text("".join(f"{text}\n" for text in SENTENCES))
    return path


@pytest.fixture(scope="module")
def few(teacher, tiny_bert, file, tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")
    run = ["model=distil", "data=sentences", f"data.path={file}", f"model.teacher={teacher}", f"backbone={tiny_bert}"]
    run += [f"data.cache_dir={cache}", "batch_size=12", "model.eps=0.001", "log_every_n_steps=1", "trainer=cpu"]
    return [*run, "checkpoint.every_n_steps=3"]


@pytest.fixture(scope="module")
def overrides(few):
    return [*few, "max_steps=14"]


def store_of(folder):
    record = json.loads((folder / "teacher.json").read_text())
    (path,) = map(Path, record["stores"].values())
    meta = json.loads((path / "meta.json").read_text())
    return np.fromfile(path / "vectors.bin", np.float16).reshape(meta["rows"], meta["texts_per_row"], meta["width"])


def losses(folder):
    return [float(row["train/loss"]) for row in read_rows(folder / "metrics.csv")]


def test_the_store_contains_the_teachers_embeddings(reference, teacher):
    """The embeddings are the library's, with the teacher's own prompt and length, in 16 bits."""
    library = pytest.importorskip("sentence_transformers").SentenceTransformer(str(teacher), device="cpu")
    wanted = library.encode(SENTENCES)
    found = store_of(reference)[:, 0].astype(np.float32)
    assert found.shape == (len(SENTENCES), WIDTH)
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-5)
    assert np.abs(wanted - library.encode(SENTENCES, prompt="")).max() > 0.1


def test_the_projection_stays_out_of_the_encoder(reference):
    state = torch.load(reference / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    assert state["teaching.projections.32.weight"].shape == (WIDTH, 32)
    assert not [name for name in load_file(reference / "encoder" / "model.safetensors") if "teaching" in name]
    assert load_encoder(reference, device="cpu").embedding_info["width"] == 32
    assert max(losses(reference)) < 0.1  # about 1 with a random projection


def test_training_is_closer_to_the_teacher_than_a_projection_alone(overrides, tiny_bert, command, tmp_path):
    """The reference is the ridge regression of scikit-learn on the embeddings of the encoder before training."""
    run = tmp_path / "run"
    assert command(*overrides, "model.lr=0.001", "max_steps=400", f"output_dir={run}").status == 0
    vectors = torch.from_numpy(store_of(run)[:, 0].astype(np.float32))
    state = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    weight, bias = (state[f"teaching.projections.32.{name}"] for name in ("weight", "bias"))
    before, after = (load_encoder(one, device="cpu").embed(SENTENCES) for one in (tiny_bert, run))
    centered = before - before.mean(0)
    ridge = Ridge(alpha=RIDGE * float(centered.square().sum(0).mean())).fit(before, vectors)
    untrained = torch.from_numpy(ridge.predict(before))
    distance_before, distance_after = (
        float(1 - F.cosine_similarity(one, vectors).mean()) for one in (untrained, F.linear(after, weight, bias))
    )
    assert distance_after < 0.9 * distance_before


@pytest.mark.parametrize("same", [True, False], ids=["same teacher", "other teacher"])
def test_a_later_stage_keeps_the_projection_only_with_the_same_teacher(same, few, teacher, command, tmp_path):
    other = tmp_path / "teacher"
    shutil.copytree(teacher, other)
    weights = load_file(other / "model.safetensors")
    save_file({name: 2 * weight for name, weight in weights.items()}, other / "model.safetensors", {"format": "pt"})
    stages = ["+stages.a.max_steps=4", "+stages.b.max_steps=1", "stages.b.model.lr=1e-12"]
    second = [] if same else [f"stages.b.model.teacher={other}"]
    outcome = command(*few, *stages, *second, f"output_dir={tmp_path / 'run'}")
    assert outcome.status == 0, outcome.err
    name = "teaching.projections.32.weight"
    before, after = (
        torch.load(tmp_path / "run" / f"stage-{stage}" / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
        for stage in ("a", "b")
    )
    assert torch.allclose(before[name], after[name], atol=1e-6) == same
    assert ("fitting the projection" in outcome.err.partition("stage b")[2]) != same


def test_a_projection_that_a_later_stage_adds_is_fitted(few, command, tmp_path):
    """With a random projection, the distance is about 1."""
    stages = ["+stages.a.max_steps=4", "+stages.b.max_steps=1", "+stages.b.model.matryoshka=[32,8]"]
    outcome = command(*few, *stages, f"output_dir={tmp_path / 'run'}")
    assert outcome.status == 0, outcome.err
    assert "fitting the projection" in outcome.err.partition("stage b")[2]
    assert losses(tmp_path / "run" / "stage-b")[0] < 0.1


@pytest.mark.slow  # two processes
def test_two_processes_train_as_one_does(reference, overrides, tmp_path):
    done = run_command([TRAIN, *overrides, "trainer.strategy=ddp", "devices=2", f"output_dir={tmp_path / 'two'}"])
    assert done.returncode == 0, done.stderr
    assert losses(tmp_path / "two") == pytest.approx(losses(reference), rel=1e-4)


@pytest.mark.slow  # two processes
def test_sharded_weights_train_alike(reference, overrides, tmp_path):
    """The projection is included; the exported encoder does not contain it."""
    overrides = [override for override in overrides if override != "trainer=cpu"]
    run = [*overrides, "trainer=fsdp", "trainer.accelerator=cpu", "devices=2", f"output_dir={tmp_path / 'two'}"]
    done = run_command([TRAIN, *run])
    assert done.returncode == 0, done.stderr
    assert losses(tmp_path / "two") == pytest.approx(losses(reference), rel=1e-4)
    found, wanted = (load_encoder(one, device="cpu").embed(SENTENCES) for one in (tmp_path / "two", reference))
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4)


def test_a_killed_and_resumed_run_equals_an_uninterrupted_one(reference, overrides, start, command, tmp_path):
    run = start(*overrides, f"output_dir={tmp_path / 'run'}")
    run.wait_for(lambda: reached(tmp_path / "run", 7))
    run.kill(signal.SIGKILL)
    assert command(*overrides, f"output_dir={tmp_path / 'run'}").status == 0
    exported = [(one / "encoder" / "model.safetensors").read_bytes() for one in (tmp_path / "run", reference)]
    assert exported[0] == exported[1]
    assert without_times(tmp_path / "run") == without_times(reference)


@pytest.mark.rotates
def test_another_teacher_under_the_same_name_is_refused_until_the_first_is_back(
    teacher, overrides, start, command, tmp_path
):
    ours = tmp_path / "teacher"
    shutil.copytree(teacher, ours)
    weights = ours / "model.safetensors"
    run = [*overrides, f"model.teacher={ours}", f"output_dir={tmp_path / 'run'}"]
    begun = start(*run)
    begun.wait_for(lambda: reached(tmp_path / "run", 7))
    begun.kill(signal.SIGKILL)
    rows = (tmp_path / "run" / "metrics.csv").read_bytes()
    first = weights.read_bytes()
    save_file({name: 2 * weight for name, weight in load_file(weights).items()}, weights, {"format": "pt"})
    outcome = command(*run)
    assert outcome.status == 2
    assert f"model.teacher={ours}: " in outcome.err
    assert (tmp_path / "run" / "metrics.csv").read_bytes() == rows
    weights.write_bytes(first)
    assert command(*run).status == 0


def test_the_teacher_embeds_only_the_used_fraction_of_the_rows(reference, overrides, command, tmp_path):
    """Each row gets the embedding that it has among all rows."""
    some = tmp_path / "some"
    assert command(*overrides, "data.fraction=0.25", "max_epochs=9", f"output_dir={some}").status == 0
    found, every = store_of(some), store_of(reference)
    assert len(found) == round(len(SENTENCES) / 4)
    places = [int(np.flatnonzero((every == one).all(axis=(1, 2)))[0]) for one in found]
    assert places == sorted(places)


@pytest.mark.rotates
def test_a_damaged_store_is_rebuilt(overrides, command, tmp_path):
    overrides = [override for override in overrides if not override.startswith("data.cache_dir")] + [
        f"data.cache_dir={tmp_path / 'cache'}"
    ]
    assert command(*overrides, f"output_dir={tmp_path / 'one'}").status == 0
    (path,) = (tmp_path / "cache").glob("teacher-*/vectors.bin")
    path.write_bytes(path.read_bytes()[:-1])
    again = command(*overrides, f"output_dir={tmp_path / 'two'}")
    assert again.status == 0
    assert str(path.parent) in again.err
    assert losses(tmp_path / "two") == losses(tmp_path / "one")


@pytest.mark.rotates
@pytest.mark.parametrize("homogeneous", ["true", "false"])
def test_parts_of_a_mixture_each_have_their_vectors(homogeneous, few, teacher, command, tmp_path):
    """Prompts of the student's data do not reach the teacher."""
    for name, texts in (("one", SENTENCES[:60]), ("two", SENTENCES[60:])):
        (tmp_path / f"{name}.txt").write_text("".join(f"{text}\n" for text in texts))
    few = [override for override in few if not override.startswith("data")]
    parts = [f"data.parts.{n}={{data: sentences, path: {tmp_path / n}.txt, prompts: 'q: '}}" for n in ("one", "two")]
    cache = [f"data.parts.{name}.cache_dir={tmp_path / 'cache'}" for name in ("one", "two")]
    run = [*few, "data=mixture", f"data.homogeneous={homogeneous}", *parts, *cache, "max_epochs=1"]
    outcome = command(*run, f"output_dir={tmp_path / 'run'}")
    assert outcome.status == 0, outcome.err
    record = json.loads((tmp_path / "run" / "teacher.json").read_text())["stores"]
    found = [np.fromfile(Path(one) / "vectors.bin", np.float16).reshape(-1, WIDTH) for one in record.values()]
    wanted = load_encoder(teacher, device="cpu").embed(SENTENCES).numpy()
    np.testing.assert_allclose(np.concatenate(found).astype(np.float32), wanted, rtol=1e-3, atol=1e-5)


def test_pairs_learn_by_contrast_and_from_a_teacher_by_an_adapter(teacher, tiny_bert, command, tmp_path):
    rows = write_rows(
        tmp_path / "qa.jsonl", [{"question": f"where is it, {text}", "answer": text} for text in SENTENCES]
    )
    run = ["model=pairs", "data=qa", f"data.path={rows}", f"backbone={tiny_bert}", f"model.teacher={teacher}"]
    run += ["model.teacher_weight=2", "model.lora.rank=4", "batch_size=12", "max_steps=6", "log_every_n_steps=1"]
    outcome = command(*run, "model.matryoshka=[32,8]", "model.lr=0.001", f"output_dir={tmp_path / 'run'}")
    assert outcome.status == 0, outcome.err
    distances = [float(row["train/distance_to_teacher"]) for row in read_rows(tmp_path / "run" / "metrics.csv")]
    assert max(distances) < 0.1  # about 1 with random projections
    assert store_of(tmp_path / "run").shape == (len(SENTENCES), 2, WIDTH)


def test_a_student_with_fewer_layers_is_compared_with_its_teacher(few, small_eval, teacher, command, tmp_path):
    suite = [f"evaluation.data_root={small_eval}", "evaluation.suite=[stsb]", "evaluation.compare_with_teacher=true"]
    out, sizes = tmp_path / "run", ["model.keep_layers=[1]", "model.matryoshka=[32,16]"]
    outcome = command(*few, *suite, *sizes, "max_steps=3", f"output_dir={out}")
    assert outcome.status == 0, outcome.err
    found = read_results(out / "results.json")["teacher_comparison"]
    library = pytest.importorskip("sentence_transformers")
    sides = {"of_teacher": teacher, "own": out / "encoder"}
    counted = {
        side: sum(one.numel() for one in library.SentenceTransformer(str(path), device="cpu")[0].model.parameters())
        for side, path in sides.items()
    }
    widths = {side: library.SentenceTransformer(str(one), device="cpu").encode(["a"]) for side, one in sides.items()}
    assert {side: found[side]["bytes_per_text"] for side in sides} == {side: one.nbytes for side, one in widths.items()}
    pooler = {"of_teacher": WIDTH * (WIDTH + 1), "own": 32 * 33}  # the library keeps BERT's pooler, which nothing reads
    for side, number in counted.items():
        assert found[side]["parameters"] in (number, number - pooler[side])
        assert found[side]["megabytes"] == pytest.approx(found[side]["parameters"] * 4 / 1e6)
        assert found[side]["texts_per_s"] > 0
    evaluated = tmp_path / "teacher.json"
    done = run_command(
        [
            "-m",
            "contrastive_encoders",
            "evaluate",
            f"encoder={teacher}",
            f"data_root={small_eval}",
            "suite=[stsb]",
            f"output={evaluated}",
        ]
    )
    assert done.returncode == 0, done.stderr
    wanted, name = json.loads(evaluated.read_text())["scores"], "stsb/cosine/spearman"
    assert found["scores"][name] == pytest.approx(wanted[name], abs=1e-3)
    assert found["kept"][name] == pytest.approx(read_results(out / "results.json")["scores"][name] / wanted[name])
    assert f"{found['scores'][name]:.2f}" in outcome.out
    replicates = [read_items(path).replicates[name] for path in (items_path(evaluated), out / "item_scores.npz")]
    percentiles = np.percentile(replicates[0].astype(np.float64) - replicates[1], [2.5, 97.5])
    np.testing.assert_allclose(found["lead"][name], percentiles, atol=1e-3)
    checkpoint = load_encoder(out / "checkpoints" / "last.ckpt", device="cpu")
    torch.testing.assert_close(checkpoint.embed(SENTENCES), load_encoder(out, device="cpu").embed(SENTENCES))


def test_prefixes_as_wide_as_the_teacher_are_not_compared(few, small_eval, teacher, tiny_bert, command, tmp_path):
    """The student is wider than its teacher."""
    suite = [f"evaluation.data_root={small_eval}", "evaluation.suite=[stsb]", "evaluation.compare_with_teacher=true"]
    run = [*few, *suite, f"backbone={teacher}", f"model.teacher={tiny_bert}", "model.matryoshka=[48,32,16]"]
    outcome = command(*run, "max_steps=3", f"output_dir={tmp_path / 'run'}")
    assert outcome.status == 0, outcome.err
    results = read_results(tmp_path / "run" / "results.json")
    scored = [{name.partition("/")[0] for name in one["scores"]} for one in (results, results["teacher_comparison"])]
    assert scored == [{"stsb", "stsb@32", "stsb@16"}, {"stsb", "stsb@16"}]


def test_the_encoder_is_exported_before_the_teacher_is_scored(few, small_eval, teacher, start, command, tmp_path):
    """The directory of the teacher is moved while the student trains."""
    moved, out = tmp_path / "teacher", tmp_path / "run"
    shutil.copytree(teacher, moved)
    suite = [f"evaluation.data_root={small_eval}", "evaluation.suite=[stsb]", f"model.teacher={moved}"]
    overrides = [*(one for one in few if not one.startswith("model.teacher")), *suite, f"output_dir={out}"]
    run = start(*overrides, "max_steps=60", "evaluation.compare_with_teacher=true")
    run.wait_for(lambda: reached(out, 3))
    moved.rename(tmp_path / "elsewhere")
    outcome = run.finish()
    assert outcome.status == 2, outcome.err
    assert f"model.teacher={moved}" in outcome.err
    assert (out / "encoder" / "modules.json").is_file()
    (tmp_path / "elsewhere").rename(moved)
    outcome = command(*overrides, "max_steps=60", "evaluation.compare_with_teacher=true")
    assert outcome.status == 0, outcome.err
    assert "teacher_comparison" in read_results(out / "results.json")


def test_a_later_stage_refuses_its_teacher_before_training(few, command, tmp_path):
    stages = ["+stages.first.max_steps=2", "+stages.second.max_steps=2", "+stages.second.model.teacher=/no/such"]
    outcome = command(*few, *stages, f"output_dir={tmp_path / 'run'}")
    assert outcome.status == 2, outcome.err
    assert "model.teacher=/no/such" in outcome.err
    assert not list((tmp_path / "run").glob("**/*.ckpt"))


def test_a_later_stage_may_have_an_objective_without_a_teacher(tiny_bert, file, command, tmp_path):
    run = ["model=simcse", "model.dropout=0.1", "data=sentences", f"data.path={file}", f"backbone={tiny_bert}"]
    stages = ["+stages.first.max_steps=1", "+stages.second.max_steps=1", "+stages.second.model=tsdae", "batch_size=12"]
    outcome = command(*run, *stages, f"output_dir={tmp_path / 'run'}")
    assert outcome.status == 0, outcome.err


def test_an_earlier_stage_can_be_the_teacher_of_a_later_one(few, command, tmp_path):
    stages = ["+stages.first.max_steps=2", "+stages.second.max_steps=2"]
    own = f"+stages.second.model.teacher={tmp_path / 'run' / 'stage-first' / 'encoder'}"
    outcome = command(*few, *stages, own, f"output_dir={tmp_path / 'run'}")
    assert outcome.status == 0, outcome.err


@pytest.mark.advice("contrastive_encoders.training.teacher:_warn_about_truncation")
def test_a_teacher_that_truncates_more_than_the_student_is_reported(few, teacher, file, command, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(teacher)
    percent = 100 * np.mean([len(tokenizer(text)["input_ids"]) > 9 for text in SENTENCES])
    longer = command(*few, "max_steps=1", f"output_dir={tmp_path / 'longer'}")
    assert longer.status == 0, longer.err
    assert f"model.teacher={teacher} truncates {percent:.0f}%" in longer.err
    equal = command(*few, "max_steps=1", "data.max_length=9", f"output_dir={tmp_path / 'equal'}")
    assert equal.status == 0, equal.err
    assert f"model.teacher={teacher} truncates" not in equal.err


def test_a_checkpoint_without_an_export_keeps_its_layers(few, command, tmp_path):
    """The checkpoint belongs to a run without encoder/."""
    out = tmp_path / "run"
    assert command(*few, "model.keep_layers=1", "max_steps=3", f"output_dir={out}").status == 0
    wanted = load_encoder(out, device="cpu").embed(SENTENCES)
    (out / "encoder").rename(tmp_path / "encoder")
    torch.testing.assert_close(load_encoder(out, device="cpu").embed(SENTENCES), wanted)


WRONG = {
    "no such teacher": (["model.teacher=/no/such/folder"], ["model.teacher=/no/such/folder: expected"]),
    "layers out of range": (["model.keep_layers=[0,5]"], ["model.keep_layers=[0,5]", "from 1 to 2"]),
    "spans": (
        ["model=declutr", "data=text", "model.teacher={teacher}"],
        ["model.teacher=", "expected null for data of model=declutr"],
    ),
    "documents again": (["model=tsdae", "data.deletion_ratio=0.6", "model.teacher={teacher}"], ["model.teacher"]),
    "without teacher": (
        ["model=simcse", "model.mlp=false", "model.teacher=null", "model.teacher_weight=2"],
        ["model.teacher_weight=2: expected null", "set model.teacher."],
    ),
}


@pytest.mark.rotates
@pytest.mark.parametrize("case", WRONG)
def test_wrong_keys_of_a_teacher_are_refused_in_one_line(case, few, teacher, command, tmp_path):
    given, said = WRONG[case]
    keys = {override.partition("=")[0] for override in given}
    overrides = [override for override in few if override.partition("=")[0] not in keys]
    outcome = command(
        *overrides,
        *(override.format(teacher=teacher) for override in given),
        "quiet=true",
        f"output_dir={tmp_path / 'run'}",
    )
    assert outcome.status == 2, outcome.err[-3000:]
    lines = outcome.err.strip().splitlines()
    assert len(lines) == 1, outcome.err
    for one in said:
        assert one in lines[0]
