"""A user's own files as tasks: scores of sentence-transformers, trec_eval and scikit-learn on the same embeddings."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.metrics import v_measure_score
from sklearn.model_selection import LeaveOneOut, cross_val_score
from sklearn.neighbors import KNeighborsClassifier

from contrastive_encoders.core import EncoderPrompts, InputError
from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.evaluation.custom_tasks.resolve import resolve_custom_tasks
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.evaluation.suite import Suite
from tests.evaluation.conftest import BagOfWords

WORDS = np.array([f"w{number}" for number in range(40)])


def texts(count: int, words: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, words)) for _ in range(count)]


def lines(path: Path, rows: list[dict]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def scored(entry: object, embedder: object) -> dict[str, float]:
    tasks = [task for one in resolve_custom_tasks(entry) for task in one.read(EvaluateConfig(protocol="fast"))]
    suite = Suite(tasks)
    found = suite.run(embedder, intervals=True)
    assert list(found.values) == suite.score_names()
    assert all(low <= high for low, high in found.intervals.values())
    assert set(found.intervals) >= {name for name in found.values if "-dev/" not in name}
    return found.values


class WithPrompts(BagOfWords):
    def __init__(self, prompts: EncoderPrompts) -> None:
        super().__init__()
        self.prompts = prompts

    def embed(self, texts, *, prompt=None, **options):
        return super().embed([(self.prompts.default if prompt is None else prompt) + text for text in texts], **options)


class AsLibrary:
    """The encoder with the interface that the library's evaluators expect."""

    similarity_fn_name, prompts = "cosine", {}

    def __init__(self, query: str = "", document: str = "") -> None:
        self.embedder, self.query, self.document = BagOfWords(), query, document
        self.model_card_data = SimpleNamespace(set_evaluation_metrics=lambda *_, **__: None)

    def encode(self, sentences, convert_to_tensor=False, convert_to_numpy=True, **_):
        vectors = self.embedder.embed(sentences)
        return vectors if convert_to_tensor else vectors.numpy()

    def encode_query(self, sentences, **how):
        return self.encode([self.query + one for one in sentences], **how)

    def encode_document(self, sentences, **how):
        return self.encode([self.document + one for one in sentences], **how)

    @staticmethod
    def similarity(left, right):
        left, right = (torch.nn.functional.normalize(torch.as_tensor(side), dim=-1) for side in (left, right))
        return left @ right.T

    @staticmethod
    def similarity_pairwise(left, right):
        return torch.nn.functional.cosine_similarity(torch.as_tensor(left), torch.as_tensor(right))


QUERIES = {f"q{n}": text for n, text in enumerate(texts(25, 4, 1))}
CORPUS = {f"d{n}": text for n, text in enumerate(texts(300, 7, 2))}


def relevance(seed: int, grades: int) -> dict[str, dict[str, int]]:
    """Return 1 to 12 documents for each query, mostly near ones; the last query has none."""
    rng, found = np.random.default_rng(seed), {}
    for key, text in list(QUERIES.items())[:-1]:
        shared = np.array([len(set(text.split()) & set(one.split())) for one in CORPUS.values()])
        chosen = np.argsort(-shared + rng.normal(0, 0.7, len(shared)))[: rng.integers(1, 13)]
        found[key] = {f"d{row}": int(rng.integers(1, grades + 1)) for row in chosen}
    return found


def beir(folder: Path, gains: dict[str, dict[str, int]]) -> Path:
    lines(folder / "queries.jsonl", [{"_id": key, "text": text} for key, text in QUERIES.items()])
    corpus = [(key, *text.split(" ", 1)) for key, text in CORPUS.items()]
    lines(folder / "corpus.jsonl", [{"_id": key, "title": title, "text": text} for key, title, text in corpus])
    (folder / "qrels").mkdir()
    rows = [f"{query}\t{key}\t{gain}\n" for query, one in gains.items() for key, gain in one.items()]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows) + "q24\td3\t0\n")
    (folder / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    return folder


def nano(folder: Path, gains: dict[str, dict[str, int]], stem: str = "train-00000-of-00001") -> Path:
    tables = {
        "queries": [{"_id": key, "text": text} for key, text in QUERIES.items()],
        "corpus": [{"_id": key, "text": text} for key, text in CORPUS.items()],
        "qrels": [{"query-id": query, "corpus-id": key} for query, one in gains.items() for key in one],
    }
    for part, rows in tables.items():
        (folder / part).mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / part / f"{stem}.parquet")
    return folder


