"""Every kind of job, each small enough to take seconds, and their inputs."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.forks import TRAIN

NOUNS = "ferry harbour violin bread comet orchard telescope spoon market clock river glass".split()
ENOUGH_WORDS = "The {} that stood beside the old {} was seen by all of them, number {}."
SIZES = ("vocab_size=400", "hidden_size=16", "layers=1", "heads=2", "intermediate_size=32", "max_length=64")
TINY = ["backbone=tiny", *(f"tiny.{size}" for size in SIZES), "tiny.dropout=0.2"]
STEPS = ["max_steps=12", "batch_size=6", "log_every_n_steps=1", "checkpoint.every_n_steps=3", "model.lr=0.003"]
SCORED = ["evaluation.suite=[stsb]", "evaluation.during_training=[stsb-dev]", "evaluation.every_n_steps=4"]
MONITORED = [*SCORED, "monitor=stsb-dev/cosine/spearman"]
OPEN = ["rules.agree=false", "rules.threshold=null", "rules.drop_near_copies=false", "rules.min_premise_words=0"]
OPEN += ["rules.min_hypothesis_words=0"]  # the texts of random weights pass no rule
SHORT = ["max_new_tokens=8", "shard_size=6"]
COLUMNS = {
    "dino": ("text_a", "text_b"),
    "nli": ("premise", "hypothesis"),
    "sentences": ("text",),
    "triplets": ("anchor", "positive", "negative"),
    "generation": ("premise", "entailment", "contradiction"),
}
OBJECTIVES = {
    "declutr": ["data=text", "data.path=documents.txt", "data.min_span=4", "data.max_span=12"],
    "simcse": ["data=sentences", "data.path=sentences.jsonl"],
    "tsdae": ["data=sentences", "data.path=sentences.jsonl"],
    "sbert_nli": ["data=nli", "data.path=nli.jsonl"],
    "sroberta": ["data=dino", "data.path=dino.jsonl", "data.postprocess=off"],
    "gense": ["data=triplets", "data.path=triplets.jsonl"],
}


class Job(NamedTuple):
    """A command whose output is ``out`` in its working directory; ``desk`` is next to that folder."""

    name: str
    target: str  # train.py's path, or a module
    overrides: Sequence[str]
    output: str = "output=out"
    processes: int = 1
    reads: str = ""  # a file of the desk that must not change between two commands
    once: bool = False  # a finished job is refused, not reported as finished

    @property
    def result(self) -> str:
        return self.output.partition("=")[2]

    def command(self) -> list[str]:
        return [*self.overrides, self.output]


def lay_out(desk: Path) -> None:
    """Write texts, tables and models of random weights."""
    from tests.conftest import save_tiny_roberta, save_tiny_t5
    from tests.synthesis.test_synthesis_command import write_toy_generator

    rng = random.Random(4)
    for name in ("bert", "t5"):
        (desk / name).mkdir(parents=True)
    save_tiny_roberta(desk / "bert", 0.1)
    save_tiny_t5(desk / "t5", 0.0)
    write_toy_generator(desk / "lm")
    for name, columns in COLUMNS.items():
        rows = [
            {column: f"A {rng.choice(NOUNS)} by the {rng.choice(NOUNS)}, {i}." for column in columns} for i in range(40)
        ]
        for place, row in enumerate(rows):
            row |= {"dino": {"label": (0.1, 0.5, 0.9)[place % 3]}, "nli": {"label": place % 3}}.get(name, {})
        (desk / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    documents = [" ".join(rng.choices(NOUNS, k=150)) for _ in range(30)]
    (desk / "documents.txt").write_text("\n".join(documents) + "\n")
    texts = [ENOUGH_WORDS.format(rng.choice(NOUNS), rng.choice(NOUNS), number) for number in range(60)]
    (desk / "texts.txt").write_text("\n".join(texts) + "\n")
    (desk / "STSBenchmark").mkdir()
    for split in ("dev", "test"):
        pairs = [(*rng.sample(texts, 2), f"{rng.uniform(0, 5):.2f}") for _ in range(12)]
        lines = ["sentence1\tsentence2\tscore", *("\t".join(pair) for pair in pairs)]
        (desk / "STSBenchmark" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    trial = {"method": "grid", "metric": {"name": "stsb-dev/cosine/spearman", "goal": "maximize"}}
    trial |= {"command": ["${args_no_hyphens}"], "parameters": {"model.temperature": {"values": [0.05, 0.1]}}}
    (desk / "sweep.yaml").write_text(json.dumps(trial))


def jobs(desk: Path) -> list[Job]:
    """Return all jobs; they can be started in any folder."""

    def at(overrides: list[str]) -> list[str]:
        names = {
            f"data.path={name}": f"data.path={desk / name}"
            for name in ("documents.txt", *(f"{one}.jsonl" for one in COLUMNS))
        }
        return [names.get(override, override) for override in overrides]

    def trained(name: str, *more: str, processes: int = 1) -> Job:
        overrides = [
            f"model={name}",
            *at(OBJECTIVES[name]),
            *TINY,
            *STEPS,
            *MONITORED,
            f"evaluation.data_root={desk}",
            *more,
        ]
        return Job(f"train {name}", TRAIN, overrides, "output_dir=out", processes)

    def stage(name: str, of: str) -> list[str]:
        return [f"+stages.{name}.{override}" for override in at(OBJECTIVES[of])]

    simcse, bert = trained("simcse"), f"encoder={desk / 'bert'}"
    two = ["trainer=ddp", "trainer.accelerator=cpu", "devices=2"]
    stages = [
        "model=simcse",
        *TINY,
        *STEPS,
        *stage("first", "simcse"),
        *stage("second", "simcse"),
        "+stages.second.seed=7",
    ]
    gense = ["recipe=gense", f"generator={desk / 't5'}", f"input={desk / 'texts.txt'}", *OPEN, *SHORT, "workers=1"]
    dino = ["recipe=dino_x2", f"generator={desk / 'lm'}", f"input={desk / 'texts.txt'}", *SHORT]
    both = ["recipe=dino_x1x2", f"generator={desk / 'lm'}", "num_x1=12", *SHORT]
    embed = [bert, f"input={desk / 'texts.txt'}", "chunk_rows=4"]
    generation = [
        "model=gense_generator",
        "data=nli_generation",
        f"data.path={desk / 'generation.jsonl'}",
        f"data.dev_path={desk / 'generation.jsonl'}",
    ]
    quoted = ",".join(f"'{override}'" for override in [*simcse.overrides, "quiet=true"])
    arms = [f"race.arms.{one}=['quiet=true']" for one in ("both", "mlm")] + ["~race.arms.contrastive"]
    alone = [
        *(trained(name) for name in OBJECTIVES),
        Job(
            "train generator",
            TRAIN,
            [*generation, *TINY, *STEPS, "evaluation.every_n_steps=4", "monitor=generator-dev/perplexity"],
            "output_dir=out",
        ),
        Job("stages", TRAIN, stages, "output_dir=out"),
        Job("gense", "generate", gense, reads="texts.txt"),
        Job("dino_x2", "generate", dino, reads="texts.txt"),
        Job("dino_x1x2", "generate", both),
        Job("filter", "generate", ["recipe=gense_filter", "input=../made", *OPEN, "workers=2"]),
        Job("embed", "embed", embed, "output=out.npy", reads="texts.txt"),
        Job("embed parquet", "embed", embed, "output=out.parquet", reads="texts.txt"),
        Job(
            "evaluation",
            "evaluate",
            [bert, "suite=[stsb]", f"data_root={desk}", "cache_dir=vectors"],
            "output=out.json",
        ),
        Job("export", "export", [f"run={desk / 'bert'}"], once=True),
        Job("sweep", "sweep", [str(desk / "sweep.yaml"), *simcse.overrides]),
        Job(
            "race",
            "compare",
            ["race=declutr_losses", f"race.common=[{quoted}]", *arms, "seeds=[1]", "budget={examples: 48}"],
        ),
    ]
    together = [
        trained("simcse", *two, processes=2),
        trained("declutr", *two, processes=2),
        Job("stages", TRAIN, [*stages, *two], "output_dir=out", 2),
        Job("gense", "generate", [*gense, "devices=2"], processes=2, reads="texts.txt"),
        Job("dino_x1x2", "generate", [*both, "devices=2"], processes=2),
        Job("embed", "embed", [*embed, "devices=2"], "output=out.npy", 2, reads="texts.txt"),
        Job(
            "sweep",
            "sweep",
            [str(desk / "sweep.yaml"), *simcse.overrides, "parallel=2"],
            processes=2,
        ),
    ]
    return [job._replace(overrides=tuple(job.overrides)) for job in (*alone, *together)]
