"""README.md and the pages of docs/ are a promise: every command is composed and checked here, in this process.

Commands that need no hub and no cluster also run: evaluations and exports as written, and trainings with small sizes
and a small corpus instead of the reader's. Stages, syntheses, comparisons, previews, sweeps and races run in the tests
of those packages (``tests.guide`` is how they find their commands); commands with the hub's data run in slow tests.
"""

import gzip
import importlib.util
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
from bs4 import BeautifulSoup

from contrastive_encoders.export.quantization import quantize, ranges_of
from docs.config_reference import page as page_of_every_key
from tests.forks import run_command
from tests.guide import GUIDE, PAPERS, RECORDS, REFERENCE, ROOT, check_command, commands_of, in_blocks, text_of

ABOUT_NAMES = "metrics design design-decisions security experiment-log".split()
ABOUT = ("CONTRIBUTING", *(f"docs/{name}" for name in ABOUT_NAMES))
LAUNCHERS = ("python", "torchrun", "srun", "contrastive-encoders")
NOT_OURS = ("ray", "source", "eval")  # the latter two are the shell's own
COMMANDS = commands_of(*GUIDE)
STARTED = [line for line in commands_of(*GUIDE, *REFERENCE, *RECORDS) if line.startswith(LAUNCHERS)]
TRAININGS = [line for line in COMMANDS if re.search(r"contrastive.encoders train ", line)]
EVALUATIONS = [line for line in COMMANDS if "-encoders evaluate" in line.replace("_", "-") and "suite=mteb" not in line]
OFFICIAL = [line for line in COMMANDS if "suite=mteb" in line]
# the command with devices= runs in the test of its output
EXPORTS = [
    line for line in COMMANDS if re.search(r"contrastive.encoders (export|embed) ", line) and " devices=" not in line
]
ON_THE_READERS_TEXT = [line for line in TRAININGS if "data=text" in line and "--" not in line]
NEEDS_THE_HUB = [line for line in TRAININGS if "data=openwebtext" in line]
NEEDS_A_CLUSTER = [line for line in TRAININGS if line.startswith("srun")]
SMALL = """tiny.hidden_size=32 tiny.layers=1 tiny.heads=2 tiny.intermediate_size=64 tiny.vocab_size=600 tiny.dropout=0.0
    backbone=tiny max_steps=2 log_every_n_steps=1 data.num_workers=0 quiet=true""".split()


def train_arguments(command: str) -> list[str]:
    """Return the arguments after ``train``, without the launcher."""
    arguments = shlex.split(command)
    return arguments[arguments.index("train") + 1 :]