def test_retrieval_is_the_librarys_on_both_layouts(tmp_path):
    evaluation = pytest.importorskip("sentence_transformers.sentence_transformer.evaluation")
    gains = relevance(3, 1)
    asked = {key: QUERIES[key] for key in gains}
    library = evaluation.InformationRetrievalEvaluator(
        asked,
        CORPUS,
        {key: set(one) for key, one in gains.items()},
        precision_recall_at_k=[10, 100],
        ndcg_at_k=[10],
        mrr_at_k=[10],
        map_at_k=[100],
    )
    expected = library(AsLibrary("w0 w1 ", "w2 "))
    folders = {"a": beir(tmp_path / "a", gains), "b": nano(tmp_path / "b", gains)}
    prompts = {"query_prompt": "w0 w1 ", "document_prompt": "w2 "}
    given = {name: {"path": str(folder), **prompts} for name, folder in folders.items()}
    found = scored(given, BagOfWords())
    for name in folders:
        for metric in ("ndcg@10", "mrr@10", "map@100", "recall@10", "recall@100"):
            assert found[f"{name}/cosine/{metric}"] == pytest.approx(100 * expected[f"cosine_{metric}"], abs=1e-6)
    named = scored(str(folders["a"]), WithPrompts(EncoderPrompts({"query": "w0 w1 ", "passage": "w2 "})))
    assert named == {name: value for name, value in found.items() if name.startswith("a/")}


def test_graded_relevance_is_trec_evals(tmp_path, bag_of_words):
    pytrec_eval = pytest.importorskip("pytrec_eval")
    gains = relevance(4, 3)
    vectors = [bag_of_words.embed(list(side.values())).double() for side in (QUERIES, CORPUS)]
    similarity = AsLibrary.similarity(*vectors).tolist()
    run = {query: dict(zip(CORPUS, row, strict=True)) for query, row in zip(QUERIES, similarity, strict=True)}
    measures = {"ndcg_cut_10", "recall_10", "map_cut_100", "recip_rank"}
    per_query = pytrec_eval.RelevanceEvaluator(gains, measures).evaluate(run).values()
    metrics = ["ndcg@10", "recall@10", "map@100", "mrr"]
    found = scored({"mine": {"path": str(beir(tmp_path, gains)), "metrics": metrics}}, bag_of_words)
    expected = [
        100 * np.mean([one[name] for one in per_query])
        for name in ("ndcg_cut_10", "recall_10", "map_cut_100", "recip_rank")
    ]
    assert list(found.values()) == pytest.approx(expected, abs=1e-6)


def test_sets_in_one_folder_are_scored_alone_and_averaged(tmp_path, bag_of_words):
    gains = {"Nano1": relevance(5, 1), "Nano2": relevance(6, 1)}
    for name, one in gains.items():
        nano(tmp_path / "one", one, f"{name}-00000-of-00001")
        nano(tmp_path / "each" / name, one)
    found, each = (scored(str(tmp_path / name), bag_of_words) for name in ("one", "each"))
    assert list(found.values()) == list(each.values())
    alone = scored({"x": {"path": str(tmp_path / "one"), "split": "Nano2"}}, bag_of_words)
    assert alone["x/cosine/ndcg@10"] == found["one-Nano2/cosine/ndcg@10"]
    parts = [found[f"one-{name}/cosine/ndcg@10"] for name in gains]
    assert found["one/cosine/ndcg@10"] == pytest.approx(np.mean(parts))
    assert parts[0] != parts[1]


