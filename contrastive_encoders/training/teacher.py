"""The teacher of a run (``model.teacher``): its embeddings of the training texts, computed once before training."""

import hashlib
import json
import logging
from collections.abc import Collection, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from hydra.utils import get_class

from contrastive_encoders.core import InputError, SentenceBatch
from contrastive_encoders.core.runtime.process_group import broadcast_from_rank_zero
from contrastive_encoders.datamodules.row_datamodules import TextRows
from contrastive_encoders.datamodules.store.teacher_embeddings import VERSION, TeacherEmbeddingStore, build_or_resume
from contrastive_encoders.encoders.cross_encoder import CLASSIFIER_SUFFIX
from contrastive_encoders.encoders.embedding_distillation import targets
from contrastive_encoders.encoders.kernels.chunks import concatenate
from contrastive_encoders.encoders.loading.load import load_encoder_of
from contrastive_encoders.encoders.loading.loaded_encoder import LoadedEncoder
from contrastive_encoders.encoders.loading.sentence_transformers_folder import read_json
from contrastive_encoders.encoders.sentence_encoder import SentenceEncoder
from contrastive_encoders.io.manifest import read_record, write_record
from contrastive_encoders.io.output_directory import overwrite_hint
from contrastive_encoders.training.build import data_modules
from contrastive_encoders.training.initial_embeddings import initial_embeddings
from contrastive_encoders.training.resolve import ResolvedRun

FITTED_TEXTS = 2_048  # texts to which projections are fitted before training
TOKENIZED_TEXTS = 1_000  # texts whose lengths are compared with the teacher's limit
RECORD = "teacher.json"  # in the run's folder: the location and the width of the embeddings

log = logging.getLogger(__name__)


def _refuse_reranker(name: str) -> None:
    """Check that the teacher is not a cross-encoder, since `load_encoder` would load it as an encoder."""
    if Path(name).is_file() or read_json(name, "modules.json") is not None:
        return
    architectures = (read_json(name, "config.json") or {}).get("architectures") or ()
    if found := [str(one) for one in architectures if str(one).endswith(CLASSIFIER_SUFFIX)]:
        expected = f"an encoder; this is a reranker ({found[0]}), which has no embeddings"
        raise InputError(key="model.teacher", value=name, expected=expected)


def is_made_by_stage(run: ResolvedRun) -> bool:
    """Return whether a stage has a teacher in the directory of its run, which another stage exports."""
    name = getattr(run.model, "teacher", None)
    return name is not None and Path(str(name)).absolute().is_relative_to(run.folder.parent.absolute())


def load_teacher(run: ResolvedRun) -> LoadedEncoder | None:
    """Load the teacher of a run on rank 0, and return it. Return None on other ranks, or if the run has no teacher.

    Raises:
        InputError: the teacher cannot be loaded.
    """
    name = getattr(run.model, "teacher", None)
    if name is None:
        return None
    loaded = list[LoadedEncoder]()

    def load() -> None:
        loaded.append(load_encoder_of("model.teacher", str(name), run.device))
        _refuse_reranker(str(name))

    broadcast_from_rank_zero(load)
    return loaded[0] if loaded else None


def check_teacher_keys(run: ResolvedRun) -> None:
    """Check that a comparison with the teacher is requested only if a teacher is set, and that a teacher is set only if
    the data are complete texts, not sampled spans.

    Raises:
        InputError: there is no teacher to compare with, or the data sample new spans from the texts in each epoch.
    """
    if getattr(run.model, "teacher", None) is None:
        if run.evaluation.compare_with_teacher:
            raise InputError(
                key="evaluation.compare_with_teacher",
                value=True,
                expected="false if model.teacher is null, since there is no teacher to compare with",
                hint="Set model.teacher=NAME, or set evaluation.compare_with_teacher=false.",
            )
        return
    for place, settings in run.datasets.items():
        if not issubclass(get_class(settings.target), TextRows):
            raise InputError(
                key="model.teacher",
                value=run.model.teacher,
                expected=f"null for {place} of model=declutr, since spans are sampled again in every epoch, but the "
                "teacher embeds complete texts",
                hint="Set model.teacher=null, or use model=simcse or model=pairs with sentences, pairs, or triplets.",
            )


def learn_from_teacher(run: ResolvedRun, model: Any, data: Any, teacher: LoadedEncoder | None) -> None:
    """Pass the teacher's embeddings of the training texts to the data, and their width to the model. Rank 0, which has
    loaded the ``teacher``, computes the embeddings that are not in the cache; the other ranks wait.
    """
    if getattr(run.model, "teacher", None) is None:
        return
    data.setup()
    if any(getattr(getattr(one, "records", None), "list_files", ()) for one in data_modules(data).values()):
        raise InputError(
            key="model.teacher",
            value=run.model.teacher,
            expected="null for rows with lists of positives or negatives",
            hint="Set model.teacher=null, or use rows with one positive and the same number of negatives each.",
        )
    broadcast_from_rank_zero(lambda: _write_embeddings(run, data, cast(LoadedEncoder, teacher)))
    record = read_record(run.folder / RECORD)
    for place, one in data_modules(data).items():
        one.taught = TeacherEmbeddingStore(record["stores"][place], one.rows_used)
    model.learn_from_teacher(int(record["width"]), run.seed)


