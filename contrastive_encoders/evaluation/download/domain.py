"""Domain data sets: AskUbuntu, CQADupStack, Twitter URL and PIT-2015, as in TSDAE's package useb."""

import json
import re
from functools import partial
from typing import Any

from contrastive_encoders.evaluation.download.dataset_specs import (
    DatasetSpec,
    DownloadLocation,
    Maker,
    Rows,
    TableSpec,
    cells,
    file_from_url,
    github,
    labeled,
    select_columns,
)
from contrastive_encoders.io.archives import InvalidArchiveError, Members

_HOST = "https://public.ukp.informatik.tu-darmstadt.de/kwang/unsupse-benchmark/tsdae-evaluation"
_UNDECIDED = 3  # votes or rating between paraphrase and no paraphrase


def _useb(tables: dict[str, Maker]) -> DownloadLocation:
    return DownloadLocation("data-eval.zip of useb", (file_from_url(f"{_HOST}/data-eval.zip"),), tables)


# ----------------------------------------------------------------------------------------- AskUbuntu


def _questions(split: str, members: Members) -> Rows:
    """Yield the questions with their candidates, sorted by BM25 score, the best first; ties keep the order of
    the file.
    """
    name = f"{split}.txt"
    for query, similar, candidates, scores, *_ in cells(members.lines(_askubuntu(members, name)), 4, name):
        ids, values = candidates.split(), [float(score) for score in scores.split()]
        if len(ids) != len(values):
            raise InvalidArchiveError(f"{name}: query {query} has {len(ids)} candidates, but {len(values)} BM25 scores")
        ranked = sorted(zip(ids, values, strict=True), key=lambda pair: -pair[1])
        yield query, " ".join(similar.split()), " ".join(one for one, _ in ranked)


def _texts(members: Members) -> Rows:
    return select_columns(_askubuntu(members, "text_tokenized.txt"), range(3), members)


def _askubuntu(members: Members, name: str) -> str:
    """Return the path of an AskUbuntu file in an archive.

    In useb's archive of several data sets, it is in ``askubuntu/``.
    """
    return f"askubuntu/{name}" if members.has(f"askubuntu/{name}") else name


def _askubuntu_origin() -> DatasetSpec:
    columns = ("query_id", "positive_ids", "candidate_ids")
    tables = (
        TableSpec("AskUbuntu/dev", columns, 200, empty=None),
        TableSpec("AskUbuntu/test", columns, 200, empty=None),
        TableSpec("AskUbuntu/texts", ("id", "title", "body"), None, empty=None, packed=True),
    )
    made: dict[str, Maker] = {
        "AskUbuntu/dev": partial(_questions, "dev"),
        "AskUbuntu/test": partial(_questions, "test"),
        "AskUbuntu/texts": _texts,
    }
    taolei = ("taolei87/askubuntu", "4d0a9169ef0bfa4c93ff1aa9f25bc426a7fa559e")
    files = ("dev.txt", "test.txt", "text_tokenized.txt.gz")
    return DatasetSpec(
        "AskUbuntu",
        "texts CC BY-SA 3.0 (Stack Exchange)",
        tables,
        (
            _useb(made),
            DownloadLocation(
                "GitHub taolei87/askubuntu", tuple(github(*taolei, one, f"askubuntu/{one}") for one in files), made
            ),
        ),
        note="mteb/AskUbuntuDupQuestions is another protocol (361 queries)",
    )


# --------------------------------------------------------------------------------------- CQADupStack


def _json(members: Members, name: str) -> Any:
    try:
        return json.loads(members.read(f"cqadupstack/{name}"))
    except ValueError as error:
        raise InvalidArchiveError(f"{name}: expected JSON, got: {error}") from None


def _corpus(members: Members) -> Rows:
    for forum, texts in _json(members, "corpus.json").items():
        for key, text in texts.items():
            yield forum, key, text


def _queries(split: str, members: Members) -> Rows:
    for forum, queries in _json(members, "retrieval_split.json")[split].items():
        for query, relevant in queries.items():
            yield forum, query, " ".join(relevant)