def test_rows_of_a_query_and_its_document_are_a_corpus(tmp_path, bag_of_words):
    evaluation = pytest.importorskip("sentence_transformers.sentence_transformer.evaluation")
    answers = list(CORPUS.values())
    rows = [{"question": text, "answer": answers[3 * n + i]} for n, text in enumerate(QUERIES.values()) for i in (0, 1)]
    rows.append({"question": rows[0]["question"], "answer": rows[3]["answer"]})  # a document with two queries
    corpus = {text: text for text in dict.fromkeys(row["answer"] for row in rows)}
    relevant = {text: {row["answer"] for row in rows if row["question"] == text} for text in QUERIES.values()}
    queries = {text: text for text in QUERIES.values()}
    expected = evaluation.InformationRetrievalEvaluator(queries, corpus, relevant)(AsLibrary())
    found = scored(str(lines(tmp_path / "qa.jsonl", rows)), bag_of_words)
    for metric in ("ndcg@10", "mrr@10", "map@100", "recall@10"):
        assert found[f"qa/cosine/{metric}"] == pytest.approx(100 * expected[f"cosine_{metric}"], abs=1e-6)


@pytest.mark.parametrize("binary", [True, False])
def test_pairs_are_the_librarys(binary, tmp_path, bag_of_words):
    evaluation = pytest.importorskip("sentence_transformers.sentence_transformer.evaluation")
    left = texts(80, 6, 7)
    right = [" ".join([*one.split()[: n % 6], *texts(1, 6 - n % 6, n)[0].split()]) for n, one in enumerate(left)]
    gold = [int(n % 6 + n % 7 > 5) if binary else n % 6 + 0.3 * (n % 7) for n in range(80)]
    rows = [f'{a},"{b}",{score}\n' for a, b, score in zip(left, right, gold, strict=True)]
    (tmp_path / "mine.csv").write_text("text1,text2,label\n" + "".join(rows))
    found = scored(str(tmp_path / "mine.csv"), bag_of_words)
    if binary:
        expected = evaluation.BinaryClassificationEvaluator(left, right, gold)(AsLibrary())
        names = {"ap": "cosine_ap", "f1": "cosine_f1"}
    else:
        expected = evaluation.EmbeddingSimilarityEvaluator(left, right, gold)(AsLibrary())
        names = {"spearman": "spearman_cosine", "pearson": "pearson_cosine"}
    for ours, theirs in names.items():
        assert found[f"mine/cosine/{ours}"] == pytest.approx(
            100 * expected[theirs], abs=2e-4 if ours == "spearman" else 1e-5
        )


def test_triplets_are_the_librarys(tmp_path, bag_of_words):
    evaluation = pytest.importorskip("sentence_transformers.sentence_transformer.evaluation")
    rows = [dict(zip(("anchor", "positive", "negative"), texts(3, 5, n), strict=True)) for n in range(60)]
    sides = [[row[name] for row in rows] for name in rows[0]]
    expected = evaluation.TripletEvaluator(*sides)(AsLibrary("w0 ", "w1 w2 "))["cosine_accuracy"]
    given = {"path": str(lines(tmp_path / "t.jsonl", rows)), "query_prompt": "w0 ", "document_prompt": "w1 w2 "}
    found = scored({"t": given}, bag_of_words)
    assert found == {"t/cosine/accuracy": pytest.approx(100 * expected, abs=1e-6)}