def run(arguments: list[str], cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    if arguments[0] == sys.executable:
        return run_command(arguments[1:], cwd, **env)
    return subprocess.run(arguments, cwd=cwd, capture_output=True, text=True, check=False, timeout=300)


def train(arguments: list[str], cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return run([sys.executable, str(ROOT / "train.py"), *arguments], cwd, **env)


def small_run(command: str, corpus: Path, folder: Path) -> list[str]:
    """Return the command's choices with a small corpus and a tiny backbone; the corpus also replaces hub data."""
    kept = [
        argument
        for argument in train_arguments(command)
        if not argument.startswith(("data=", "data.", "backbone=", "devices="))
    ]
    data = ["data=text", f"data.path={corpus}", "data.max_span=auto", f"data.cache_dir={folder / 'cache'}"]
    return [*kept, *data, *SMALL, "batch_size=8", f"output_dir={folder / 'run'}"]


def test_the_commands_are_found():
    assert all(in_blocks(page) for page in (*GUIDE, *PAPERS, "docs/recipes"))
    assert ON_THE_READERS_TEXT
    assert NEEDS_THE_HUB
    assert EVALUATIONS
    assert EXPORTS
    assert {line.split()[0] for line in COMMANDS} <= {*LAUNCHERS, *NOT_OURS, "make"}


@pytest.mark.rotates
@pytest.mark.parametrize("command", STARTED)
def test_a_command_composes(command):
    """This includes commands that need the hub, or several nodes: their keys, groups and values must exist."""
    check_command(command)


@pytest.mark.rotates
@pytest.mark.parametrize("command", EVALUATIONS)
def test_evaluation_commands_run(command, small_tables, small_word_vectors, small_reranker, tmp_path):
    """They run as written, except for the encoder and the tables; downloads come from an empty mirror."""
    command_line = shlex.split(command)
    arguments = command_line[command_line.index("evaluate") + 1 :]
    fetches = "action=fetch" in arguments
    put = {
        "encoder": small_word_vectors,
        "reranker": small_reranker,
        "data_root": tmp_path if fetches else small_tables,
    }
    kept = [argument for argument in arguments if argument.split("=")[0] not in (*put, "pooling")]
    filled = [f"{key}={value}" for key, value in put.items() if any(argument.startswith(key) for argument in arguments)]
    (tmp_path / "questions.csv").write_text("query,document\ntea salt,salt drum\nmoss lamp,lamp rope\n")
    (tmp_path / "pairs.csv").write_text("sentence1,sentence2,score\ntea salt,salt,4\nmoss,lamp rope,1\nfern,fern,5\n")
    several = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    several = several if command_line[0] == "torchrun" else []
    launcher = [sys.executable, "-m", *several, "contrastive_encoders", "evaluate"]
    source = [f"download_mirror={tmp_path}"] if fetches else []
    done = run([*launcher, *kept, *filled, *source], tmp_path)
    # the small tables are not the official ones, and the mirror is empty: both are detected and reported
    assert done.returncode == (2 if fetches or "action=check" in arguments else 0), done.stderr
    assert "Traceback" not in done.stderr
    if any(argument.startswith("encoder=") for argument in arguments):
        assert "95 %" in done.stdout


@pytest.mark.rotates
@pytest.mark.parametrize("command", EXPORTS)
def test_export_commands_run(command, tiny_mlm, tmp_path):
    """They run as written, except for the encoder; nothing is sent: the hub is switched off."""
    name = "embed" if "embed" in shlex.split(command) else "export"
    arguments = shlex.split(command)
    given = dict(argument.split("=", 1) for argument in arguments[arguments.index(name) + 1 :])
    given["run" if "run" in given else "encoder"] = str(tiny_mlm)
    if name == "embed":
        write_texts(tmp_path / given["input"], given.get("column", "text"))
        if "quantization_ranges" in given:
            np.save(tmp_path / given["quantization_ranges"], [[-1.0] * 32, [1.0] * 32])
    several = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    several = several if arguments[0] == "torchrun" else []
    launcher = [sys.executable, "-m", *several, "contrastive_encoders", name]
    done = run([*launcher, *map("=".join, given.items())], tmp_path)
    if "push" in given:
        assert done.returncode == 2
        assert "HF_HUB_OFFLINE" in done.stderr
    elif "format=onnx" in command and not importlib.util.find_spec("onnxruntime"):
        assert "contrastive-encoders[onnx]" in done.stderr
    else:
        assert done.returncode == 0, done.stderr
        assert (tmp_path / given["output"]).exists()


def write_texts(path: Path, column: str) -> None:
    import pyarrow.parquet

    texts = ["one text", "another", "a third"]
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.table({column: texts}), path)
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress("".join(json.dumps({column: text}) + "\n" for text in texts).encode()))
    else:
        path.write_text("\n".join([column, *texts] if path.suffix == ".csv" else texts))