def _cqadupstack_origin() -> DatasetSpec:
    columns = ("forum", "query_id", "relevant_ids")
    made: dict[str, Maker] = {
        "CQADupStack/corpus": _corpus,
        "CQADupStack/valid": partial(_queries, "valid"),
        "CQADupStack/test": partial(_queries, "test"),
    }
    tables = (
        TableSpec("CQADupStack/corpus", ("forum", "id", "text"), None, empty=None, packed=True),
        TableSpec("CQADupStack/valid", columns, None, empty=None),
        TableSpec("CQADupStack/test", columns, None, empty=None),
    )
    return DatasetSpec(
        "CQADupStack",
        "texts CC BY-SA 3.0 (Stack Exchange)",
        tables,
        (_useb(made),),
        note="BEIR's and mteb's form is another protocol",
    )


# ------------------------------------------------------------------------------------------- Twitter

_VOTES = re.compile(r"\(\s*(\d)\s*,\s*\d\s*\)")


def votes(cell: str) -> int:
    """Parse a number of votes: ``(4, 6)`` -> 4, ``4`` -> 4."""
    match = _VOTES.fullmatch(cell.strip())
    if not match and not cell.strip().isdigit():
        raise InvalidArchiveError(f"expected a number of votes, such as 4 or (4, 6), got {cell!r}")
    return int(match[1] if match else cell)


def _twitter_url(file: str, members: Members) -> Rows:
    for left, right, cell, *_ in cells([line.strip() for line in members.lines(file)], 3, file):
        yield str(votes(cell)), left, right


def _twitter_origin() -> DatasetSpec:
    table = TableSpec("TwitterURL/test_with_debatable", ("votes_of_6", "sentence1", "sentence2"), 10120)

    def made(file: str) -> dict[str, Maker]:
        return {table.name: partial(_twitter_url, file)}

    name, larger = "Twitter_URL_Corpus_test.txt", "Twitter_URL_Corpus_testNew.larger.txt"
    own = github("lanwuwei/Twitter-URL-Corpus", "ea41a9cd3710c774d6ebf969c7c7788227488761", name)
    castor = github("castorini/data", "056cbbcbf997cc0b35032430110c5e5e5525700a", f"twitterPPDB/{larger}")
    return DatasetSpec(
        "TwitterURL",
        "CC BY-NC-SA 3.0 and Twitter's terms",
        (table,),
        (
            _useb(made(f"twitterpara/{name}")),
            DownloadLocation("GitHub lanwuwei/Twitter-URL-Corpus", (own,), made(name)),
            DownloadLocation("GitHub castorini/data", (castor,), made(larger)),
        ),
        note="mteb's TwitterURLCorpus is train and test together",
    )


def _pit(file: str, members: Members) -> Rows:
    """Yield the rows of PIT-2015: sentence pairs with a label and a score."""
    for topic_id, topic, left, right, rating, *_ in cells([one.strip() for one in members.lines(file)], 5, file):
        score = votes(rating)
        label = -1 if score == _UNDECIDED else int(score > _UNDECIDED)
        yield topic_id, topic, str(label), str(score), left, right


def _pit_origin() -> DatasetSpec:
    columns = "topic_id topic label score sentence1 sentence2"
    table = labeled("PIT2015/test", columns, {"1": 175, "0": 663, "-1": 134}, scores=(0, 5))
    copy = ("tochenan/Twitter-Paraphrase-and-Semantic-Similarity", "7e40bff3e09ae94948a537f6918c6bb3728be33d")
    file = github(*copy, "data/test.data", "PIT2015/test.data")
    return DatasetSpec(
        "PIT2015",
        "not stated (SemEval 2015 task 1); Twitter's terms",
        (table,),
        (
            _useb({table.name: partial(_pit, "twitterpara/test.data")}),
            DownloadLocation("GitHub tochenan", (file,), {table.name: partial(_pit, "test.data")}),
        ),
        note="label -1: undecided",
    )


ORIGINS = (_askubuntu_origin(), _cqadupstack_origin(), _twitter_origin(), _pit_origin())