@pytest.mark.parametrize("layout", ["whole", "folder"])
def test_neighbors_and_clusters_are_sklearns(layout, tmp_path, bag_of_words):
    rng = np.random.default_rng(8)
    labels = rng.choice(["tea", "sea", "ski"], 120).tolist()
    kept = {"tea": WORDS[:16], "sea": WORDS[12:28], "ski": WORDS[24:]}
    rows = [{"text": " ".join(rng.choice(kept[label], 4)), "label": label} for label in labels]
    vectors = torch.nn.functional.normalize(bag_of_words.embed([row["text"] for row in rows]).double(), dim=-1).numpy()
    voters = KNeighborsClassifier(5, metric="cosine")
    if layout == "whole":
        path, asked, gold = lines(tmp_path / "mine.jsonl", rows), vectors, labels
        expected = cross_val_score(voters, vectors, labels, cv=LeaveOneOut()).mean()
    else:
        path, asked, gold = tmp_path / "mine", vectors[80:], labels[80:]
        lines(path / "train.jsonl", rows[:80])
        lines(path / "test-00000-of-00001.jsonl", rows[80:])
        expected = voters.fit(vectors[:80], labels[:80]).score(asked, gold)
    found = scored({"mine": {"path": str(path)}}, bag_of_words)
    assert found["mine/knn/accuracy"] == pytest.approx(100 * expected)
    order = np.argsort(gold, kind="stable")  # texts of equal length are ordered by their labels
    clusters = KMeans(3, n_init=10, random_state=1111).fit_predict(asked[order])
    assert found["mine/kmeans/v-measure"] == pytest.approx(100 * v_measure_score(np.array(gold)[order], clusters))
    assert found["mine/fast/accuracy"] > 70


def test_a_tasks_prompts_take_the_place_of_the_encoders(tiny_bert, tmp_path):
    encoder = load_encoder(tiny_bert, prompt="the comet and ", device="cpu")
    plain = load_encoder(tiny_bert, prompt="", device="cpu")
    rows = [dict(zip(("anchor", "positive", "negative"), texts(3, 5, n), strict=True)) for n in range(40)]
    path = str(lines(tmp_path / "t.jsonl", rows))
    prefixed = [{"anchor": f"bread {row['anchor']}"} | {k: row[k] for k in ("positive", "negative")} for row in rows]
    other = str(lines(tmp_path / "p.jsonl", prefixed))
    both = {"t": {"path": path, "query_prompt": "bread ", "document_prompt": ""}, "own": {"path": path}}
    found = scored(both, encoder)
    assert encoder.prompt == "the comet and "
    assert found["t/cosine/accuracy"] == scored(other, plain)["p/cosine/accuracy"]
    assert found["own/cosine/accuracy"] == scored(path, encoder)["t/cosine/accuracy"]
    sentences = Suite(task for one in resolve_custom_tasks(both) for task in one.read(EvaluateConfig())).sentences()
    assert sentences["t"] == sentences["own"], "a leak is looked for without prompts"


ROWS = {"sentence1": "a b", "sentence2": "c d", "score": 1}
BAD = [
    ("x.tsv", None, ["task x: path=x.tsv: "]),
    ("stsb", None, [" suite=stsb"]),
    ({"m": {"path": "{file}", "colums": ["a"]}}, [ROWS], ["colums", " pairs.columns"]),
    ({"sts12": {"path": "{file}"}}, [ROWS], ["sts12", "published"]),
    ("{file}", [{"left": "a", "right": "b"}], ["'left', 'right'."]),
    ("{file}", [ROWS, ROWS], ["score", " 1 ", " 2 "]),
    ("{file}", [ROWS, {**ROWS, "score": "high"}], ["rows.jsonl:2, score: ", "'high'"]),
    ("{file}", [ROWS, {"sentence1": "a"}], ["rows.jsonl:2: ", "sentence1, sentence2, score"]),
    ({"m": {"path": "{file}", "split": "dev"}}, [{**ROWS, "split": "test"}], ["split=dev: ", "test"]),
    ({"m": {"path": "{file}", "kind": "retrieval", "corpus": "{file}"}}, [ROWS], ["rows.jsonl, queries: "]),
]


def filled(entry, **given):
    if isinstance(entry, str):
        return entry.format(**given)
    if isinstance(entry, list):
        return [filled(one, **given) for one in entry]
    return {key: filled(one, **given) for key, one in entry.items()} if isinstance(entry, dict) else entry


