"""Base classes of triplet recipes, which write scored candidates to ``OUTPUT/scored`` and select triplets from them.

Recipes differ only in their candidates: GenSE's generator writes them, or, in the paper's baselines (Chen et al. 2022,
table 8), a *source* provides, for each sentence, texts that may follow from the sentence or contradict it.
"""

import contextlib
import logging
import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from contrastive_encoders.core import InputError
from contrastive_encoders.core.config_schema import require
from contrastive_encoders.core.gense_prompts import DIRECTIONS, Direction, Prompts, parse_prompts
from contrastive_encoders.core.runtime.child_processes import check_number
from contrastive_encoders.core.runtime.worker_loop import Start, Work
from contrastive_encoders.core.runtime.worker_tasks import WorkItem
from contrastive_encoders.io.text_files import Encoding
from contrastive_encoders.synthesis.decoding.discriminator import (
    SENTENCES_PER_BATCH,
    Discriminator,
    NamedGenerator,
    ScoredText,
    name_generator,
)
from contrastive_encoders.synthesis.decoding.generator import Generator
from contrastive_encoders.synthesis.recipe import ModelRecipe
from contrastive_encoders.synthesis.recipe_configs import SentencesConfig, TripletConfig
from contrastive_encoders.synthesis.report.cards import method_of, write_triplet_card
from contrastive_encoders.synthesis.report.report import write_report
from contrastive_encoders.synthesis.rules.triplet_rules import UNJUDGED_HINT, Rules
from contrastive_encoders.synthesis.rules.triplets import SCORED, filter_identity, filter_manifest, filter_shards
from contrastive_encoders.synthesis.sentences.inputs import Inputs, open_inputs
from contrastive_encoders.synthesis.sentences.preparation import Preparation, identify, prepare
from contrastive_encoders.synthesis.server.clients import ServedDiscriminator
from contrastive_encoders.synthesis.server.server import Server
from contrastive_encoders.synthesis.shards.progress import WorkerProgress
from contrastive_encoders.synthesis.shards.provenance import versions
from contrastive_encoders.synthesis.shards.sharded_dataset import (
    DataSet,
    WrittenShard,
    judge_shards,
    write_data_set,
)
from contrastive_encoders.synthesis.shards.store import (
    MANIFEST,
    LabelCounts,
    ShardStore,
    accept_all,
    read_manifest,
)
from contrastive_encoders.synthesis.task_spec import read_spec_file

log = logging.getLogger(__name__)


class Premises(NamedTuple):
    """The inputs for which candidates are written or found, their number, and counts for the manifest."""

    number: int
    counts: dict[str, Any]  # of the sentences
    inputs: Iterable[Any]


@dataclass(kw_only=True)
class TripletRecipe(TripletConfig, ModelRecipe):
    """Base class of recipes that write triplets.

    If ``generator`` is set, GenSE's generator or an instruct model judges the candidates.
    """

    judge: NamedGenerator | None = field(init=False, default=None)
    identity: dict[str, Any] = field(init=False)  # of the scored rows
    required: ClassVar[dict[str, str]]  # keys that must be set, with a description

    @property
    def generation_folder(self) -> Path:
        return self.folder / SCORED

    def plan(self) -> None:
        self.check_engine()
        check_number("workers", self.workers or 1)
        for name, what in self.required.items():
            require(self, name, what)
        self.prompts = load_prompts(self.prompts)
        self.judge = self._name_judge() if self.generator is not None else None
        check_judged(self.judge, self.rules)
        self.identity = {"kind": SCORED, **self.identify()}
        if self.chat_template:
            self.identity["chat_template"] = True
        if self.served:
            self.identity |= {"precision": "the server's", "judged": self.judged}

    @abstractmethod
    def identify(self) -> dict[str, Any]:
        """Return the settings that determine the scored rows."""

    def claim(self) -> bool:
        return claim_triplets(self.folder, self.identity, self.rules, overwrite=self.overwrite)

    @property
    def judged(self) -> bool:
        """Return whether candidates are judged.

        With a server, they are judged only if a rule uses the scores, since a server may not return probabilities.
        """
        return self.judge is not None and (not self.served or self.rules.asks())

    def _name_judge(self) -> NamedGenerator:
        if not self.served:
            return name_generator(self)
        prompts = parse_prompts(self.prompts, "string", "prompts")
        return NamedGenerator(str(self.generator), str(self.generator), self.identify_model(), prompts, True)

    def writer(self) -> Start:
        """Return the function with which a worker loads the generator or creates the client of a server."""
        assert self.judge is not None
        if self.served:
            return self.server
        options: dict[str, Any] = {"precision": self.precision, "revision": self.revision}
        options |= {"chat_template": True} if self.chat_template else {}
        return partial(self.judge.load, device=self.device, **options)

    def about(self, counts: dict[str, Any]) -> dict[str, Any]:
        """Return additional entries of the manifest. ``counts`` are the counts of prepared sentences."""
        judge = self.judge
        return {
            "generator": {"name": judge.name if judge and self.judged else None, "weights": judge and judge.weights},
            "versions": versions(),
            "sentences": counts,
        }

    def write(self) -> None:
        self.write_scored()
        write_triplets(self.generation_folder, self.folder, self.rules, self.workers)

    @abstractmethod
    def premises(self) -> Premises:
        """Return the inputs for which candidates are written or found."""

    @abstractmethod
    def write_scored(self) -> None:
        """Generate or find candidates, judge them, and write the missing scored rows."""

    def write_candidates(self, premises: Premises, work: Work, start: Start, prompts: int = 1) -> None:
        """Write the missing scored rows. ``prompts`` is the number of prompts per input."""
        data_set = DataSet(
            self.generation_folder,
            self.recipe["name"],
            premises.number,
            self.shard_size,
            self.identity,
            self.about(premises.counts),
            premises.inputs,
            work,
            prompts,
        )
        with self.open_pool(start) as pool:
            write_data_set(data_set, pool, quiet=self.quiet)


