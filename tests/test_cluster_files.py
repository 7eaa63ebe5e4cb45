"""Scripts and manifests for clusters, and the Dockerfile: their syntax, and that their commands exist."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import yaml

from tests.guide import check_command

ROOT = Path(__file__).resolve().parent.parent
CLUSTER = ROOT / "examples" / "cluster"
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def calls_of_srun(script, arguments, folder):
    """Return the calls of a script in a job of four nodes; a replacement for `srun` records them."""
    for name, body in (("srun", f'echo "$@" >> {folder}/calls'), ("scontrol", "echo a1; echo a2"), ("sleep", "")):
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    slurm = {"SLURM_JOB_NODELIST": "a[1-4]", "SLURM_NNODES": "4", "SLURM_GPUS_ON_NODE": "2", "SLURM_JOB_ID": "7"}
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    # The output ends with the last process that writes it, including background processes
    subprocess.run(["bash", CLUSTER / script, *arguments], env={**slurm, "PATH": path}, check=True, capture_output=True)
    return (folder / "calls").read_text().splitlines()


def example_of(script):
    return re.search(r"sbatch examples/cluster/\S+ (.*)", (CLUSTER / script).read_text())[1].split()


def test_a_synthesis_of_a_slurm_job_is_dealt_to_the_gpus_of_all_nodes(tmp_path):
    script = "slurm_synthesis.sbatch"
    calls = calls_of_srun(script, example_of(script), tmp_path)
    assert sum("ray start" in call for call in calls) == 2
    (call,) = (call for call in calls if "ray start" not in call)
    command = call.partition("SLURM_PROCID ")[2]
    assert command.endswith("cluster=a1:6379 devices=8 num_gpus=1")
    check_command(command)


def test_a_training_of_a_slurm_job_is_on_all_nodes(tmp_path):
    script = "slurm_training.sbatch"
    (call,) = calls_of_srun(script, example_of(script), tmp_path)
    assert "--nnodes=4 --nproc-per-node=2 --rdzv-backend=c10d --rdzv-endpoint=a1:29500" in call
    assert call.endswith("trainer=ddp num_nodes=4 devices=2")
    check_command(f"python -m{call.partition(' -m')[2]}")


def test_manifests_hold_commands_that_compose():
    job = yaml.safe_load((CLUSTER / "rayjob.yaml").read_text())
    assert job["kind"] == "RayJob"
    check_command(job["spec"]["entrypoint"])
    job = yaml.safe_load((CLUSTER / "pytorchjob.yaml").read_text())
    assert job["kind"] == "PyTorchJob"
    worker = job["spec"]["pytorchReplicaSpecs"]["Worker"]
    (container,) = worker["template"]["spec"]["containers"]
    assert container["command"][0] == "torchrun"
    check_command(f"python {' '.join(container['command'][1:])}")
    words = dict(word.split("=", 1) for word in container["command"][4:])
    assert int(words["num_nodes"]) == worker["replicas"]
    assert words["devices"] == job["spec"]["nprocPerNode"] == container["resources"]["limits"]["nvidia.com/gpu"]


def test_the_dockerfile_copies_and_installs_what_there_is():
    text = (ROOT / "Dockerfile").read_text()
    instructions = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    assert {name for name, _ in instructions} <= {"FROM", "ARG", "WORKDIR", "COPY", "RUN", "CMD"}
    for name, words in instructions:
        if name == "COPY":
            assert all((ROOT / source).exists() for source in words.split()[:-1])
    assert set(re.search(r"'\.\[(.*)\]'", text)[1].split(",")) <= EXTRAS.keys()