@pytest.mark.parametrize(("entry", "rows", "expected"), BAD, ids=[one[2][0][:30] for one in BAD])
def test_invalid_custom_tasks_are_refused(entry, rows, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = lines(tmp_path / "rows.jsonl", rows or [])
    with pytest.raises(InputError) as caught:
        scored(filled(entry, file=file), BagOfWords())
    assert all(part in str(caught.value) for part in expected), caught.value


def test_a_file_with_other_columns_is_scored_with_the_example_of_the_message(tmp_path, bag_of_words):
    file = tmp_path / "mine.csv"
    rows = ["frage,antwort: kurz,note", "w1 w2,w1,3", "w3,w4,1", "w5 w6,w6 w7,2"]
    file.write_text("\n".join(rows), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        scored(str(file), bag_of_words)
    assert (caught.value.location, caught.value.key) == (str(file), "columns")
    assert {"sentence1", "query", "text", "anchor"} <= {*re.findall(r"\w+", caught.value.expected)}
    [example] = re.findall("`(.*)`", caught.value.hint)
    (tmp_path / "tasks.yaml").write_text(example, encoding="utf-8")
    found = scored(str(tmp_path / "tasks.yaml"), bag_of_words)
    file.write_text("\n".join(["sentence1,sentence2,score", *rows[1:]]), encoding="utf-8")
    assert found["my_task/cosine/spearman"] == scored(str(file), bag_of_words)["mine/cosine/spearman"]


def test_a_folder_with_ids_that_do_not_meet(tmp_path, bag_of_words, caplog):
    gains = {"q1": {"d1": 1, "nowhere": 1}, "q2": {"d2": 1}, "unknown": {"d3": 1}}
    folder = beir(tmp_path / "a", gains)
    found = scored(str(folder), bag_of_words)
    assert found["a/cosine/recall@100"] <= 75, "one of three relevant documents cannot be found"
    assert {record.args for record in caplog.records} >= {
        ("a", 1, folder / "qrels" / "test.tsv", folder / "queries.jsonl"),
        ("a", 1, folder / "corpus.jsonl"),
    }
    with (folder / "corpus.jsonl").open("a") as file:
        file.write('{"_id": "d1", "text": "again"}\n')
    with pytest.raises(InputError) as caught:
        scored(str(folder), bag_of_words)
    assert (caught.value.location, caught.value.value) == (f"{folder / 'corpus.jsonl'}:301", "d1")
    with pytest.raises(InputError) as caught:
        scored({"a": {"path": str(folder), "split": "dev"}}, bag_of_words)
    assert (caught.value.key, caught.value.value) == ("split", "dev")


def named_set(folder: Path, qrels: str, file: str = "qrels/test.tsv", ids: tuple[str, str] = ("q", "d")) -> Path:
    """Write four queries and as many documents; query i is nearest to document i."""
    words = ("apple pear", "iron copper", "river lake", "violin drum")
    lines(folder / "queries.jsonl", [{"_id": f"{ids[0]}{n}", "text": text} for n, text in enumerate(words)])
    corpus = [{"_id": f"{ids[1]}{n}", "title": "", "text": f"{text} too"} for n, text in enumerate(words)]
    lines(folder / "corpus.jsonl", corpus)
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text(qrels)
    return folder


QRELS = {  # the files say: 0 -> document 0; 1 -> 1 (gain 2) and 2; 2 -> nothing; 3 -> 3
    "BEIR": ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq0\td0\t1\nq1\td1\t2\nq1\td2\t1\nq2\td2\t0\nq3\td3\t1\n"),
    "no header": ("qrels/test.tsv", "q0\td0\t1\nq1\td1\t2\nq1\td2\t1\nq2\td2\t-1\nq3\td3\t1\n"),
    "TREC, tabs": ("qrels/test.tsv", "q0\t0\td0\t1\nq1\t0\td1\t2\nq1\t0\td2\t1\nq2\t0\td2\t0\nq3\t0\td3\t1\n"),
    "TREC, blanks": ("qrels/dev.qrels", "q0 0 d0 1\nq1 Q0 d1 2\nq1 0 d2 1\nq2 0 d2 -2\n\nq3  0  d3 1"),
    "one file": ("qrels.txt", "q0 d0 1.0\r\nq1 d1 2.0\r\nq1 d2 1.0\r\nq3 d3 1.0\r\n"),
    "commas": ("qrels/test.csv", '"q0","d0",1\n"q1","d1",2\n"q1","d2",1\n"q3","d3",1\n'),
    "rel": ("qrels/test.tsv", "qid\tdocid\trel\nq0\td0\t1\nq1\td1\t2\nq1\td2\t1\nq2\td2\t0\nq3\td3\t1\n"),
    "names": ("qrels/test.csv", "qid,iter,docid,label\nq0,0,d0,1\nq1,0,d1,2\nq1,0,d2,1\nq3,0,d3,1\n"),
}


@pytest.mark.parametrize("layout", QRELS)
def test_every_judgment_of_qrels_counts(layout, tmp_path):
    file, text = QRELS[layout]
    (own,) = resolve_custom_tasks(str(named_set(tmp_path / "set", text, file)))
    (task,) = own.read(EvaluateConfig())
    assert task.texts_to_match.queries == ["apple pear", "iron copper", "violin drum"]
    assert task.texts_to_match.relevant == [{0: 1}, {1: 2, 2: 1}, {3: 1}]


def test_two_columns_without_names_are_judgments(tmp_path):
    (own,) = resolve_custom_tasks(str(named_set(tmp_path / "set", "0\t0\n2\t2\n", ids=("", ""))))
    (task,) = own.read(EvaluateConfig())
    assert task.texts_to_match.relevant == [{0: 1}, {2: 1}]


@pytest.mark.parametrize(
    ("qrels", "line"),
    [
        ("topic\tdoc\tgrade\nq0\td0\t1\n", 1),
        ("qid\tdocid\tjudged\nq0\td0\t0\nq1\td1\t1\n", 1),
        ("q0 0 d0 1\nq1 d1 1\n", 2),
        ("q0 0 d0 1 x y\n", 1),
    ],
)
def test_qrels_of_another_form_name_the_line(qrels, line, tmp_path, bag_of_words):
    with pytest.raises(InputError) as caught:
        scored(str(named_set(tmp_path / "set", qrels)), bag_of_words)
    assert caught.value.location.endswith(f"test.tsv:{line}")
    assert caught.value.hint


def arguments(folder: Path, own: str = " a{n} b{n}  c{n}") -> Path:
    """Write a set whose queries are documents, too; the answer is the second nearest."""
    words = [(f"a{n} b{n} c{n}", f"a{n} b{n} x{n} y{n}") for n in range(4)]
    same = [{"_id": f"{n}", "text": own.format(n=n)} for n, _ in enumerate(words)]
    lines(folder / "corpus.jsonl", same + [{"_id": f"con{n}", "text": con} for n, (_, con) in enumerate(words)])
    lines(folder / "queries.jsonl", [{"_id": f"{n}", "text": pro} for n, (pro, _) in enumerate(words)])
    (folder / "qrels").mkdir()
    (folder / "qrels" / "test.tsv").write_text("".join(f"{n}\tcon{n}\t1\n" for n in range(4)))
    return folder


def test_a_querys_own_document_is_not_ranked(tmp_path, bag_of_words, caplog):
    caplog.set_level("INFO")
    folder, other = str(arguments(tmp_path / "same")), str(arguments(tmp_path / "ids", own="another text"))
    metrics = ["mrr", "recall@1"]

    def found(path: str, ignore: bool | str) -> list[float]:
        task = {"path": path, "ignore_identical_ids": ignore, "metrics": metrics}
        return list(scored({"t": task}, bag_of_words).values())

    assert found(folder, "auto") == found(folder, True) == [100, 100]
    assert [record.args[:2] for record in caplog.records] == [("t", 4), ("t", 4)]
    assert found(folder, False) == [50, 0], "the query itself comes first, its answer second"
    caplog.clear()
    assert found(other, "auto") == found(other, False) == [100, 100], "equal ids of other texts"
    assert not caplog.text


@pytest.mark.parametrize("name", ["cisi", "cranfield"])
def test_equal_ids_of_unrelated_texts_leave_nothing_out(name, shared_data):
    (own,) = resolve_custom_tasks(str(shared_data / "eval" / "retrieval" / name))
    (task,) = own.read(EvaluateConfig())
    assert not task.texts_to_match.unranked_documents


def test_a_document_that_is_judged_relevant_is_ranked_unless_ids_alone_count(tmp_path):
    folder = arguments(tmp_path / "set", own="A{n} b{n}, C{n}.")
    (folder / "qrels" / "test.tsv").write_text("0\t0\t1\n1\tcon1\t1\n")
    (own,) = resolve_custom_tasks(str(folder))
    (task,) = own.read(EvaluateConfig())
    assert task.texts_to_match.unranked_documents == {1: [1]}
    (own,) = resolve_custom_tasks({"forced": {"path": str(folder), "ignore_identical_ids": True}})
    (task,) = own.read(EvaluateConfig())
    assert task.texts_to_match.unranked_documents == {0: [0], 1: [1]}
    assert max(task.texts_to_match.relevant[0]) < 0, "it cannot be found"


def test_a_yaml_file_beside_its_data(tmp_path, monkeypatch, bag_of_words):
    lines(tmp_path / "tasks" / "data" / "p.jsonl", [{**ROWS, "score": n, "sentence2": f"w{n} b"} for n in range(9)])
    (tmp_path / "tasks" / "mine.yaml").write_text("first: {path: data/p.jsonl}\nsecond: {path: [data/p.jsonl]}\n")
    monkeypatch.chdir(tmp_path / "tasks")
    found = scored("mine", bag_of_words)
    assert found["first/cosine/spearman"] == found["second/cosine/spearman"]
    monkeypatch.chdir(tmp_path)
    assert scored(["tasks/mine.yaml"], bag_of_words) == found


@pytest.mark.parametrize(("codec", "encoding"), [("cp1252", None), ("cp850", "cp850"), ("utf-8-sig", None)])
def test_a_task_in_another_encoding_has_the_same_texts(tmp_path, codec, encoding):
    rows = [("Wo ist die Größe?", "Die Größe ist äußerst groß.", 1), ("Straße", "Weg", 0.5), ("über", "unter", 0)]
    pairs = tmp_path / "pairs.csv"
    pairs.write_bytes(
        "\r".join(["sentence1,sentence2,score", *(",".join(map(str, row)) for row in rows)]).encode(codec)
    )
    [task] = resolve_custom_tasks({"mine": {"path": str(pairs), "encoding": encoding}})[0].read(EvaluateConfig())
    assert list(task.pairs.left) == [row[0] for row in rows]
    assert list(task.pairs.right) == [row[1] for row in rows]
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    for name, text in (("corpus", rows[0][1]), ("queries", rows[0][0])):
        line = json.dumps({"_id": name, "text": text}, ensure_ascii=False)
        (folder / f"{name}.jsonl").write_bytes(line.encode(codec))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nqueries\tcorpus\t1\n")
    [task] = resolve_custom_tasks({"mine": {"path": str(folder), "encoding": encoding}})[0].read(EvaluateConfig())
    assert [list(texts) for texts in task.texts()] == [[rows[0][0]], [rows[0][1]]]


def test_an_encoding_that_a_task_needs_is_named(tmp_path):
    pairs = tmp_path / "pairs.csv"
    pairs.write_bytes("sentence1,sentence2,score\nüber,a,1\nb,c,0\n".encode("cp850"))
    with pytest.raises(InputError) as refused:
        resolve_custom_tasks(str(pairs))[0].read(EvaluateConfig())
    assert "encoding=NAME" in str(refused.value)
