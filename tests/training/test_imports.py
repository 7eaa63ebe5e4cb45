"""A command imports only the libraries that it uses: each takes up to a second."""

import subprocess
import sys

import pytest

UNUSED = {"altair", "bitsandbytes", "datasets", "matplotlib", "pandas", "peft", "sentence_transformers", "sklearn"}
UNUSED |= {"tensorboard", "torchvision", "wandb"}
RUN = """
import logging, sys
from contrastive_encoders.cli.main import main
class Modules(logging.Handler):
    def emit(self, record):
        if record.getMessage().startswith("step 1/"):
            print(*sorted(set(sys.modules)))
logging.getLogger("contrastive_encoders").addHandler(Modules())
main(["train", *sys.argv[1:]])
"""
EMBED = """
import sys
import contrastive_encoders.export.embed
print(*sorted(set(sys.modules)))
"""


def modules_of(code, *arguments):
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[0].split())


@pytest.mark.slow
def test_a_run_until_its_first_step(tmp_path):
    (tmp_path / "rows.csv").write_text("question,answer\n" + "".join(f"q {n} ?,a {n} .\n" for n in range(8)))
    arguments = ["model=pairs", "data=qa", f"data.path={tmp_path}/rows.csv", f"output_dir={tmp_path}/run"]
    modules = modules_of(RUN, *arguments, "backbone=tiny", "max_steps=1", "batch_size=4", "logger=csv")
    assert "pytorch_lightning" in modules
    assert modules & UNUSED == set()


@pytest.mark.rotates
def test_embed():
    modules = modules_of(EMBED)
    assert "transformers" in modules
    assert modules & (UNUSED | {"pytorch_lightning", "torchmetrics"}) == set()
