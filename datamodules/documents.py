"""Raw documents as batches of spans: the data of DeCLUTR (Giorgi et al. 2021)."""

import inspect
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytorch_lightning as pl

from contracts import InputError, RetrievalTask, SpanBatch
from datamodules.order import nested_subset
from datamodules.overlap import count_overlap
from datamodules.pydocs import PydocsSource
from datamodules.sources import DocumentSource, HubSource, TextSource
from datamodules.span_batches import LONGEST_SPAN, SHORTEST_SPAN, SpanBatches, SpanRule, choose_max_span, special_tokens
from datamodules.spans import Positive, Window
from datamodules.stream import BatchStream, place_of
from datamodules.token_store import TokenStore, build_or_open
from datamodules.tokenizer_loading import load_tokenizer
from datamodules.words import word_start_table

log = logging.getLogger(__name__)


class DocumentSpans(pl.LightningDataModule):
    """Anchors and positives drawn from long documents, tokenised once.

    Lengths are tokens, special tokens not counted, but for ``max_length``, which counts them and is further capped by
    the tokenizer's own limit. ``batch_size`` counts documents over all processes.

    ``min_document_length`` null stands for 2 * A * max_span tokens; ``length_unit="words"`` is the published script's
    rule (more than so many whitespace words). ``max_span="auto"`` takes the largest one up to 512 under which 9 of 10
    documents are long enough (of those that are under the smallest, 16) and which a sequence can hold, and lowers
    min_span to a quarter of it where it is more. ``equalise_spans_to=2`` draws as many anchors per batch and epoch as 2
    per document would (the paper's figure 2): with anchors_per_document=1 a batch has twice the documents and an epoch
    goes over them twice; and documents must be as long as those 2 need, so that both draw from the same ones.
    """

    yields = SpanBatch

    def __init__(
        self,
        source: DocumentSource,
        tokenizer: str,
        batch_size: int,
        seed: int = 1,
        anchors_per_document: int = 2,
        positives_per_anchor: int = 2,
        min_span: int = 32,
        max_span: int | Literal["auto"] = LONGEST_SPAN,
        window: Window = "grid",
        positive: Positive = "nearby",
        align_to_words: bool = False,
        min_document_length: int | None = None,
        length_unit: Literal["tokens", "words"] = "tokens",
        lowercase: bool = False,
        mlm_probability: float = 0.15,
        max_length: int = 512,
        fraction: float = 1.0,
        equalise_spans_to: int | None = None,
        cache_dir: str | None = None,
        num_workers: int = 0,
        quiet: bool = False,
    ) -> None:
        super().__init__()
        self.source, self.tokenizer_name, self.seed = source, tokenizer, seed
        self.rule = SpanRule(
            anchors=anchors_per_document,
            positives=positives_per_anchor,
            min_span=min_span,
            max_span=LONGEST_SPAN if max_span == "auto" else max_span,
            window=window,
            positive=positive,
        )
        self.auto_span = max_span == "auto"
        self.align_to_words, self.lowercase = align_to_words, lowercase
        self.min_document_length, self.length_unit = min_document_length, length_unit
        self.mlm_probability, self.max_length, self.fraction = mlm_probability, max_length, fraction
        self.most_anchors = max(anchors_per_document, equalise_spans_to or 0)
        self.passes = passes_per_epoch(anchors_per_document, equalise_spans_to)
        self.batch_size = batch_size * self.passes
        self.cache_dir = Path(cache_dir).expanduser() if cache_dir else default_cache()
        self.num_workers, self.quiet = num_workers, quiet
        self._check()
        self.store: TokenStore | None = None

    def prepare_data(self) -> None:
        """Tokenise into the cache, once; a second call only opens what is there."""
        self._open_store(quiet=self.quiet)

    def setup(self, stage: str | None = None) -> None:
        """Open the token store and fix which documents are drawn from, and how."""
        if self.store is not None:
            return
        store = self._open_store(quiet=True)
        tokenizer = self._tokenizer()
        specials, longest = special_tokens(tokenizer), min(self.max_length, tokenizer.model_max_length)
        if self.auto_span:
            max_span = choose_max_span(store.lengths, self._length_rule(), longest - specials.number)
            min_span = min(self.rule.min_span, max(1, max_span // 4))
            self.rule = self.rule._replace(max_span=max_span, min_span=min_span)
            log.info("data.max_span=auto: spans of %d to %d tokens", min_span, max_span)
        long_enough = np.flatnonzero(store.lengths >= self._min_tokens())
        self.subset = nested_subset(len(long_enough), self.fraction, self.seed)
        self.rows = long_enough
        self._report(store)
        self._warn_of_cut_spans(longest)
        self.batches = SpanBatches(
            store,
            specials,
            self.rule,
            seed=self.seed,
            max_length=longest,
            mlm_probability=self.mlm_probability,
            starts_word=word_start_table(tokenizer) if self.align_to_words else None,
        )
        self.store = store

    def train_dataloader(self) -> BatchStream:
        return BatchStream(
            self._batch,
            self.num_examples,
            self.batch_size,
            seed=self.seed,
            passes=self.passes,
            data_id=self.store.manifest["ids_sha256"] if self.store else "",
            num_workers=self.num_workers,
            **place_of(self.trainer),
        )

    @property
    def num_examples(self) -> int:
        """Documents that are drawn from."""
        return len(self.subset)

    def texts(self) -> Iterator[str]:
        """The raw documents, in the case that the store has them in."""
        return (text.lower() for text in self.source.texts()) if self.lowercase else self.source.texts()

    def manifest(self) -> dict[str, Any]:
        """The store's account of the source, and what of it is drawn from."""
        self.setup()
        assert self.store is not None
        return {
            **self.store.manifest,
            "long_enough": len(self.rows),
            "used": self.num_examples,
            "fraction": self.fraction,
            "min_tokens": self._min_tokens(),
            "spans": self.rule._asdict(),
            "documents_per_batch": self.batch_size,
            "passes_per_epoch": self.passes,
        }

    def held_out(self) -> Sequence[RetrievalTask]:
        return self.source.held_out()

    def count_overlap(self, sentences: Sequence[str]) -> dict[str, int]:
        self.setup()
        assert self.store is not None
        return count_overlap(self.store, self._tokenizer(), sentences)

    def _batch(self, pass_index: int, examples: np.ndarray) -> SpanBatch:
        return self.batches(pass_index, self.rows[self.subset[examples]])

    def _check(self) -> None:
        self.rule.check() if not self.auto_span else self.rule._replace(min_span=1).check()
        nested_subset(1, self.fraction, self.seed)
        if self.length_unit not in ("tokens", "words"):
            raise InputError(f"data.length_unit: wanted tokens or words, got {self.length_unit!r}.")
        shortest, needed = self.min_document_length, self._length_rule().tokens_needed
        if shortest is not None and self.length_unit == "tokens" and not self.auto_span and shortest < needed:
            raise InputError(
                f"data.min_document_length: {shortest} tokens are too few for {self.most_anchors} anchors of up to "
                f"{self.rule.max_span} tokens, which want {needed}. For short documents lower data.max_span (to "
                f"{shortest * self.rule.max_span // needed}), or set data.max_span=auto."
            )

    def _open_store(self, quiet: bool) -> TokenStore:
        """Under ``auto`` the store holds every document that the shortest spans could be drawn from."""
        rule = self._length_rule()
        smallest = rule._replace(max_span=SHORTEST_SPAN) if self.auto_span else rule
        default = max(2 * smallest.anchors * smallest.max_span, smallest.tokens_needed)
        return build_or_open(
            self.source,
            self._tokenizer(),
            self.cache_dir,
            min_length=default if self.min_document_length is None else self.min_document_length,
            length_unit=self.length_unit,
            min_tokens=smallest.tokens_needed,
            lowercase=self.lowercase,
            quiet=quiet,
        )

    def _length_rule(self) -> SpanRule:
        """By which documents are long enough: runs that are equalised to each other draw from the same ones."""
        return self.rule._replace(anchors=self.most_anchors)

    def _min_tokens(self) -> int:
        """What a document must have beyond the rule of the store."""
        shortest = self.min_document_length if self.length_unit == "tokens" else None
        return max(shortest or 0, self._length_rule().tokens_needed)

    def _tokenizer(self) -> Any:
        return load_tokenizer(self.tokenizer_name)

    def _warn_of_cut_spans(self, longest: int) -> None:
        if self.rule.max_span > longest:
            log.warning(
                "spans of up to %d tokens are cut to the %d that a sequence may have, special tokens included; "
                "set data.max_span=%d",
                self.rule.max_span,
                longest,
                longest,
            )

    def _report(self, store: TokenStore) -> None:
        """One line on what was dropped; InputError where nothing is left."""
        read = int(store.manifest["read"])
        dropped = read - len(self.rows)
        advice = (
            f"Documents need {self._min_tokens()} tokens for {self.most_anchors} anchors of up to "
            f"{self.rule.max_span}; for a corpus of shorter ones set data.max_span=auto, or data.max_span smaller."
        )
        if not len(self.rows):
            raise InputError(f"data: none of the {read} documents is long enough. {advice}")
        if dropped and not self.quiet:
            log.info("dropped %d of %d documents as too short. %s", dropped, read, advice)


def passes_per_epoch(anchors: int, equalise_spans_to: int | None) -> int:
    """How often an epoch goes over the documents, and how many times the documents a batch has."""
    if equalise_spans_to is None:
        return 1
    if equalise_spans_to < anchors or equalise_spans_to % anchors:
        raise InputError(
            f"data.equalise_spans_to: wanted a multiple of data.anchors_per_document={anchors}, so that batches and "
            f"epochs grow by a whole number; got {equalise_spans_to}."
        )
    return equalise_spans_to // anchors


def default_cache() -> Path:
    """CONTRASTIVE_ENCODERS_CACHE, or a folder in the user's cache."""
    folder = os.environ.get("CONTRASTIVE_ENCODERS_CACHE") or "~/.cache/contrastive-encoders"
    return Path(folder).expanduser()


def _over(make_source: Callable[..., DocumentSource]) -> Callable[..., DocumentSpans]:
    """`DocumentSpans` over one kind of source, with the keys of both side by side, as the command line has them."""
    own = inspect.signature(make_source).parameters
    spans = inspect.signature(DocumentSpans).parameters

    def build(**settings: Any) -> DocumentSpans:
        settings.setdefault("cache_dir", str(default_cache()))
        settings["cache_dir"] = settings["cache_dir"] or str(default_cache())
        source = make_source(**_named(settings, own))
        return DocumentSpans(
            source, **{key: value for key, value in settings.items() if key in spans or key not in own}
        )

    merged = {**own, **{name: value for name, value in spans.items() if name != "source"}}
    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in merged.values()]
    build.__signature__ = inspect.Signature(keywords, return_annotation=DocumentSpans)  # type: ignore[attr-defined]
    build.yields = DocumentSpans.yields  # type: ignore[attr-defined]
    return build


def _named(settings: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key in parameters}


from_text = _over(TextSource)
from_hub = _over(HubSource)
from_pydocs = _over(PydocsSource)
