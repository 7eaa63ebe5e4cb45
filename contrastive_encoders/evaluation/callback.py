"""Lightning callbacks that score a model during training and after training.

`choose_suites` selects the tasks.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

import pytorch_lightning as pl
import torch
from torch import nn

from contrastive_encoders.core import Embedder, InputError, ItemScores, RatedPairs, RetrievalData, Writer
from contrastive_encoders.core.score_names import ScoreName
from contrastive_encoders.encoders.attention import evaluation_mode
from contrastive_encoders.evaluation.catalog import TaskSelection, is_task, load_tasks
from contrastive_encoders.evaluation.embedding_pool import LastPoolEmbeddings
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.evaluation.generator_dev import GeneratorDev
from contrastive_encoders.evaluation.scorer import Scorer
from contrastive_encoders.evaluation.suite import Suite
from contrastive_encoders.io.checkpoint import load_intact
from contrastive_encoders.statistics.bootstrap import Scores

log = logging.getLogger(__name__)

MAIN_MEASURES = (
    "all/spearman",
    "cosine/spearman",
    "cosine/mrr",
    "cosine/ndcg@10",
    "reranked/ndcg@10",
    "cosine/ap",
    "cosine/accuracy",
    "knn/accuracy",
    "accuracy",
    "perplexity",
)  # scores shown in the log line of a scoring
MAX_SHOWN_SCORES = 8  # maximum number of scores in the line


class Suites(NamedTuple):
    final: Scorer
    during: Scorer


def choose_suites(
    model: object,
    held_out: Iterable[RatedPairs | RetrievalData],
    data_root: str | Path | None,
    suite: Sequence[str],
    during: Sequence[str],
    config: EvaluateConfig,
    sizes: Sequence[int],
) -> Suites:
    """Return two suites: the tasks that are scored before and after training, and the tasks that are scored during
    training.

    The first suite contains ``held_out`` (the tasks of the data module and of ``custom_tasks``), the tasks ``suite``
    from the tables, and the tasks of ``during`` that these lack: a task that selects the best weights is also scored
    before and after training. A generator has its own suite. ``sizes`` of embedding prefixes are scored in addition.

    A name of ``during`` that is not a task is ignored here; messages name the configuration keys of a run.

    Raises:
        InputError: see `load_tasks`.
    """
    if isinstance(model, Writer):
        if data_root is not None:
            log.warning("evaluation.data_root=%s is ignored, because this model computes no embeddings.", data_root)
        generator = GeneratorDev()
        return Suites(generator, generator if GeneratorDev.name in during else Suite([]))
    held_out_suite = Suite(held_out, sizes=sizes)
    if data_root is None:
        return Suites(held_out_suite, Suite((task for task in held_out_suite if task.name in during), sizes=sizes))
    selection = load_tasks(data_root, suite, config, prefix="evaluation.")
    known = {task.name for task in [*held_out_suite, *selection.tasks]}
    if missing := [name for name in during if name not in known and is_task(name)]:
        more = load_tasks(data_root, missing, config, prefix="evaluation.")
        selection = TaskSelection(
            [*selection.tasks, *more.tasks], {}, selection.row_count_mismatches | more.row_count_mismatches
        )
    held_out_names = {task.name for task in held_out_suite}
    final = Suite(
        [*held_out_suite, *(task for task in selection.tasks if task.name not in held_out_names)],
        selection.row_count_mismatches,
        sizes,
    )
    return Suites(final, Suite((task for task in final if task.name in during), sizes=sizes))


class ScoreCallback(pl.Callback):
    """Callback that scores an encoder during training, with the same scores on every rank.

    So ``monitor`` selects the same checkpoint on all ranks.

    Args:
        suite: tasks of the first scoring, before training unless ``at_start`` is False, and of the final scoring.
        during: tasks that are scored every ``every_n_steps`` optimizer steps and at the last step.
        every_n_steps: interval of the scorings in steps; 0 or None: no scoring during training.
        at_start: whether to score before training.
        is_last_step: function that returns whether the current step is the last one. Alternatively, ``score_step`` is
            called after the last step.
        progress: whether to show the progress of the first and the final scoring.
        precision: precision of the matmuls that compute embeddings.
        load_backbone: function that loads the encoder to score as the one before training, if the run changes it before
            training, for example by another pooling; ``scores_at_start`` are then the scores of the changed encoder.

    Attributes:
        history: the scores of each step.
    """

    def __init__(
        self,
        suite: Scorer,
        during: Scorer,
        every_n_steps: int | None = None,
        at_start: bool | None = None,
        is_last_step: Callable[[pl.Trainer], bool] = lambda trainer: False,
        progress: bool = False,
        precision: Literal["fp32", "bf16"] = "fp32",
        load_backbone: Callable[[torch.device], Embedder] | None = None,
    ) -> None:
        self.progress, self.load_backbone = progress, load_backbone
        self.dtype = torch.bfloat16 if precision == "bf16" else None
        self.suite, self.during = suite, during
        self.every_n_steps = every_n_steps or 0
        self.at_start = at_start is not False
        self.is_last_step = is_last_step
        self.history: dict[int, dict[str, float]] = {}
        self.seconds = 0.0  # duration of the last scoring
        self.seconds_in_total = 0.0  # duration of all scorings of this process
        self.scores_before: dict[str, float] | None = None
        self.scores_at_start: dict[str, float] | None = None
        self.found_before: dict[str, list[int]] = {}
        self.items_before: ItemScores | None = None  # compared with the final ones
        self._restored = False
        self._last: LastPoolEmbeddings | None = None

    def score(self, pl_module: pl.LightningModule, *, as_last: bool = False) -> Scores:
        """Score the full suite, with confidence intervals. All ranks must call this.

        Args:
            pl_module: module in training.
            as_last: the weights are those of the last call, so that its embeddings can be reused.
        """
        store = self._last if as_last else None
        with scoring_mode(pl_module):
            return self.suite.score(pl_module, intervals=True, store=store, autocast=self.dtype, progress=self.progress)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._restored and (latest := max(self.history, default=0)):
            # Lightning does not restore them; a checkpoint written before the next scoring must contain its score
            _publish(trainer, self.history[latest])
        if self.at_start and trainer.global_step == 0 and self.scores_before is None and len(self.suite):
            scores = self._score_at(trainer, pl_module, self.suite, intervals=True)
            if self.load_backbone is not None:
                self.scores_at_start = scores.values
                scores = self._score_backbone(self.load_backbone(trainer.strategy.root_device), trainer)
            self.scores_before, self.found_before, self.items_before = (
                scores.values,
                scores.first_documents,
                scores.items,
            )

    def _score_backbone(self, encoder: Embedder, trainer: pl.Trainer) -> Scores:
        """Score the original backbone, before the run changes it at the start of training."""
        start_time, module = time.perf_counter(), SimpleNamespace(encoder=encoder)
        scores = self.suite.before(module, intervals=True, autocast=self.dtype, progress=self.progress)
        if trainer.is_global_zero:
            log.info("unchanged backbone: %s (%.1f s)", main_scores(scores.values), time.perf_counter() - start_time)
        return scores

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        is_last = self.is_last_step(trainer)
        if self.every_n_steps and (trainer.global_step % self.every_n_steps == 0 or is_last):
            self.score_step(trainer, pl_module, is_last=is_last)

    def score_step(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *, is_last: bool) -> None:
        """Score the tasks in ``during`` at the current step, unless they were already scored at this step or scoring
        during training is disabled.

        The embeddings of the last step are kept for the end of training, where mostly the same texts are scored again
        with the same weights.
        """
        step = trainer.global_step  # stays the same while gradients accumulate
        if self.every_n_steps and step > 0 and step not in self.history and len(self.during):
            self._last = LastPoolEmbeddings() if is_last else None
            _publish(trainer, self._score_at(trainer, pl_module, self.during, self._last).values)

    def _score_at(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        suite: Scorer,
        store: LastPoolEmbeddings | None = None,
        *,
        intervals: bool = False,
    ) -> Scores:
        step, start_time = trainer.global_step, time.perf_counter()
        with scoring_mode(pl_module):
            scores = (suite.score if step else suite.before)(
                pl_module,
                intervals=intervals,
                store=store,
                autocast=self.dtype,
                progress=self.progress and not step,
            )
        self.history[step], self.seconds = scores.values, time.perf_counter() - start_time
        self.seconds_in_total += self.seconds
        if trainer.is_global_zero:
            # Logged directly, because pl_module.log reaches the loggers only every log_every_n_steps
            for logger in trainer.loggers:
                logger.log_metrics(scores.values, step=step)
            log.info("step %d: %s (%.1f s)", step, main_scores(scores.values), self.seconds)
        return scores

    def state_dict(self) -> dict[str, Any]:
        state = {"history": self.history, "scores_before": self.scores_before, "found_before": self.found_before}
        state["scores_at_start"] = self.scores_at_start
        state["items_before"] = _as_tensors(self.items_before) if self.items_before else None
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.history = dict(state_dict["history"])
        self.scores_before = state_dict["scores_before"]
        self.scores_at_start = state_dict.get("scores_at_start")
        self.found_before = state_dict["found_before"]
        items = state_dict["items_before"]
        self.items_before = _from_tensors(items) if items else None
        self._restored = True


class FinalScores(pl.Callback):
    """Callback that loads the best weights into the module on every rank after training, and scores the module.

    The last step is also a candidate for the best weights, even if a time limit or another callback ended the run. The
    module contains the best weights after ``fit``, ready for export.

    Args:
        score_callback: the callback that scores.
        best: the best checkpoint.
        skip: function that returns whether the run was interrupted, so that nothing is scored.
        load: function that loads the weights of a checkpoint into a module. It returns whether the module already had
            these weights.
    """

    def __init__(
        self,
        score_callback: ScoreCallback,
        best: Path,
        skip: Callable[[], bool],
        load: Callable[[pl.LightningModule, dict[str, Any]], bool],
    ) -> None:
        self.score_callback, self.best, self.skip, self.load = score_callback, best, skip, load
        self.scores = Scores({}, {})
        self.best_step = 0

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not self.skip():  # when an interrupted run resumes, this step is like any other
            self.score_callback.score_step(trainer, pl_module, is_last=True)

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.skip():
            return
        if not self.best.is_file() and trainer.global_step == 0:
            raise InputError("max_time or a callback ended the run before its first step. Increase max_time.")
        if not self.best.is_file():
            raise InputError(
                f"{self.best} does not exist: the initial checkpoint is already at the last step, so nothing was "
                "trained. Increase max_steps or max_epochs."
            )
        hint = "Rerun the same command, which resumes from last.ckpt and selects the best checkpoint again."
        expected = "an intact best checkpoint of this run"
        checkpoint = load_intact(self.best, expected, location=str(self.best), hint=hint)
        as_last = self.load(pl_module, checkpoint)
        self.best_step = int(checkpoint["global_step"])
        if len(self.score_callback.suite):
            pl_module.to(trainer.strategy.root_device)  # Lightning has already moved it to the CPU
            self.scores = self.score_callback.score(pl_module, as_last=as_last)


def _as_tensors(items: ItemScores) -> dict[str, Any]:
    """Convert the scores of single test items to tensors, so that they can be stored in a checkpoint."""
    stored = {"replicates": items.replicates, "values": items.values}
    arrays = {kind: {name: torch.from_numpy(one) for name, one in of.items()} for kind, of in stored.items()}
    return {"digests": items.digests, **arrays}


def _from_tensors(state: Mapping[str, Any]) -> ItemScores:
    arrays = {kind: {name: one.numpy() for name, one in state[kind].items()} for kind in ("replicates", "values")}
    return ItemScores(cosines={}, gold={}, subsets={}, digests=dict(state["digests"]), **arrays)


def _publish(trainer: pl.Trainer, scores: dict[str, float]) -> None:
    """Write scores to ``callback_metrics``, because ``pl_module.log`` is forbidden after the end of training."""
    trainer.callback_metrics.update({name: torch.tensor(value) for name, value in scores.items()})


def main_scores(scores: dict[str, float]) -> str:
    """Format the main scores for the log."""
    texts = [f"{name} {value:.1f}" for name, value in scores.items() if ScoreName.parse(name).measure in MAIN_MEASURES]
    more = [f"and {len(texts) - MAX_SHOWN_SCORES} more"] if len(texts) > MAX_SHOWN_SCORES else []
    return ", ".join(texts[:MAX_SHOWN_SCORES] + more)


@contextmanager
def scoring_mode(module: nn.Module) -> Iterator[None]:
    """Context manager that sets evaluation mode and disables gradients.

    On exit, it restores the mode of every submodule and torch's random state.
    """
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() and torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices), torch.no_grad(), evaluation_mode(module):
        yield
