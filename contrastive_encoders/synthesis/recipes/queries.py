"""Recipe that writes questions for passages of documents, to train and evaluate a retrieval encoder.

``OUTPUT/written`` contains every question. ``OUTPUT/scored`` contains the same questions with the judge's probability,
and the passages that an encoder retrieves for each. All other files are derived from these two folders, and are
recreated when a key changes that affects them, such as a rule.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from contrastive_encoders.core import RECORD_VERSION, InputError
from contrastive_encoders.core.config_schema import require
from contrastive_encoders.core.counts import count_of
from contrastive_encoders.core.runtime.devices import device_of
from contrastive_encoders.core.runtime.worker_loop import Start
from contrastive_encoders.core.runtime.worker_tasks import WorkItem
from contrastive_encoders.io.atomic import remove
from contrastive_encoders.io.file_discovery import check_output_apart
from contrastive_encoders.synthesis.questions.generation import (
    JudgedQuestions,
    PassageQuestions,
    QuestionCandidate,
    QuestionShards,
    skip_judging,
)
from contrastive_encoders.synthesis.questions.output import (
    BEIR_FILES,
    CANDIDATES,
    DOCUMENTS,
    HELD_OUT,
    PAIRS,
    SENTENCES,
    TRAIN,
    candidate_rows,
    document_rows,
    kept,
    sentence_rows,
    training_rows,
    write_beir,
    write_lines,
    write_rows,
    write_sheet,
)
from contrastive_encoders.synthesis.questions.passages import (
    Collection,
    CorpusPassage,
    Part,
    divide,
    read_collection,
)
from contrastive_encoders.synthesis.questions.previous_questions import Known, read_known
from contrastive_encoders.synthesis.questions.prompts import QuestionPrompts, parse_question_prompts
from contrastive_encoders.synthesis.questions.report import write_question_card, write_question_report
from contrastive_encoders.synthesis.questions.rules import KEPT, apply_rules, tally
from contrastive_encoders.synthesis.questions.scores import (
    NearestPassages,
    find_neighbors,
    no_ranks,
    read_neighbors,
    write_neighbors,
)
from contrastive_encoders.synthesis.recipe import ModelRecipe, log
from contrastive_encoders.synthesis.recipe_configs import QueriesConfig
from contrastive_encoders.synthesis.shards.provenance import identify_generator
from contrastive_encoders.synthesis.shards.sharded_dataset import (
    DataSet,
    ShardInputs,
    WrittenShard,
    write_data_set,
)
from contrastive_encoders.synthesis.shards.store import (
    MANIFEST,
    ShardStore,
    read_entries,
    read_manifest,
    read_shard,
    shard_name,
)
from contrastive_encoders.synthesis.triplet_recipe import load_prompts

WRITTEN, SCORED = "written", "scored"
ESTIMATE_PASSAGES = 32  # passages for which a plan writes questions
FEW_KEPT_FRACTION = 0.1  # share of all questions
FEW_DEV_QUESTIONS = 50  # fewer are too few to choose an encoder or a learning rate
DIVISION_VERSION = 2  # version of the division of documents into parts
FEW_KEPT_HINT = (
    "The model may not support this language, or the passages may be too similar. See the examples in report.html."
)


@dataclass(kw_only=True)
class Queries(QueriesConfig, ModelRecipe):
    """Recipe ``queries``: questions for passages of documents, as training rows and BEIR folders."""

    takes_encoder: ClassVar[bool] = True
    asks: QuestionPrompts = field(init=False)
    collection: Collection = field(init=False)
    earlier: Known = field(init=False, default_factory=dict)  # of passages that an earlier dataset contains
    fresh: list[int] = field(init=False)  # indices of the other passages
    written: DataSet = field(init=False)
    scored: DataSet = field(init=False)
    identity: dict[str, Any] = field(init=False)  # of all other files

    def plan(self) -> None:
        self.check_engine()
        require(self, "generator", "the hub id or directory of a causal language model")
        require(self, "input", "documents: a file, several, or a directory")
        self.passages.check_lengths()
        self.rules.check_lengths()
        self._check_scores()
        self.asks = parse_question_prompts(load_prompts(self.prompts))
        weights = self.identify_model()
        check_output_apart(self.input, self.folder)  # type: ignore[arg-type]
        self.collection = read_collection(
            self.input,  # type: ignore[arg-type]
            self.input_column,
            self.passages,
            self.reading.on_error,
            self.reading.max_skipped,
            self.reading.encoding,
        )
        shares: dict[Part, float] = {"dev": self.dev_fraction, "held_out": self.held_out_fraction}
        divide(self.collection, shares, self.how.seed)
        self.fresh = list(range(len(self.collection.passages)))
        self._plan_stages(weights)
        if self.reuse_from is not None:
            self.earlier = read_known(Path(self.reuse_from).expanduser(), self.scored.identity)
            self.fresh = [place for place in self.fresh if self._key(place) not in self.earlier]
            self._plan_stages(weights)
        self.identity = {
            "kind": "queries",
            "parts": {
                "version": DIVISION_VERSION,
                "held_out_fraction": self.held_out_fraction,
                "dev_fraction": self.dev_fraction,
                "seed": self.how.seed,
            },
            "rules": asdict(self.rules),
            "encoder": self._identify_encoder(),
            "negatives": {"number": self.negatives, "margin": self.negative_margin},
            SCORED: self.scored.identity,
        }

    def _key(self, place: int) -> tuple[str, str]:
        """Return the heading and text of a passage, by which the passage is found in an earlier dataset."""
        passage = self.collection.passages[place]
        return passage.heading, passage.text

    def _check_scores(self) -> None:
        if self.rules.max_rank is not None or self.negatives:
            require(self, "encoder", "an encoder, which rules.max_rank and negatives need")
        if not self.use_judge and (self.rules.min_p_yes is not None or self.judge is not None):
            raise InputError(key="use_judge", value=False, expected="true, because rules.min_p_yes or judge is set")
        if self.held_out_fraction + self.dev_fraction >= 1:
            raise InputError(
                key="held_out_fraction",
                value=f"{self.held_out_fraction:g}",
                expected=f"a fraction whose sum with dev_fraction={self.dev_fraction:g} is less than 1, so that "
                "documents remain for training",
            )

    def _plan_stages(self, weights: Mapping[str, Any]) -> None:
        how = replace(self.how, stop="\n")
        identity = {
            "kind": WRITTEN,
            "styles": self.asks.styles,
            "generator": weights,
            "precision": self.recorded_precision,
            "chat_template": self.chat_template,
            "decoding": how.sampling(),
            "plan": {name: getattr(self, name) for name in ("queries_per_passage", "max_passage_tokens")},
            "passages": {**asdict(self.passages), "sha256": self.collection.sha256()},
            "shard_size": self.shard_size,
        }
        if self.earlier:
            identity["known"] = len(self.collection.passages) - len(self.fresh)
        passages = [self.collection.passages[place] for place in self.fresh]
        about = self.about_generator(weights)
        writes = QuestionShards(how, self.asks, self.queries_per_passage, self.max_passage_tokens)
        folder, number = self.folder, len(passages)
        self.written = DataSet(
            folder / WRITTEN,
            "questions",
            number,
            self.shard_size,
            identity,
            about,
            passages,
            writes,
            len(self.asks.styles),
        )
        judge = (
            (identify_generator(self.judge, None, "judge") if not self.served else {"model": self.judge})
            if self.judge
            else weights
        )
        judged = {
            "kind": SCORED,
            "judge": judge if self.has_judge else None,
            "asked": self.asks.judge.discrimination._asdict(),
            WRITTEN: identity,
        }
        work = JudgedQuestions(self.asks, self.max_passage_tokens) if self.has_judge else skip_judging
        rows = WrittenQuestions(folder / WRITTEN, passages, self.shard_size)
        self.scored = DataSet(folder / SCORED, "judged", number, self.shard_size, judged, about, rows, work)

    @property
    def has_judge(self) -> bool:
        """Return whether questions are judged.

        With a server, they are judged only if a rule uses the scores, since a server may not return probabilities.
        """
        return self.use_judge and (not self.served or self.rules.min_p_yes is not None)

    def _identify_encoder(self) -> dict[str, Any] | None:
        if self.encoder is None:
            return None
        from contrastive_encoders.encoders.loading.load import load_encoder

        return {
            "name": self.short_name(self.encoder),
            "fingerprint": load_encoder(self.encoder, device="cpu").fingerprint,
        }

    def claim(self) -> bool:
        store = ShardStore(self.folder)
        before = read_manifest(self.folder) if (self.folder / MANIFEST).is_file() and not self.overwrite else None
        if not self.overwrite:  # the questions must be the same; the other files are recreated
            self.written.store.is_finished(self.written.identity)
        if before is None:
            store.claim(self.identity, overwrite=self.overwrite)
            return False
        same = before["complete"] and before["identity"] == round_trip_json(self.identity)
        return (
            same
            and self.scored.is_complete()
            and not self.estimate_only
            and all(map(Path.exists, self._derived_files()))
        )

    def _derived_files(self) -> list[Path]:
        """Return the paths of all files that are derived from the judged questions."""
        beir = [f"{name}/{file}" for name in HELD_OUT.values() for file in BEIR_FILES]
        return [self.folder / name for name in (PAIRS, TRAIN, CANDIDATES, DOCUMENTS, SENTENCES, *beir)]

    def write(self) -> None:
        self._log_plan()
        if self.estimate_only:
            self._log_estimate()
            return
        self._write_scored()
        candidates = self._candidates()
        self._write_outputs(candidates, self._neighbors(candidates))

    def _candidates(self) -> list[QuestionCandidate]:
        """Return the judged questions of this dataset, and reused questions of an earlier dataset, ordered by
        passage.
        """
        here: list[Any] = list(read_entries(self.folder / SCORED))
        rows = [{**row, "passage": self.fresh[row["passage"]]} for row in here]
        for place in set(range(len(self.collection.passages))) - set(self.fresh):
            rows += [{**row, "passage": place} for row in self.earlier[self._key(place)]]
        order = {style: place for place, style in enumerate(self.asks.styles)}
        found: list[Any] = sorted(rows, key=lambda row: (row["passage"], order[row["style"]], row["number"]))
        return found

    def _write_scored(self) -> None:
        """Write and judge the missing questions. A model is loaded only if questions are missing."""
        scored = self.scored.folder
        if (scored / MANIFEST).is_file() and read_manifest(scored)["identity"] != round_trip_json(self.scored.identity):
            log.info("%s: judging the questions again, because the config of the judge has changed", scored)
            remove(scored)
        own = self.has_judge and self.judge is None
        if not self.written.is_complete() or (own and not self.scored.is_complete()):
            with self.open_pool(self.writer()) as pool:
                write_data_set(self.written, pool, quiet=self.quiet)
                if own:
                    write_data_set(self.scored, pool, quiet=self.quiet)
        if not self.scored.is_complete():
            with self.open_pool(self._judge() if self.has_judge else no_judge) as pool:
                write_data_set(self.scored, pool, quiet=self.quiet)

    def _judge(self) -> Start:
        assert self.judge is not None
        return replace(self, generator=self.judge, revision=None).writer()

    def _neighbors(self, candidates: Sequence[QuestionCandidate]) -> NearestPassages:
        if self.encoder is None:
            return no_ranks(len(candidates))
        identity = round_trip_json({"encoder": self.identity["encoder"]["fingerprint"], SCORED: self.scored.identity})
        found = read_neighbors(self.scored.folder, identity)
        if found is None:
            from contrastive_encoders.encoders.loading.load import load_encoder

            encoder = load_encoder(self.encoder, device=device_of(self.device))
            found = find_neighbors(candidates, self.collection, encoder.encode_document, encoder.encode_query)
            write_neighbors(self.scored.folder, found, identity)
        return found

    def _write_outputs(self, candidates: Sequence[QuestionCandidate], neighbors: NearestPassages) -> None:
        """Select questions by the rules, and write all output files.

        The manifest is marked complete last. If it is marked, all other files exist.
        """
        collection, folder = self.collection, self.folder
        questions = apply_rules(candidates, collection, neighbors, self.rules, self.asks.examples)
        number = sum(one.outcome == KEPT for one in questions)
        store = ShardStore(folder)
        about = {**self.written.about, "collection": collection.counts()}
        counts: dict[str, Any] = {
            "inputs": len(collection.passages),
            "samples": len(questions),
            "accepted": number,
            "yield": number / max(len(questions), 1),
            "rules": tally(questions),
            "parts": {part: len(kept(questions, collection, part)) for part in ("train", *HELD_OUT)},
        }
        manifest = {
            "version": RECORD_VERSION,
            "complete": False,
            "identity": self.identity,
            **about,
            "shards_planned": 0,
            "counts": counts,
        }
        store.write_manifest(manifest)
        write_rows(folder / CANDIDATES, candidate_rows(questions, collection, neighbors))
        write_rows(folder / PAIRS, training_rows(questions, collection, neighbors, 0, 0))
        rows = training_rows(questions, collection, neighbors, self.negatives, self.negative_margin)
        counts["training_rows"] = write_rows(folder / TRAIN, rows)
        write_rows(folder / DOCUMENTS, document_rows(collection))
        write_lines(folder / SENTENCES, sentence_rows(collection))
        for part, name in HELD_OUT.items():
            write_beir(folder / name, kept(questions, collection, part), collection)
        write_sheet(folder, questions, collection, self.how.seed)
        write_question_report(folder, manifest, questions, collection)
        write_question_card(folder, manifest)
        worst = sorted(counts["rules"].items(), key=lambda pair: -pair[1]["left_out"])[:2]
        why = ", ".join(f"{rule}: {one['left_out']:,}" for rule, one in worst)
        wanted = {"train": 1.0, "dev": self.dev_fraction, "held_out": self.held_out_fraction}
        if lacking := [part for part, share in wanted.items() if share and not counts["parts"][part]]:
            raise InputError(
                key="rules",
                value=f"{number:,} of {len(questions):,} questions (rejected as {why})",
                expected=f"rules that keep at least one question for {' and for '.join(lacking)}",
                location=str(folder),
                hint=f"{FEW_KEPT_HINT} Use more documents, or relax the rules. The questions are not generated again.",
            )
        store.write_manifest({**manifest, "complete": True})
        log.info(
            "%s: kept %s of %s questions (%.1f%%), %s, %s with %s. report.html shows their quality.",
            *(
                folder,
                f"{number:,}",
                f"{len(questions):,}",
                100 * counts["yield"],
                count_of(counts["parts"]["train"], "training pair"),
                count_of(counts["training_rows"], "training row"),
                count_of(self.negatives, "hard negative"),
            ),
        )
        if self.dev_fraction and counts["parts"]["dev"] < FEW_DEV_QUESTIONS:
            fraction = min(2 * self.dev_fraction, (1 - self.held_out_fraction + self.dev_fraction) / 2)
            log.warning(
                "%s: only %s to choose a learning rate or an encoder by. Use more documents, or set "
                "dev_fraction=%.3g reuse_from=%s with another output. For `adapt`, set "
                "race.questions=\"['dev_fraction=%.3g']\" race.reuse_from=%s with another output_dir.",
                *(folder / HELD_OUT["dev"], count_of(counts["parts"]["dev"], "question")),
                *(fraction, folder, fraction, folder),
            )
        if not counts["training_rows"]:
            log.warning(
                "%s: %s is empty, because no question has %s. Lower negatives or negative_margin, or train on %s.",
                *(folder, TRAIN, count_of(self.negatives, "hard negative"), PAIRS),
            )
        if number < FEW_KEPT_FRACTION * len(questions):
            log.warning("%s: few questions were kept; rejected as %s. %s", folder, why, FEW_KEPT_HINT)

    def _log_plan(self) -> None:
        counts = self.collection.counts()
        log.info(
            "%s documents in %s groups, %s passages (%s), %s questions to write",
            *(f"{counts[name]:,}" for name in ("documents", "groups", "passages")),
            ", ".join(f"{part} {found['passages']:,}" for part, found in counts["parts"].items()),
            f"{len(self.fresh) * len(self.asks.styles) * self.queries_per_passage:,}",
        )
        if passed := self.collection.passed_over:
            log.info("skipped files: %s", ", ".join(f"{number} {kind}" for kind, number in passed.items()))
        for one in self.collection.unread:
            log.warning("skipped: %s", one)

    def _log_estimate(self) -> None:
        """Write questions for a sample of passages, and log the estimated time for all passages."""
        passages = [self.collection.passages[place] for place in self.fresh]
        if not passages:
            log.info("reuse_from contains questions for all passages; there are none to generate")
            return
        some = passages[:: max(1, len(passages) // ESTIMATE_PASSAGES)][:ESTIMATE_PASSAGES]
        judge = JudgedQuestions(self.asks, self.max_passage_tokens)
        with self.open_pool(self.writer()) as pool:
            began = time.monotonic()
            for _, result in pool.run(self.written.work, iter([WorkItem(0, ShardInputs(0, list(some)))]), 1):
                if isinstance(result, WrittenShard) and self.has_judge:
                    rows = [json.loads(line) for line in result.lines.splitlines()]
                    written = [
                        PassageQuestions(one, [row for row in rows if row["passage"] == at])
                        for at, one in enumerate(some)
                    ]
                    for _ in pool.run(judge, iter([WorkItem(0, ShardInputs(0, written))]), 1):
                        pass
            seconds = (time.monotonic() - began) / len(some) * len(passages) / self.devices
        duration = f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{seconds / 60:.1f} minutes"
        log.info(
            "%s took %.1f s: about %s for all %s. Nothing was written.",
            *(count_of(len(some), "passage"), time.monotonic() - began, duration, f"{len(passages):,}"),
        )


def round_trip_json(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Convert entries to JSON and back, so that they can be compared with the entries of a manifest."""
    found: dict[str, Any] = json.loads(json.dumps(entries))
    return found


def no_judge() -> None:
    """Start function of a worker that loads no model, because questions are not judged."""


@dataclass(frozen=True)
class WrittenQuestions:
    """Iterable over the passages in order, each with its questions, which are read from the shards in ``folder``."""

    folder: Path
    passages: Sequence[CorpusPassage]
    shard_size: int

    def __iter__(self) -> Iterator[PassageQuestions]:
        for first in range(0, len(self.passages), self.shard_size):
            rows: dict[int, list[Any]] = {}
            for row in read_shard(self.folder / shard_name(first // self.shard_size)):
                one: Any = row
                rows.setdefault(one["passage"], []).append(one)
            for place in range(first, min(first + self.shard_size, len(self.passages))):
                yield PassageQuestions(self.passages[place], rows.get(place, []))
