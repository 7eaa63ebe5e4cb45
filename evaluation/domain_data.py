"""The domain sets of GenSE table 3 under ``data_root``: AskUbuntu, CQADupStack, TwitterPara and BIOSSES.

AskUbuntu/{dev,test}   query_id, positive_ids, candidate_ids (ids between blanks; candidates in the order of BM25)
AskUbuntu/texts        id, title, body
CQADupStack/corpus     forum, id, text
CQADupStack/{valid,test}  forum, query_id, relevant_ids (ids of the same forum between blanks)
TwitterURL/test_with_debatable  votes_of_6, sentence1, sentence2
PIT2015/test           score (0 to 5), sentence1, sentence2
BIOSSES/test           sentence1, sentence2, score (0 to 4)
"""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from contracts import InputError, PairTask
from evaluation.forum_retrieval import Forum, ForumRetrieval
from evaluation.paraphrase import DEBATABLE, Paraphrases
from evaluation.reranking import Candidates, Reranking
from evaluation.sts import Similarity
from evaluation.sts_data import Layout, read_pairs
from evaluation.task import Entry, Options
from evaluation.tsv import read_number, read_rows, read_text, table

log = logging.getLogger(__name__)

EMPTY = "."  # stands for a text that is empty: tokenizers differ in what they make of none
FORUMS = "android english gaming gis mathematica physics programmers stats tex unix webmasters wordpress".split()
TEXTS: dict[str, Callable[[str, str], str]] = {
    "title": lambda title, body: title,
    "body": lambda title, body: body,
    "title+body": lambda title, body: f"{title} {body}".strip(),
}


# ------------------------------------------------------------------------------------- AskUbuntu


def read_askubuntu(split: str, root: Path, name: str, options: Options) -> Reranking:
    if options.askubuntu_text not in TEXTS:
        raise InputError(f"askubuntu_text={options.askubuntu_text!r}: wanted one of {', '.join(TEXTS)}.")
    path = table(root, f"AskUbuntu/{split}")
    rows = list(_questions(path))
    wanted = {one for _, query, _, candidates in rows for one in (query, *candidates)}
    texts = _askubuntu_texts(table(root, "AskUbuntu/texts"), wanted, options.askubuntu_text)
    queries = []
    for where, query, positives, candidates in rows:
        missing = [one for one in (query, *candidates) if one not in texts]
        if missing:
            raise InputError(
                f"{where}: question {missing[0]} is not in AskUbuntu/texts ({len(missing)} of this line are not); "
                "the table of texts is cut short or of another version. Fetch both again."
            )
        relevant = [one in positives for one in candidates]
        queries.append(Candidates(texts[query], [texts[one] for one in candidates], relevant))
    if not queries:
        raise InputError(f"{path}: no query has a similar question; wanted ids in the column positive_ids.")
    return Reranking(name, queries)


def _questions(path: Path) -> Iterator[tuple[str, str, set[str], list[str]]]:
    """(where, query, positives, candidates) of the queries that have a positive."""
    for where, (query, positives, candidates) in read_rows(path, ["query_id", "positive_ids", "candidate_ids"]):
        similar, given = set(positives.split()), read_text(where, "candidate_ids", candidates).split()
        if len(set(given)) != len(given):
            raise InputError(f"{where}: a candidate is named twice; wanted each id once. Fetch the table again.")
        if similar and similar.isdisjoint(given):
            raise InputError(
                f"{where}: none of the positive_ids is among the candidate_ids, so there is no average precision; "
                "wanted at least one. Fetch the table again or delete the row."
            )
        if similar:
            yield where, read_text(where, "query_id", query), similar, given


def _askubuntu_texts(path: Path, wanted: set[str], text: str) -> dict[str, str]:
    return {
        key: TEXTS[text](title.strip(), body.strip()) or EMPTY
        for _, (key, title, body) in read_rows(path, ["id", "title", "body"])
        if key in wanted
    }


# ----------------------------------------------------------------------------------- CQADupStack


def read_cqadupstack(table_name: str, ending: str, root: Path, name: str, options: Options) -> ForumRetrieval:
    """``table_name`` is valid or test; ``ending`` is that of the score names, -dev or nothing."""
    corpus = _corpus(table(root, "CQADupStack/corpus"))
    path = table(root, f"CQADupStack/{table_name}")
    asked: dict[str, dict[str, list[str]]] = {}
    for where, (forum, query, relevant) in read_rows(path, ["forum", "query_id", "relevant_ids"]):
        if query not in corpus.get(forum, {}):
            raise InputError(
                f"{where}: question {query!r} of forum {forum!r} is not in CQADupStack/corpus; "
                "the corpus is cut short or of another version. Fetch both again."
            )
        if query in asked.setdefault(forum, {}):
            raise InputError(f"{where}: query {query} of forum {forum} stands twice; wanted it once. Delete the row.")
        asked[forum][query] = list(dict.fromkeys(relevant.split()))
    if not asked:
        raise InputError(f"{path}: no rows below the header; wanted queries. Fetch it again.")
    if set(asked) != set(FORUMS):
        log.warning("%s: %d forums, the papers' mean is over %d: %s", path, len(asked), len(FORUMS), ", ".join(FORUMS))
    forums = [_forum(forum, corpus[forum], queries) for forum, queries in asked.items()]
    return ForumRetrieval("cqadupstack", forums, ending)