def fit_projections(run: ResolvedRun, model: Any, data: Any, loaded: Collection[str]) -> None:
    """Fit the projections of a model to the width of the teacher's embeddings, for its present weights, except those
    whose weights are ``loaded``, since the previous stage has trained them with the same teacher.
    """
    teaching = getattr(model, "teaching", None)
    if teaching is None or not teaching.projections:
        return
    sizes = [size for size in teaching.projections if f"teaching.projections.{size}.weight" not in loaded]
    teaching.load_state_dict(broadcast_from_rank_zero(lambda: _fitted_projections(run, model, data, sizes)))


def has_same_teacher(run: ResolvedRun, before: Path | None) -> bool:
    """Return whether the run in the folder ``before``, the previous stage, has the teacher of this run."""
    return before is not None and _teacher_of(before) == _teacher_of(run.folder)


def _teacher_of(folder: Path) -> str | None:
    """Return the fingerprint of the teacher of the run in ``folder``, or None if the run has no teacher."""
    path = folder / RECORD
    return read_record(path).get("teacher") if path.is_file() else None


def _fitted_projections(run: ResolvedRun, model: Any, data: Any, sizes: Sequence[str]) -> dict[str, torch.Tensor]:
    """Return the state of the projections to the teacher's width. Those of ``sizes`` are fitted to at most about
    `FITTED_TEXTS` training texts.
    """
    if not sizes:
        return dict(model.teaching.state_dict())
    modules, embeddings, taught = data_modules(data), list[torch.Tensor](), list[torch.Tensor]()
    log.info("teacher: fitting the projection to its embeddings, with at most %d texts", FITTED_TEXTS)
    for one in modules.values():
        rows = min(one.num_examples, max(1, FITTED_TEXTS // len(modules) // one.taught.texts_per_row))
        batch = one.batch(0, np.linspace(0, one.num_examples - 1, rows).astype(np.int64))
        views = model.checked_views(batch)
        views = views[:1] if isinstance(batch, SentenceBatch) else views  # other views contain the same texts
        vectors = initial_embeddings(run, model, concatenate(views)).split([len(view.lengths) for view in views])
        embeddings += vectors
        taught.append(targets(vectors, batch))
    model.teaching.fit(torch.cat(embeddings), torch.cat(taught), sizes)
    return dict(model.teaching.state_dict())


def _write_embeddings(run: ResolvedRun, data: Any, teacher: LoadedEncoder) -> None:
    if _teacher_of(run.folder) not in (None, teacher.fingerprint):
        raise InputError(
            key="model.teacher",
            value=run.model.teacher,
            expected="the teacher with which this run was started, but the teacher's files have changed",
            hint=overwrite_hint("output_dir"),
        )
    autocast = torch.bfloat16 if run.precision == "bf16" else None
    made_by = {"teacher": teacher.fingerprint, "products": run.precision if autocast else "fp32", "version": VERSION}
    stores, width = dict[str, str](), 0
    for place, one in data_modules(data).items():
        key = {**made_by, "tokens": one.data_id, "source": one.source().fingerprint()}
        prompts = one.prompts_by_role(teacher.prompts, one.store.width)
        if one.rows_used is not None:
            key["rows"] = hashlib.sha256(one.rows_used.tobytes()).hexdigest()
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
        _warn_about_truncation(teacher, run.model.teacher, place, one)
        directory = one.cache / f"teacher-{digest}"
        log.info("teacher: embedding %d rows into %s", one.num_examples, directory)
        embed = partial(_embed_rows, teacher, prompts, autocast)
        width = build_or_resume(directory, one.used_texts, one.num_examples, embed, quiet=run.quiet)
        stores[place] = str(directory)
    write_record(run.folder / RECORD, {"stores": stores, "width": width, "teacher": teacher.fingerprint})


def _warn_about_truncation(teacher: LoadedEncoder, name: str, place: str, data: Any) -> None:
    """Log a warning if the teacher truncates texts of which the student reads more."""
    if not isinstance(teacher, SentenceEncoder) or data.max_length <= teacher.max_length:
        return
    texts = list(islice(chain.from_iterable(data.used_texts()), TOKENIZED_TEXTS))
    ids = teacher.tokenizer(texts, truncation=False, verbose=False)["input_ids"]
    truncated = float(np.mean([len(one) > teacher.max_length for one in ids]))
    if truncated >= 0.01:
        log.warning(
            "model.teacher=%s truncates %.0f%% of the texts at %d tokens, but the student reads up to %d. "
            "Set %s.max_length=%d to truncate them equally.",
            *(name, 100 * truncated, teacher.max_length, data.max_length, place, teacher.max_length),
        )


def _embed_rows(
    teacher: LoadedEncoder, prompts: Sequence[str], autocast: torch.dtype | None, texts: Sequence[str]
) -> np.ndarray:
    """Return the teacher's embeddings of ``texts``, the concatenated texts of several rows. ``prompts`` contains the
    prompt of each text in a row.
    """
    vectors: np.ndarray = np.array(())
    for prompt in dict.fromkeys(prompts):
        places = [place for place in range(len(texts)) if prompts[place % len(prompts)] == prompt]
        found = teacher.embed(
            [texts[place] for place in places], prompt=prompt, convert_to_numpy=True, autocast=autocast, progress=False
        )
        if not vectors.size:
            vectors = np.empty((len(texts), found.shape[1]), found.dtype)
        vectors[places] = found
    return vectors
