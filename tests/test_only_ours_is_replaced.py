"""One rule for all commands: what we wrote carries a mark, and only that is replaced."""

import json
from pathlib import Path

import pytest

import preview.__main__ as preview
from comparison import report
from contracts import InputError
from evaluation.__main__ import check_output
from export.folder import check_replaceable, export_folder
from export.vector_file import VectorFile
from files.claims import MARK, leave_mark, others
from files.manifest import write_record
from synthesis.report.publish import check_target
from tests.damage import flip
from training.folder import claim_folder

THESIS = "x"
IDENTITY = {"encoder": "a", "rows": 2, "width": 1, "window": 2, "dtype": "float32"}
WANDB_RUN = "offline-run-20260102_030405-run-3f"
# What the release before this one left; it had no marks
FORMER = {
    "export": {
        "README.md": "---\nlibrary_name: x\n---\n\n# A sentence encoder\n\nExported from x.\n",
        **dict.fromkeys(("config.json", "modules.json", "1_Pooling/config.json", "tokenizer.json"), "{}"),
    },
    "run": {
        ".hydra/identity": "abc\n",
        **dict.fromkeys((".hydra/lock", ".hydra/config.yaml", ".hydra/hydra.yaml", ".hydra/overrides.yaml"), ""),
        **dict.fromkeys(
            ("checkpoints/last.ckpt", "checkpoints/best.ckpt", "metrics.csv", "curve.png", "curve.html"), ""
        ),
        "encoder/README.md": "# A card of one's own\n",
        "encoder/config.json": "{}",
        "results.json": '{"version": 1}',
        **dict.fromkeys((f"wandb/{WANDB_RUN}/run-run-3f.wandb", f"wandb/{WANDB_RUN}/files/media/a.png"), ""),
        **dict.fromkeys(("wandb/debug.log", "wandb/latest-run", "tensorboard/hparams.yaml"), ""),
        "tensorboard/events.out.tfevents.1.host.2.0": "",
        "stage-a/.hydra/identity": "abc\n",
        "stage-a/checkpoints/last.ckpt": "",
    },
    "comparison": {
        "comparison.json": json.dumps({"headline": {}, "arms": {}, "ranking": []}),
        "report.html": "<p>",
        "pictures/ranking.png": "",
    },
    "publication": {"manifest.json": '{"published": "parquet", "identity": {}}', "shard-00000.parquet": ""},
    "evaluation": {"a.json": '{"version": 1, "scores": {}}', "a.md": "|"},
    "vectors": {"a.npy": "", "a.npy.json": json.dumps(IDENTITY)},
    "vectors under way": {"a.npy.part": "", "a.npy.progress": json.dumps(IDENTITY) + "\n\0"},
    "page": {"a.html": '<!doctype html><meta name="generator" content="contrastive-encoders">'},
}


def train(folder):
    claim_folder(folder, "abc", resume="auto", overwrite=True, writer=True)


def embed(folder):
    VectorFile(folder / "a.npy", IDENTITY).claim(overwrite=True)


COMMANDS = {
    "export": check_replaceable,
    "run": train,
    "comparison": lambda folder: report.check_replaceable(folder, ["pictures/ranking.png"]),
    "publication": lambda folder: check_target(folder, folder.parent / "data", overwrite=True),
    "evaluation": lambda folder: check_output(folder / "a.json"),
    "vectors": embed,
    "page": lambda folder: preview.check_output(folder / "a.html"),
}