def _corpus(path: Path) -> dict[str, dict[str, str]]:
    """forum -> id -> text"""
    corpus: dict[str, dict[str, str]] = {}
    for where, (forum, key, text) in read_rows(path, ["forum", "id", "text"]):
        texts = corpus.setdefault(forum, {})
        if key in texts:
            raise InputError(f"{where}: forum {forum} has id {key} twice; wanted each id once. Fetch the table again.")
        texts[key] = text.strip() or EMPTY
    return corpus


def _forum(name: str, corpus: dict[str, str], queries: dict[str, list[str]]) -> Forum:
    ids = [key for key in corpus if key not in queries]
    row_of = {key: row for row, key in enumerate(ids)}
    if not ids:
        raise InputError(f"CQADupStack: every question of forum {name} is a query; wanted documents as well.")
    duplicates = [key for relevant in queries.values() for key in relevant]
    unknown = sum(key not in corpus for key in duplicates)
    if unknown == len(duplicates):
        raise InputError(
            f"CQADupStack: none of the relevant_ids of forum {name} is in its corpus; wanted ids between blanks. "
            "Fetch both tables again."
        )
    if unknown:
        log.warning("CQADupStack: %d duplicates in forum %s are not in the corpus and cannot be found", unknown, name)
    return Forum(
        name,
        queries=[corpus[key] for key in queries],
        documents=[corpus[key] for key in ids],
        relevant=[[row_of[key] for key in relevant if key in row_of] for relevant in queries.values()],
        duplicates=[len(relevant) for relevant in queries.values()],
    )


# -------------------------------------------------------------------------- TwitterPara, BIOSSES


def read_paraphrases(table_name: str, column: str, high: float, root: Path, name: str, _: Options) -> Paraphrases:
    """``column`` holds votes or a rating from 0 to ``high``, of which 3 is undecided."""
    path = table(root, table_name)
    pairs, gold = PairTask(name, [], [], np.empty(0), []), []
    for where, (left, right, votes) in read_rows(path, ["sentence1", "sentence2", column]):
        pairs.left.append(read_text(where, "sentence1", left))
        pairs.right.append(read_text(where, "sentence2", right))
        gold.append(read_number(where, column, votes, 0, high))
        pairs.subsets.append(name)
    if not gold:
        raise InputError(f"task {name}: {path} has a header but no rows; wanted sentence pairs. Fetch it again.")
    if not max(gold) > DEBATABLE > min(gold):
        raise InputError(
            f"task {name}: {path}: wanted pairs with a {column} above {DEBATABLE:g} and others below, got "
            f"{min(gold):g} to {max(gold):g} in {len(gold)} rows. Fetch it again."
        )
    return Paraphrases(pairs._replace(gold=np.array(gold)))


BIOSSES = Layout({"BIOSSES/test": 100}, 0, 4, has_subsets=False)


def read_biosses(root: Path, name: str, options: Options) -> Similarity:
    return Similarity(read_pairs(root, name, BIOSSES))


ENTRIES = {
    "askubuntu": Entry({"AskUbuntu/test": 200, "AskUbuntu/texts": None}, partial(read_askubuntu, "test")),
    "askubuntu-dev": Entry({"AskUbuntu/dev": 200, "AskUbuntu/texts": None}, partial(read_askubuntu, "dev")),
    "cqadupstack": Entry({"CQADupStack/corpus": None, "CQADupStack/test": None}, partial(read_cqadupstack, "test", "")),
    "cqadupstack-dev": Entry(
        {"CQADupStack/corpus": None, "CQADupStack/valid": None}, partial(read_cqadupstack, "valid", "-dev")
    ),
    "twitterurl": Entry(
        {"TwitterURL/test_with_debatable": 10120},
        partial(read_paraphrases, "TwitterURL/test_with_debatable", "votes_of_6", 6),
    ),
    "pit": Entry({"PIT2015/test": 972}, partial(read_paraphrases, "PIT2015/test", "score", 5)),
    "biosses": Entry(BIOSSES.rows, read_biosses),
}
