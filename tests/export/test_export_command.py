"""``contrastive-encoders export``: other libraries compute the same embeddings from it, without this project."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from contrastive_encoders.cli.export import run
from contrastive_encoders.core import EncoderPrompts, InputError
from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.encoders.pooling import POOLERS
from contrastive_encoders.export.sentence_transformers import export_encoder
from contrastive_encoders.export.transformers_folder import export_transformers, transformers_example
from contrastive_encoders.io.output_directory import MARKER
from tests.export.texts import TORTURE
from tests.forks import run_command
from tests.in_process import run_here

ALONE = """
import json, os, sys
for name in ("encoders", "export", "contracts", "evaluation", "runs", "losses", "datamodules"):
    sys.modules[name] = None  # importing it fails, also where the project is installed
texts = json.load(open(sys.argv[2]))
"""
BY_SENTENCE_TRANSFORMERS = (
    ALONE
    + """
import numpy
from sentence_transformers import SentenceTransformer
models = [SentenceTransformer(folder, device="cpu") for folder in sys.argv[1].split(os.pathsep)]
found = [model.encode(texts, show_progress_bar=False) for model in models]
"""
)


def command(*arguments: str) -> None:
    """Run what the command line does, in this process."""
    run_here("export", run, arguments)


def alone(script: str, folder: Path | str, texts: list[str], tmp_path: Path) -> np.ndarray:
    """Return the embeddings that a script makes in a separate process, which cannot import this project.

    Several folders are joined by os.pathsep and encoded one after the other.
    """
    (tmp_path / "script.py").write_text(script)
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    arguments = [sys.executable, "script.py", str(folder), "texts.json", "vectors.npy"]
    done = subprocess.run(arguments, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return np.load(tmp_path / "vectors.npy")


def python_of(card: str) -> str:
    return re.search(r"```python\n(.*?)```", card, flags=re.DOTALL).group(1)


def small_files(folder: Path) -> dict:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.stat().st_size < 100_000
    }


@pytest.mark.slow
def test_the_published_minilm_in_out_and_in_again(minilm_path, tmp_path):
    """The example in the card of a transformers folder runs without this project and its modules."""
    one, two = tmp_path / "one", tmp_path / "two"
    command(f"run={minilm_path}", f"output={one}")
    command(f"run={one}", f"output={two}")
    assert small_files(one) == small_files(two)
    folders = [minilm_path, two]
    plain = tmp_path / "plain"
    command(f"run={minilm_path}", f"output={plain}", "format=transformers")
    card = (plain / "README.md").read_text()
    assert "library_name: transformers" in card
    assert not list(plain.glob("*module*"))
    code = python_of(card).replace("PATH_OR_ID_OF_THIS_FOLDER", str(plain))
    script = BY_SENTENCE_TRANSFORMERS + code.replace('["A sentence.", "Another one."]', "texts[:1] + texts[4:]")
    script += "\nnumpy.save(sys.argv[3], numpy.concatenate([*found, vectors.numpy()]))"
    rows = alone(script, os.pathsep.join(map(str, folders)), TORTURE, tmp_path)
    expected, *found = np.split(rows[: len(folders) * len(TORTURE)], len(folders))
    for folder, vectors in zip(folders[1:], found, strict=True):
        np.testing.assert_allclose(vectors, expected, atol=1e-5, rtol=0)
        np.testing.assert_allclose(load_encoder(folder).embed(TORTURE), expected, atol=1e-5, rtol=0)
    by_the_example = rows[len(folders) * len(TORTURE) :]
    np.testing.assert_allclose(by_the_example, np.concatenate([expected[:1], expected[4:]]), atol=1e-5, rtol=0)


def an_export(folder: Path, backbone: Path, **options) -> Path:
    encoder = load_encoder(backbone)
    settings = {"pooling": "mean", "max_length": 64, **options}
    return export_encoder(folder, transformer=encoder.trunk, tokenizer=encoder.tokenizer, **settings)


def test_what_a_folder_says_is_kept(tiny_mlm, tmp_path):
    prompts = {"default": "text: ", "query": "question: ", "clustering": "topic: "}
    options = {"pooling": "avg_top2", "prompts": EncoderPrompts(prompts, "clustering"), "similarity": "dot"}
    folder = an_export(tmp_path / "a", tiny_mlm, normalize=True, **options)
    command(f"run={folder}", f"output={tmp_path / 'b'}")
    before, after = small_files(folder), small_files(tmp_path / "b")
    assert {name for name in after if after[name] != before.get(name)} == {"README.md", MARKER}
    assert before.keys() == after.keys() - {"README.md"}


def test_settings_may_be_replaced(tiny_mlm, tmp_path):
    folder = an_export(tmp_path / "a", tiny_mlm, prompts=EncoderPrompts({"default": "text: "}, "default"))
    command(
        f"run={folder}",
        f"output={tmp_path / 'b'}",
        "pooling=cls",
        "prompt='ask: '",
        "max_length=9",
        "similarity=euclidean",
    )
    told = load_encoder(tmp_path / "b").description
    assert (told["pooling"], told["prompt"], told["max_length"]) == ("cls", "ask: ", "9")
    top = json.loads((tmp_path / "b" / "config_sentence_transformers.json").read_text())
    assert top["similarity_fn_name"] == "euclidean"


@pytest.mark.parametrize(
    "pooling", [name for name, pooler in POOLERS.items() if not pooler.decodes and not pooler.is_shipped]
)
@pytest.mark.parametrize("normalize", [False, True])
def test_the_example_of_a_transformers_folder_gives_the_vectors(tiny_bert, tmp_path, pooling, normalize):
    encoder = load_encoder(tiny_bert, pooling=pooling, prompt="say: ", max_length=20)
    encoder.normalize = normalize
    folder = export_transformers(tmp_path / "plain", encoder)
    code = python_of(transformers_example(encoder)).replace("PATH_OR_ID_OF_THIS_FOLDER", str(folder))
    texts = ["bread and salt", "", "a violin " * 30]
    names: dict = {}
    exec(code.replace('["A sentence.", "Another one."]', repr(texts)), names)
    np.testing.assert_allclose(names["vectors"], encoder.embed(texts), atol=1e-5, rtol=0)


def test_the_command_as_it_is_typed(tiny_mlm, tmp_path):
    def typed(*more):
        return run_command(
            ["-m", "contrastive_encoders", "export", f"run={tiny_mlm}", f"output={tmp_path / 'out'}", *more], tmp_path
        )

    done = typed()
    assert done.returncode == 0, done.stderr
    assert "modules.json" in done.stderr
    again = typed()
    assert again.returncode == 2
    assert "overwrite=true" in again.stderr
    assert "Traceback" not in again.stderr
    typo = typed("fromat=onnx")
    assert typo.returncode == 2
    assert "fromat=onnx: " in typo.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run={encoder}"], "^output=null: "),
        (["run={encoder}", "output={encoder}"], "^output=.*/tiny_mlm[^/]*: .*encoder"),
        (
            ["run={encoder}", "output={tmp}/new", "similarity=dot", "format=transformers"],
            "^similarity=dot: .* format=transformers",
        ),
        (["run={encoder}", "output={tmp}/file"], "^output=.*/file: (?!.*writable)"),
        (["run={encoder}", "output={tmp}/thesis", "overwrite=true"], r"^output=.*/thesis: .*years\.txt"),
        (["run={encoder}", "output={tmp}/file/deeper"], "^output=.*/file: .*writable"),
        (["run={vectors}", "output={tmp}/new"], r"^run=.*\.(txt|vec): "),
    ],
)
def test_invalid_input_is_refused_and_nothing_is_written(tiny_mlm, small_word_vectors, tmp_path, arguments, message):
    (tmp_path / "file").write_text("a")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "years.txt").write_text("work")
    filled = [argument.format(encoder=tiny_mlm, tmp=tmp_path, vectors=small_word_vectors) for argument in arguments]
    with pytest.raises(InputError, match=message):
        command(*filled)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "thesis", "years.txt"]


OWN_FORMAT = """
from contrastive_encoders.export.formats import FORMATS, ExportFormat


