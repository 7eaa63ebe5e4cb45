"""Text summary of a run's data: skipped rows, duplicate rows, truncated texts, and unknown tokens."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from contrastive_encoders.core import Seq2SeqBatch, SpanBatch, without_secrets
from contrastive_encoders.datamodules.data_configs import choice_of
from contrastive_encoders.datamodules.passages import SHORTEST

MULTILINGUAL: dict[type | None, str] = {  # class of the batches -> a backbone that reads about 100 languages
    SpanBatch: "FacebookAI/xlm-roberta-base",
    Seq2SeqBatch: "google/mt5-small",
    None: "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2",
}
MAX_REASON_CHARS = 160  # characters of the reason why the first row cannot be read
MIN_UNKNOWN = 0.01  # of the tokens
MIN_AFFECTED = 0.05  # of the rows
MAX_WITH_TAGS = 0.1  # of the rows


def name_of(data: Any) -> str:
    """Return the path of the data, or their name in ``data=NAME`` if they have no path."""
    paths = getattr(data, "path", None)
    if paths is None:
        return choice_of(data)
    first, *more = [paths] if isinstance(paths, str) else [str(one) for one in paths]
    return without_secrets(f"{first} and {len(more)} more" if more else first)


def account_of(
    found: Mapping[str, Any], batches: type | None = None, prefix: str = "data."
) -> Iterator[tuple[str, str]]:
    """Yield (name, text) for each line of the data summary.

    Args:
        found: a data manifest. For a mixture, the lines of the first source come first, then those of the next source.
        batches: the class of the batches, on which the advice depends.
        prefix: prefix of the keys of these data, for the advice.
    """
    for name, part in found.get("parts", {}).items():
        yield from ((fact, f"{name}: {text}") for fact, text in account_of(part, batches, f"data.parts.{name}."))
    source = found.get("source", {})
    if files := _files(source):
        yield "files", files
    if pairs := source.get("pairs_by_kind"):
        yield "pairs", ", ".join(f"{number:,} of {kind}" for kind, number in pairs.items()) + _without_pairs(source)
    if steps := [step for step in source.get("steps", ()) if step["added"]]:
        yield "added", _added(steps, source)
    if held_out := source.get("held_out"):
        yield "held out", _held_out(**held_out)
    for cut in found.get("cuts", ()):
        yield "length", _cut(**cut)
    if unknown := _unknown(found.get("unknown_tokens"), batches):
        yield "unknown", unknown
    if html := _html(source.get("source", source), prefix):
        yield "HTML", html
    if null_words := source.get("source", source).get("null_words"):
        yield (
            "null words",
            f"{null_words:,} rows have a text such as NaN or #NAME?. Delete them if the text is missing.",
        )
    if skipped := _skipped(found):
        yield "skipped", skipped
    if duplicates := found.get("repeated"):
        others = f", {relabeled:,} of them with another label" if (relabeled := found.get("relabeled")) else ""
        yield "duplicates", f"{duplicates:,} of {found['kept']:,} rows have the same texts as an earlier row{others}"
    if own := found.get("own_negatives"):
        yield "negatives", f"{own:,} of {found['kept']:,} rows have a negative that equals a positive. Correct them."


def _without_pairs(source: Mapping[str, Any]) -> str:
    if not (number := source.get("documents_without_pairs")):
        return ""
    reason = f"they have no title or heading, and no passage of {2 * SHORTEST} words"
    return f"; {number:,} of {source['documents']:,} documents give no pair: {reason}"


def _added(steps: Sequence[Mapping[str, Any]], source: Mapping[str, Any]) -> str:
    number = sum(step["added"] for step in steps)
    smoothing = source["settings"].get("smoothing")
    labels = f"; labels 0 and 1 are smoothed to {smoothing / 2:g} and {1 - smoothing / 2:g}" if smoothing else ""
    return f"{number:,} random pairs with label 0 by data.postprocess{labels}"


def _cut(of: str, max_length: int, share_behind: float, wanted: int | None) -> str:
    chosen = ""
    if wanted is not None:
        limit = f" ({wanted:,} would cover 99% of them completely)"
        chosen = ", which covers 99% of them completely" if wanted <= max_length else limit
    removed = f"this removes {_percent(share_behind)} of their tokens" if share_behind else "none is longer"
    return f"{of} are truncated to {max_length:,} tokens{chosen}; {removed}"


def is_unread(unknown_tokens: Mapping[str, Any]) -> bool:
    """Return whether the fraction of unknown tokens, or of affected rows (see `UnknownTokens`), is so large that a
    different backbone is required.
    """
    unknown, tokens, affected, rows = (unknown_tokens[key] for key in ("unknown", "tokens", "rows_affected", "rows"))
    return unknown >= MIN_UNKNOWN * max(1, tokens) or affected >= MIN_AFFECTED * max(1, rows)


def multilingual(batches: type | None) -> str:
    """Return the override ``backbone=NAME`` of a multilingual backbone that can be trained on batches of this class."""
    return f"backbone={MULTILINGUAL.get(batches, MULTILINGUAL[None])}"


def _unknown(found: Mapping[str, Any] | None, batches: type | None) -> str:
    """Describe the unknown tokens if there are rows that the tokenizer cannot represent completely. If their share is
    large, advice on another backbone is added.
    """
    if found is None or not (is_unread(found) or (found["rows_affected"] and not found["bytes"])):
        return ""
    affected = (
        f"{found['rows_affected']:,} of {found['rows']:,} rows ({_percent(found['rows_affected'] / found['rows'])})"
    )
    if found["bytes"]:
        counts = f"{affected} have a text with more than 1.5 tokens per character"
    else:
        share = _percent(found["unknown"] / max(1, found["tokens"]))
        counts = (
            f"{found['unknown']:,} of {found['tokens']:,} tokens ({share}) in {found['rows_with_unknown']:,} rows are "
            f"unknown to the tokenizer; in {affected}, more than half of a text is unknown"
        )
    sample = f" (counted on {found['rows']:,} of {found['of']:,} rows)" if found["rows"] < found["of"] else ""
    advice = (
        f". The encoder cannot read such texts. Use a multilingual one: {multilingual(batches)}"
        if is_unread(found)
        else ""
    )
    return f"{counts}{sample}{advice}"


def _html(source: Mapping[str, Any], prefix: str) -> str:
    """Return a sentence with the percentage of rows that contain HTML tags, or an empty string if it is small."""
    counts = source.get("html", {"rows": 0, "with_tags": 0})
    rows, with_tags = counts["rows"], counts["with_tags"]
    if with_tags <= MAX_WITH_TAGS * rows:
        return ""
    return (
        f"{with_tags:,} of {rows:,} rows ({_percent(with_tags / rows)}) contain HTML tags. Set {prefix}strip_html=true."
    )


def _files(source: Mapping[str, Any]) -> str:
    """Describe the number of files of each type; empty if there is a single file and no file was skipped."""
    read, skipped = (
        ", ".join(f"{number:,} {kind}" for kind, number in source.get(key, {}).items())
        for key in ("kinds", "passed_over")
    )
    if skipped:
        return f"{read}; skipped: {skipped}"
    return read if source.get("number_of_files", 1) > 1 else ""


def _held_out(
    rows: int,
    queries: int,
    documents: int,
    near_copies_left_out: int,
    kept_apart_by: str,
    scored: str = "",
    equal_texts: int = 0,
    all_rows: int = 0,
) -> str:
    if not rows:
        reason = "there are too few rows or distinct texts for a test"
        if equal_texts:
            reason = f"anchor and positive are the same text in {equal_texts:,} of {all_rows:,} rows"
        return f"none, because {reason}; set evaluation.custom_tasks to get a verdict"
    also = f"; {near_copies_left_out:,} near-duplicate rows are excluded from training" if near_copies_left_out else ""
    shared = ", some of which also occur in training, because rows share them" if kept_apart_by == "anchors" else ""
    kind = f" ({scored})" if scored else ""
    return f"{rows:,} rows, evaluated as {queries:,} queries{kind} against all {documents:,} documents{shared}{also}"


def _percent(share: float) -> str:
    return f"{share:.1%}" if share >= 0.0005 else "less than 0.1%"


def _skipped(found: Mapping[str, Any]) -> str:
    source = found.get("source", {})
    source = source.get("source", source)  # pairs that were prepared before this was stored
    counts = {
        **source.get("left_out", {"blank": source.get("blank", 0)}),
        **{fault: source.get(fault, 0) for fault in ("empty", "undecodable", "malformed")},
        "without a token": found.get("without_tokens", 0),
        "too short": found.get("too_short", 0) + found.get("too_few_tokens", 0),
        **{f"with split={name!r}": number for name, number in source.get("other_splits", {}).items()},
    }
    where = "".join(f"; the first invalid row: {one}" for one in source.get("skipped_where", [])[:1])
    reasons = ", ".join(f"{number:,} {reason}" for reason, number in counts.items() if number)
    return f"{reasons}{textwrap.shorten(where, MAX_REASON_CHARS, placeholder=' ...')}"