def made(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def all_in(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("export", {"config.json": "{}", "thesis.docx": THESIS}),
        ("export", {"config.json": "{}"}),
        ("export", {"README.md": "# BERT\n", "config.json": "{}", "model.safetensors": ""}),
        ("export", FORMER["export"] | {"thesis.docx": THESIS}),
        ("export", FORMER["export"] | {"1_Pooling/notes.txt": THESIS}),
        ("export", FORMER["export"] | {".git/HEAD": "ref"}),
        ("run", {"checkpoints/last.ckpt": THESIS}),
        ("run", {"encoder/config.json": THESIS}),
        ("run", {"wandb/notes.txt": THESIS}),
        ("run", {".hydra/config.yaml": "of another program"}),
        ("run", {"stage-a/.hydra/config.yaml": "of another program"}),
        ("run", FORMER["run"] | {"checkpoints/thesis.docx": THESIS}),
        ("run", FORMER["run"] | {"wandb/thesis.docx": THESIS}),
        ("run", FORMER["run"] | {f"wandb/{WANDB_RUN}/thesis.docx": THESIS}),
        ("run", FORMER["run"] | {"stage-a/tensorboard/thesis.docx": THESIS}),
        ("run", FORMER["run"] | {"encoder/thesis.docx": THESIS}),
        ("run", FORMER["run"] | {"stage-a/checkpoints/thesis.docx": THESIS}),
        ("comparison", {"report.html": THESIS}),
        ("comparison", {"comparison.json": "[]"}),
        ("comparison", {"pictures/ranking.png": THESIS}),
        ("publication", {"manifest.json": "{}"}),
        ("publication", FORMER["publication"] | {"thesis.docx": THESIS}),
        ("evaluation", {"a.json": "{}"}),
        ("evaluation", {"a.md": THESIS}),
        ("vectors", {"a.npy": THESIS}),
        ("vectors", {"a.npy.json": "{}"}),
        ("vectors", {"a.npy.part": THESIS}),
        ("page", {"a.html": "<p>mine</p>"}),
    ],
)
def test_what_is_not_ours_is_refused_and_stays(tmp_path, command, files):
    folder = made(tmp_path / "F", files)
    before = all_in(folder)
    with pytest.raises(InputError, match=r"F"):
        COMMANDS[command](folder)
    assert all_in(folder) == before


@pytest.mark.parametrize("former", FORMER)
def test_what_an_earlier_release_wrote_is_still_ours(tmp_path, former):
    folder = made(tmp_path / "F", FORMER[former])
    COMMANDS[former.split()[0]](folder)
    if former == "run":
        assert {*all_in(folder)} == {".hydra/identity", ".hydra/lock"}


def test_of_a_run_that_is_thrown_away_what_is_anothers_stays(tmp_path):
    mine = {"thesis.docx": THESIS, ".hydra/mine": THESIS, "stage-a/thesis.docx": THESIS, "stage-b/notes.txt": THESIS}
    folder = made(tmp_path / "F", FORMER["run"] | mine)
    (folder / "stage-b" / ".hydra").mkdir()
    (folder / "stage-b" / ".hydra" / "identity").write_text("abc\n")
    train(folder)
    left = all_in(folder)
    assert mine.keys() <= left.keys()
    assert {*left} - {*mine} == {".hydra/identity", ".hydra/lock"}


def test_an_export_replaces_an_export_and_nothing_else(tmp_path):
    folder = tmp_path / "F"
    for text in ("first", "second"):
        with export_folder(folder) as part:
            made(part, {"config.json": text, "1_Pooling/config.json": "{}"})
    assert all_in(folder).keys() == {"config.json", "1_Pooling/config.json", MARK}
    assert others(folder) == []
    (folder / "1_Pooling" / "mine").symlink_to(tmp_path)
    with (
        pytest.raises(InputError, match="1_Pooling/mine, which no command"),
        export_folder(folder),
    ):
        pass
    assert (folder / "config.json").read_text() == "second"
    (folder / "1_Pooling" / "mine").unlink()
    flip(folder / MARK)  # what cannot be read vouches for nothing
    with pytest.raises(InputError, match="which no command"):
        check_replaceable(folder)


@pytest.mark.parametrize("place", ["home", "above", "here", "checkout", "root"])
def test_a_home_a_root_and_a_checkout_are_never_replaced(tmp_path, monkeypatch, place):
    folder = tmp_path / "F"
    folder.mkdir()
    leave_mark(folder)
    if place in ("home", "above"):
        monkeypatch.setattr(Path, "home", lambda: folder / ("" if place == "home" else "user"))
    elif place == "here":
        monkeypatch.chdir(folder)
    elif place == "checkout":
        (folder / ".git").mkdir()
    with pytest.raises(InputError, match="never replaced"):
        check_replaceable(Path("/") if place == "root" else folder)


def test_a_report_is_replaced_by_the_next_also_after_a_kill(tmp_path):
    leave_mark(tmp_path, ["report.html"])  # which is written before the report
    (tmp_path / "report.html").write_text("half")
    report.check_replaceable(tmp_path)


def test_an_evaluation_is_replaced_by_the_next(tmp_path):
    write_record(tmp_path / "a.json", {"version": 1, "scores": {}})
    (tmp_path / "a.md").write_text("|")
    check_output(tmp_path / "a.json")
    (tmp_path / "empty.json").write_text("")
    check_output(tmp_path / "empty.json")