def test_the_python_of_the_page_runs(tiny_mlm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    floats = np.random.default_rng(0).normal(size=(20, 32)).astype(np.float32)
    np.save("vectors.npy", floats)
    np.save("bits.npy", quantize(floats, "binary"))
    np.save("small.npy.ranges.npy", ranges := ranges_of([floats]))
    np.save("small.npy", quantize(floats, "int8", ranges))
    blocks = re.findall(r"^```python\n(.*?)^```", text_of("docs/export"), re.M | re.S)
    names: dict = {}
    for code in (block for block in blocks if "load_encoder" in block):
        exec(code.replace("outputs/quickstart", str(tiny_mlm)), names)
    assert names["vectors"].shape == (1, 32)
    assert names["found"].rows_QK.shape == (1, 10)


@pytest.mark.rotates
@pytest.mark.parametrize("command", OFFICIAL)
def test_the_command_of_mteb_runs(command, small_tables, small_word_vectors, tmp_path):
    """A folder with the data set's name in the working directory is read instead of the hub's data."""
    pytest.importorskip("mteb", reason="the extra mteb is not installed")
    (tmp_path / "mteb" / "stsbenchmark-sts").mkdir(parents=True)
    rows = [line.split("\t") for line in (small_tables / "STSBenchmark" / "test.tsv").read_text().splitlines()[1:]]
    lines = [json.dumps({"sentence1": a, "sentence2": b, "score": float(score)}) for a, b, score in rows]
    (tmp_path / "mteb" / "stsbenchmark-sts" / "test.jsonl").write_text("\n".join(lines))
    arguments = shlex.split(command.replace("outputs/quickstart", str(small_word_vectors)))[1:]
    done = run([sys.executable, "-m", "contrastive_encoders", *arguments], tmp_path, HF_HOME=str(tmp_path / "home"))
    assert done.returncode == 0, done.stderr
    assert "STSBenchmark/mteb/cosine_spearman" in done.stdout
    assert (tmp_path / "mteb.json").is_file()


def test_the_readers_text_becomes_an_encoder(corpus_file, tmp_path):
    """The longest command of "Your own text" writes what the page says, and is already finished the second time."""
    command = max(ON_THE_READERS_TEXT, key=len)
    arguments = small_run(command, corpus_file, tmp_path)
    done = run_command([ROOT / "train.py", *arguments], tmp_path, drawn=True)
    assert done.returncode == 0, done.stderr
    tree = re.search(r"^outputs/MODEL-DATA-HASH8/.*?^```", text_of("docs/start"), flags=re.M | re.S).group()
    promised = re.findall(r"^  (\S+)", tree, flags=re.MULTILINE)
    assert len(promised) >= 7
    assert {name for name in promised if not (tmp_path / "run" / name).exists()} == set()
    assert {path.name for path in (tmp_path / "run").iterdir()} <= {name.rstrip("/") for name in promised}
    assert json.loads((tmp_path / "run" / "results.json").read_text())["cost"]["steps"] == 2
    again = train([argument for argument in arguments if argument != "quiet=true"], tmp_path)
    assert again.returncode == 0, again.stderr
    assert "overwrite=true" in again.stdout + again.stderr


@pytest.mark.slow  # ten starts of train.py, two of them with several processes
@pytest.mark.parametrize("command", [line for line in NEEDS_THE_HUB if line not in NEEDS_A_CLUSTER])
def test_the_other_commands_run_on_a_small_corpus(command, corpus_file, tmp_path, request):
    """They run as written, except for the hub's corpus, its backbone, and the number of processes."""
    arguments = small_run(command, corpus_file, tmp_path)
    if "evaluation.data_root=eval" in arguments:
        data_root = request.getfixturevalue("shared_data") / "eval"
        arguments[arguments.index("evaluation.data_root=eval")] = f"evaluation.data_root={data_root}"
        arguments = [argument.replace("every_n_steps=500", "every_n_steps=1") for argument in arguments]
    env = {"WANDB_MODE": "offline"} if "logger=wandb" in arguments else {}
    if command.startswith("torchrun"):
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
        done = run([*launcher, str(ROOT / "train.py"), *arguments, "trainer.accelerator=cpu"], tmp_path)
    else:
        devices = ["devices=2", "trainer.accelerator=cpu"] if "trainer=ddp" in arguments else []
        done = train([*arguments, *devices], tmp_path, **env)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run" / "results.json").read_text())["cost"]["steps"] == 2


@pytest.mark.slow
def test_quickstart_runs(tmp_path):
    """``make quickstart`` is this command; here it runs two steps from random weights."""
    assert "train.py experiment=quickstart " in (ROOT / "Makefile").read_text(encoding="utf-8")
    for name in ("quickstart", "quickstart_random"):
        folder = tmp_path / name
        arguments = [f"experiment={name}", *SMALL, "evaluation.every_n_steps=1", f"output_dir={folder}"]
        done = train(arguments, tmp_path)
        assert done.returncode == 0, done.stderr
        results = json.loads((folder / "results.json").read_text())
        assert set(results["scores"]) == {f"pydocs/cosine/{metric}" for metric in ("mrr", "ndcg@10", "recall@10")}
        assert results["verdict"]["scores"] == ["pydocs/cosine/ndcg@10"]
        assert results["changes"]["pydocs"]["queries"] == 500


@pytest.mark.parametrize("page", [*GUIDE, *REFERENCE, *RECORDS, *ABOUT])
def test_keys_and_benchmarks_of_the_pages_exist(page):
    """Keys are checked as written there, ``data.anchor_placement=uniform``; values are covered by other tests."""
    text = text_of(page)
    written = set(re.findall(r"\b((?:model|data|tiny|evaluation|checkpoint)\.\w+)=", text))
    assert written - rows_of(page_of_every_key()) == set()
    names = set(re.findall(r"python -m benchmarks[. ](\w+)", text)) - {"all"}
    assert [name for name in names if not (ROOT / "benchmarks" / f"{name}.py").is_file()] == []


def rows_of(text: str) -> set[str]:
    return set(re.findall(r"^\| `([^`]+)` \|", text, re.M))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The pages of ``make docs``, parsed; Sphinx's own page of search results is reached by the search box."""
    pytest.importorskip("furo", reason="the extra docs is not installed")
    folder = tmp_path_factory.mktemp("site").resolve()
    done = run([sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "docs", str(folder)], ROOT)
    assert done.returncode == 0, done.stderr
    paths = [path for path in folder.rglob("*.html") if path.name != "search.html"]
    return folder, {path: BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser") for path in paths}


def targets(path: Path, page: BeautifulSoup, tags: str) -> list[tuple[Path, str]]:
    """Return the file and the fragment of each local link."""
    urls = [urlsplit(tag.get("href") or tag.get("src") or "") for tag in page.select(tags)]
    local = [url for url in urls if not url.scheme and not url.netloc]
    return [(path.parent.joinpath(unquote(url.path)).resolve() if url.path else path, url.fragment) for url in local]


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(site):
    """``make docs``: every page is in the menu, nothing comes from a network."""
    folder, pages = site
    assert {folder / f"{name}.html" for name in ("index", "keys", "api", "papers")} <= set(pages)
    fetched = re.compile(r"<(?:script|link|img)[^>]+(?:src|href)=\"(?:https?:)?//[^\"]+")
    assert [found for path in pages for found in fetched.findall(path.read_text(encoding="utf-8"))] == []


@pytest.mark.slow
def test_links_of_the_site_have_a_target(site):
    _, pages = site
    anchors = {
        path: {tag.get("id") or tag.get("name") for tag in page.select("[id], a[name]")} for path, page in pages.items()
    }
    links = [(path, *target) for path, page in pages.items() for target in targets(path, page, "[href], [src]")]
    assert len(links) > 1000
    assert [(path.name, file.name) for path, file, _ in links if not file.is_file()] == []
    assert [link for link in links if link[2] and link[1] in pages and unquote(link[2]) not in anchors[link[1]]] == []


@pytest.mark.slow
def test_every_page_is_within_two_clicks(site):
    folder, pages = site
    first = {file for file, _ in targets(folder / "index.html", pages[folder / "index.html"], "a")}
    second = {file for path in first & set(pages) for file, _ in targets(path, pages[path], "a")}
    assert set(pages) - first - second == set()