@dataclass(kw_only=True)
class SentenceRecipe(SentencesConfig, TripletRecipe):
    """Base class of triplet recipes whose premises are sentences read from files."""

    inputs: Inputs = field(init=False)
    preparation: Preparation = field(init=False)
    given: dict[str, Any] = field(init=False)  # everything that determines the sentences
    required: ClassVar[dict[str, str]] = {"input": "sentences, or documents"}

    def plan(self) -> None:
        if self.input is not None:
            self.preparation = Preparation(kind=self.input_kind, **asdict(self.sentences))
            self.preparation.check()
            encoding = Encoding(self.encoding, "encoding")
            self.inputs = open_inputs(
                self.input, self.input_type, self.input_column, output=self.folder, encoding=encoding
            )
            self.given = identify(self.inputs, self.preparation)
        super().plan()

    def premises(self) -> Premises:
        prepared = prepare(self.inputs, self.preparation, self.generation_folder, self.given)
        return Premises(prepared.number, prepared.counts, prepared)


def load_prompts(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the prompts of the config. If they name a file (``prompts=FILE``), read the prompts from the file.

    Raises:
        InputError: The file cannot be read, or does not contain a mapping.
    """
    return {**read_spec_file(given["file"], "prompts"), "file": given["file"]} if "file" in given else given


def check_judged(judge: object, rules: Rules) -> None:
    """Raise `InputError` if a rule uses the discriminator's answers, but candidates were not judged."""
    if judge is None and rules.asks():
        expected = "rules.agree=false and rules.threshold=null, because the texts were not judged"
        raise InputError(key="rules", expected=expected, hint=UNJUDGED_HINT)


def write_triplets(source: Path, folder: Path, rules: Rules, workers: int | None) -> None:
    """Select triplets from the scored rows in ``source``, and write missing shards, the report, and the manifest."""
    scored = read_manifest(source)
    shards = int(scored["shards_planned"])
    header = {
        "identity": filter_identity(scored["identity"], rules),
        **{key: scored[key] for key in ("generator", "versions", "sentences")},
    }
    store = ShardStore(folder)
    there = read_manifest(folder) if (folder / MANIFEST).is_file() else {}
    if there.get("complete") and all(store.is_done(number) for number in range(shards)):
        return
    store.write_manifest(filter_manifest(folder, header, shards, complete=False))
    filter_shards(source, folder, rules, range(shards), workers)
    os.sync()  # a single sync; before it nothing is trusted, and everything is filtered again
    manifest = filter_manifest(folder, header, shards, complete=True)
    write_report(folder, manifest)
    write_triplet_card(folder, manifest)
    store.write_manifest(manifest)
    counts, rows = manifest["counts"], method_of(manifest).rows
    log.info(
        "%s: %s %s from %s sentences (%.1f%%). report.html shows their quality.",
        folder,
        f"{counts['accepted']:,}",
        rows,
        f"{counts['samples']:,}",
        100 * counts["yield"],
    )
    if not counts["accepted"]:
        log.warning("%s: no %s were accepted. report.html shows which rules rejected them.", folder, rows)


# ------------------------------------------------------------------------------- the baselines


class SentenceCandidates(NamedTuple):
    """Candidate hypotheses for a premise, by direction (entailment or contradiction)."""

    premise: str
    texts: dict[Direction, list[tuple[str, bool]]]  # text, and whether it is complete; nothing for a missing direction
    about: dict[str, str] = {}  # further entries of the row


# Function of the position of the first input in the dataset, and of the inputs. It returns, for each input, texts that
# may follow from it or contradict it
CandidateSource = Callable[[int, Sequence[Any]], list[SentenceCandidates]]


@dataclass(kw_only=True)
class Baseline(TripletRecipe):
    """Base class of baseline recipes, whose candidates come from a source other than GenSE's generator."""

    @abstractmethod
    def method(self) -> dict[str, Any]:
        """Return the settings that determine the candidates."""

    @abstractmethod
    def source(self, inputs: Iterable[Any]) -> Callable[[], CandidateSource]:
        """Return the function with which a worker loads the source of candidates."""

    def identify(self) -> dict[str, Any]:
        return {
            "method": self.recipe["name"],
            "generator": self.judge and self.judge.weights,
            "prompts": self.judge and self.judge.prompts.to_json(),
            "precision": self.precision,
            "max_pair_tokens": self.max_pair_tokens,
            "shard_size": self.shard_size,
            **self.method(),
        }

    def write_scored(self) -> None:
        premises = self.premises()
        work = JudgedShards(self.judge.prompts if self.judge is not None else None, self.max_pair_tokens)
        start = partial(load_source, self.source(premises.inputs), self.writer() if self.judged else None)
        self.write_candidates(premises, work, start)


class LoadedSource(NamedTuple):
    """The source of candidates and the judge that a worker has loaded."""

    source: CandidateSource
    generator: Generator | Server | None  # None: nothing is judged


def load_source(source: Callable[[], CandidateSource], writer: Start | None) -> LoadedSource:
    return LoadedSource(source(), writer() if writer is not None else None)


def discriminator_of(
    generator: Generator | Server, prompts: Prompts, max_pair_tokens: int, *, judged: bool = True
) -> Discriminator | ServedDiscriminator:
    """Return a discriminator that asks a local model or a server whether one sentence entails another."""
    if isinstance(generator, Server):
        return ServedDiscriminator(generator, prompts, max_pair_tokens, judged=judged)
    return Discriminator(generator, prompts, max_pair_tokens)


@dataclass(frozen=True)
class JudgedShards:
    """Task of a worker: get the candidates of each input from a source, and judge them."""

    prompts: Prompts | None
    max_pair_tokens: int

    def __call__(
        self, loaded: LoadedSource, tasks: Iterator[WorkItem]
    ) -> Iterator[tuple[int | None, WrittenShard | WorkerProgress]]:
        source, generator = loaded
        with generator.session() if isinstance(generator, Server) else contextlib.nullcontext():
            score = None
            if generator is not None and self.prompts is not None:
                score = discriminator_of(generator, self.prompts, self.max_pair_tokens)
            yield from judge_shards(
                tasks,
                SENTENCES_PER_BATCH,
                lambda first, some: judge_candidates(source(first, some), score),
                count_candidates,
            )


def judge_candidates(
    found: Sequence[SentenceCandidates], score: Discriminator | ServedDiscriminator | None
) -> Iterator[dict[str, Any]]:
    """Yield the scored row of each premise. If ``score`` is None, candidates are not judged."""
    pairs = [(one.premise, text) for one in found for texts in one.texts.values() for text, _ in texts]
    p_true = iter(score(pairs) if score else [None] * len(pairs))
    for one in found:
        judged: dict[str, Any] = {
            direction: [ScoredText(text=text, p_true=next(p_true), closed=whole) for text, whole in texts]
            for direction, texts in one.texts.items()
        }
        yield {"premise": one.premise, **one.about, **judged}


def count_candidates(rows: Sequence[Mapping[str, Any]]) -> dict[str, LabelCounts]:
    """Count the candidates in scored rows, by direction."""
    return accept_all({direction: sum(len(row.get(direction, ())) for row in rows) for direction in DIRECTIONS})


def claim_triplets(folder: Path, scored: Mapping[str, Any], rules: Rules, *, overwrite: bool) -> bool:
    """Claim the folder for a dataset of triplets, and return whether its triplets and scored rows are already finished.

    Scored rows that were deleted are not required.

    Raises:
        InputError: The folder contains another dataset.
    """
    store, identity = ShardStore(folder), filter_identity(scored, rules)
    if not overwrite and (folder / MANIFEST).is_file():
        before = read_manifest(folder)["identity"]
        if before.get(SCORED) == identity[SCORED] and before != identity:
            raise InputError(
                key="output",
                value=folder,
                expected="triplets that were selected by the same rules",
                hint=f"recipe=gense_filter input={folder} output=ANOTHER_FOLDER applies other rules to the same texts.",
            )
    finished = store.claim(identity, overwrite=overwrite)
    if not overwrite and (folder / SCORED / MANIFEST).is_file():
        finished = ShardStore(folder / SCORED).is_finished(scored) and finished
    if not finished:  # from now on, the folder declares its content even if interrupted
        store.write_manifest(store.manifest({"identity": identity}, 0, complete=False))
    return finished