def write(output, source, config):
    from contrastive_encoders.export.atomic_export import export_folder

    with export_folder(output) as folder:
        (folder / "width.txt").write_text(str(source.encoder.width))


FORMATS["width"] = ExportFormat("the width of the embeddings", write)
"""


@pytest.mark.slow
def test_a_format_is_one_entry(tiny_mlm, tmp_path):
    """A format that is added to the table is listed by --help, which imports no torch, and writes its directory."""
    script = f"""
import sys
{OWN_FORMAT}
from contrastive_encoders.cli.export import main
try:
    main(sys.argv[1:])
finally:
    print("torch" in sys.modules)
"""
    valid = [f"run={tiny_mlm}", f"output={tmp_path / 'out'}", "format=width"]
    runs = {
        name: subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, cwd=tmp_path)
        for name, arguments in {"help": ["--help"], "export": valid}.items()
    }
    assert runs["help"].returncode == runs["export"].returncode == 0, runs
    assert "width: the width " in " ".join(runs["help"].stdout.split())
    assert runs["help"].stdout.rstrip().endswith("False")
    assert (tmp_path / "out" / "width.txt").read_text() == "32"


def test_an_unknown_format_is_refused(tiny_mlm, tmp_path):
    with pytest.raises(InputError) as error:
        command(f"run={tiny_mlm}", f"output={tmp_path / 'new'}", "format=pickle")
    assert (error.value.key, error.value.value) == ("format", "pickle")
