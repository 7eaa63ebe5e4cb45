"""Synthesis of triplets from the user's in-domain sentences, before the first stage of a GenSE run.

Test texts are excluded: the sentences of the run's tasks are passed to the synthesis as a file, and it counts those
that it encounters. All files are in ``domain.folder``, and an interrupted command is resumed there.
"""

import json
import logging
from pathlib import Path

from contrastive_encoders.core import InputError, is_address
from contrastive_encoders.core.config_schema import build
from contrastive_encoders.core.errors import TrainingError
from contrastive_encoders.evaluation.catalog import load_tasks
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.evaluation.suite import Suite
from contrastive_encoders.io.file_discovery import list_files
from contrastive_encoders.synthesis.recipe_configs import GENERATE_CONFIGS
from contrastive_encoders.synthesis.recipes.gense import Gense
from contrastive_encoders.synthesis.shards.store import SynthesisError
from contrastive_encoders.training.build import make_data
from contrastive_encoders.training.checks import names_of
from contrastive_encoders.training.composition.config_keys import check_numbers
from contrastive_encoders.training.composition.config_store import (
    assign,
    compose_config,
    dotted,
    register,
    to_container,
)
from contrastive_encoders.training.composition.override_checks import check_paths
from contrastive_encoders.training.resolve import TRIPLETS, ResolvedRun
from contrastive_encoders.training.run_config import Domain
from contrastive_encoders.training.scoring import available_variant, own_suite

HELD_OUT = "held_out.txt"

log = logging.getLogger(__name__)


def synthesize_domain(run: ResolvedRun) -> bool:
    """Generate triplets from the sentences of the domain, unless the triplets exist or no stage that will be trained
    reads them. Return whether a stage needs them.

    Raises:
        InputError: the settings or the data are invalid, including the data of the other stages, which may be trained
            only hours later.
        TrainingError: the synthesis ended before all triplets were generated.
    """
    domain = run.domain
    done = (run.folder / "results.json").is_file() and not run.overwrite
    if domain.path is None or done:
        return False
    folder = Path(domain.folder).absolute()
    output = str(folder / TRIPLETS)
    readers = [
        stage for stage in run.trainings if output in (getattr(one, "path", None) for one in stage.datasets.values())
    ]
    if not readers and run.backbone != "tiny":  # its vocabulary is built from all stages
        return False
    list_files(paths_of(domain), "domain.path", any_name=True)
    if domain.generator is None:
        raise InputError(
            key="domain.generator",
            value=None,
            expected="the run directory or the model directory of a triplet generator, or a Hub id",
        )
    for stage in run.trainings:
        if stage not in readers:
            with stage.named_in_errors():
                make_data(stage)
    folder.mkdir(parents=True, exist_ok=True)
    number = write_held_out(run, folder / HELD_OUT)
    log.info("domain: generating triplets for %s; %d sentences of the evaluation are excluded", domain.path, number)
    try:
        recipe = synthesis_of(run, folder)
        recipe.plan()
        recipe.run()
    except InputError as error:
        raise error.copy(
            f"domain: {error} (The keys are domain.path for the input, domain.generator for the generator, and "
            "domain.folder for the output.)"
        ) from error
    except SynthesisError as error:
        raise TrainingError(f"domain: {error}") from error
    log.info("domain: %s", outcome(folder / TRIPLETS))
    return True


def paths_of(domain: Domain) -> list[str]:
    return [domain.path] if isinstance(domain.path, str) else list(domain.path or [])


def synthesis_of(run: ResolvedRun, folder: Path) -> Gense:
    """Return the synthesis recipe ``gense``, with the sentences of the domain as its input. Keys in
    ``domain.synthesis`` take precedence.
    """
    domain, generator = run.domain, str(run.domain.generator)
    register(GENERATE_CONFIGS)
    cfg = compose_config("generate", (), {"recipe": "gense"})
    settings = {
        "generator": str(Path(generator).absolute()) if Path(generator).exists() else generator,
        "input": [one if is_address(one) else str(Path(one).absolute()) for one in paths_of(domain)],  # also patterns
        "output": str(folder / TRIPLETS),
        "sentences.exclude": str(folder / HELD_OUT),
        "quiet": run.quiet,
    }
    for name, value in {**settings, **dotted(domain.synthesis)}.items():
        assign(cfg, name, value)
    check_numbers(cfg)
    check_paths(cfg)
    return build(Gense, to_container(cfg))


def write_held_out(run: ResolvedRun, path: Path) -> int:
    """Write the distinct texts of the evaluation tasks to a file, one per line. A text with several lines is written
    joined to one line, and each of its lines separately. Return the number of lines.
    """
    scoring, config = run.evaluation, EvaluateConfig()
    tasks = own_suite(run, config)
    if scoring.data_root is None:
        log.warning("domain: evaluation.data_root is not set, so sentences of evaluation.suite are not excluded.")
    else:
        during = [available_variant(scoring.data_root, name) for name in names_of(scoring.during_training)]
        names = dict.fromkeys([*names_of(scoring.suite), *during])
        tasks += load_tasks(scoring.data_root, list(names), config, prefix="evaluation.").tasks
    all_texts = {text for task in Suite(tasks) for texts in task.texts() for text in texts}
    sentences = {" ".join(part.split()) for text in all_texts for part in (text, *text.splitlines())} - {""}
    path.write_text("".join(f"{one}\n" for one in sorted(sentences)), encoding="utf-8")
    return len(sentences)


def outcome(triplets: Path) -> str:
    """Describe the result of the synthesis, as recorded in its manifest: the numbers of excluded sentences and of
    triplets.
    """
    found = json.loads((triplets / "manifest.json").read_text(encoding="utf-8"))
    sentences, excluded = found["sentences"]["sentences"], found["sentences"]["left_out"].get("held out", 0)
    return (
        f"{excluded:,} of its {sentences:,} sentences occur in the evaluation and were excluded; "
        f"{found['counts']['accepted']:,} triplets in {triplets}"
    )
