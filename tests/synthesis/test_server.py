"""``engine=openai`` against a stand-in that stalls, answers nonsense, 429 and half, and dies; keys never leak."""

import functools
import json
import math
import signal
from collections import Counter

import pytest

from contrastive_encoders.core import InputError
from contrastive_encoders.synthesis.server.protocol import ServerAnswer, probability, read_answer, text_of
from contrastive_encoders.synthesis.shards.store import SynthesisError
from tests.synthesis.commands import here, rows_of, start
from tests.synthesis.openai_server import JUDGED, Stand, text_for
from tests.synthesis.settings import decoding

pytestmark = pytest.mark.usefixtures("no_pictures")
KEY = "sk-very-secret-0123456789"
TEXTS = [f"The old cat sleeps under tree number {n} today." for n in range(12)]
QUICK = ["requests.timeout=0.5", "requests.max_retries=20", "requests.in_flight=8"]


@pytest.fixture
def stand(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.05)
    monkeypatch.setattr("openai._base_client.MAX_RETRY_DELAY", 0.4)
    one = Stand()
    yield one
    one.close()


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("\n".join(TEXTS))
    return path


def dino(stand, texts, output, *words):
    served = ["engine=openai", f"base_url={stand.url}", "generator=some/model"]
    return [
        "recipe=dino_x2",
        *served,
        f"input={texts}",
        f"output={output}",
        "decay=0",
        "per_label=2",
        "shard_size=4",
        *QUICK,
        *words,
    ]


def gense(stand, texts, output, *words):
    served = ["engine=openai", f"base_url={stand.url}", "generator=some/model"]
    return [
        "recipe=gense_instruct",
        *served,
        f"input={texts}",
        f"output={output}",
        "shard_size=4",
        "workers=1",
        "rules.threshold=0.5",
        "rules.agree=false",
        *QUICK,
        *words,
    ]


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """``good(dino)`` returns the output with a server without faults."""
    folder = tmp_path_factory.mktemp("good")
    (folder / "in.txt").write_text("\n".join(TEXTS))

    @functools.cache
    def written(kind):
        one = Stand()
        here(*kind(one, folder / "in.txt", folder / kind.__name__))
        one.close()
        return shards(folder / kind.__name__)

    return written


def shards(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("shard-*.jsonl"))}


def asked_twice(bodies):
    return [body for body, times in Counter(json.dumps(one, sort_keys=True) for one in bodies).items() if times > 1]


@pytest.mark.parametrize("chat", [False, True])
def test_every_text_is_what_the_server_answered(stand, texts, tmp_path, chat):
    """The rows are compared with the stand-in's answers to the requests."""
    patient = "requests.timeout=30"  # a busy machine is no fault
    here(*dino(stand, texts, tmp_path / "out", f"chat_template={str(chat).lower()}", patient))
    assert len(stand.asked) == len(TEXTS) * 3 * 2
    by_text = {}
    for path, body, _ in stand.asked:
        assert path == ("/v1/chat/completions" if chat else "/v1/completions")
        assert (body["model"], body["top_k"], body["top_p"], body["max_tokens"]) == ("some/model", 5, 0.9, 40)
        said = body["messages"][0]["content"] if chat else body["prompt"]
        assert said.endswith('"' if chat else 'Sentence 2: "')
        assert body.get("stop") == (None if chat else ['"'])
        by_text.setdefault(next(text for text in TEXTS if text in said), []).append(text_for(body))
    rows = rows_of(tmp_path / "out")
    assert len(rows) == len(stand.asked)
    for text in TEXTS:
        assert sorted(row["text_b"] for row in rows if row["text_a"] == text) == sorted(by_text[text])
    assert 2 <= stand.most_at_once <= 8
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["complete"]
    assert manifest["identity"]["generator"] == {"engine": "openai", "model": "some/model"}


FAULTS = ["429", "500", "stall", "drip", "html", "empty", "number", "torn", "half", "gone", "429", "429"]


@pytest.mark.parametrize("kind", [dino, gense])
def test_faults_change_nothing(stand, texts, tmp_path, kind, good):
    stand.faults = [None, *FAULTS]  # the first request is sent alone
    below_a_stall = "requests.timeout=2"  # and far above the response time of a busy machine
    here(*kind(stand, texts, tmp_path / "out", below_a_stall))
    assert stand.faults == []
    assert shards(tmp_path / "out") == good(kind)
    assert asked_twice(stand.answered) == []


def test_triplets_are_judged_by_the_first_tokens_probabilities(stand, texts, tmp_path):
    here(*gense(stand, texts, tmp_path / "out"))
    true, false = JUDGED[" True"] + JUDGED["true"], JUDGED["False"]
    rows = rows_of(tmp_path / "out" / "scored")
    assert [row["premise"] for row in rows] == TEXTS
    for row in rows:
        for direction in ("entailment", "contradiction"):
            [one] = row[direction]
            assert one["p_true"] == pytest.approx(true / (true + false), abs=1e-6)
            assert one["closed"]
            assert one["text"][0].isupper()
            assert one["text"].endswith(".")
    judging = [body for _, body, _ in stand.asked if "logprobs" in body]
    assert all((body["top_logprobs"], body["max_tokens"]) == (5, 1) for body in judging)
    report = (tmp_path / "out" / "report.html").read_text()
    assert "judged by some/model" in report


def test_an_answer_that_is_not_listed_is_at_most_as_likely_as_the_least(stand):
    answers = {"yes": "True", "no": "False"}
    listed = [(" true", math.log(0.6)), ("The", math.log(0.1)), ("Yes", math.log(0.02))]
    assert probability(listed, answers) == pytest.approx(0.6 / 0.62)
    assert probability([("A", -1.0), ("B", -2.0)], answers) is None
    assert probability([("ĠF", math.log(0.3)), ("▁true", math.log(0.1))], answers) == pytest.approx(0.25)


def test_a_probability_is_none_of_more_than_one():
    logprobs = {"top_logprobs": [{"T": 1e4, "F": "-Infinity"}]}
    read = read_answer(json.dumps({"choices": [{"text": "T", "logprobs": logprobs}]}).encode(), chat=False)
    assert probability(read["listed"], {"yes": "True", "no": "False"}) == pytest.approx(1.0)


@pytest.mark.advice("contrastive_encoders.synthesis.rules.triplet_rules:UNJUDGED_HINT")
def test_without_probabilities_judging_is_refused_before_anything_is_written(stand, texts, tmp_path):
    stand.logprobs = False
    with pytest.raises(InputError, match=r"gives no log-probabilities.*rules\.agree=false rules\.threshold=null"):
        here(*gense(stand, texts, tmp_path / "out"))
    assert len(stand.asked) == 1
    stand.logprobs = True  # it was told to give them: texts without them are requested again
    here(*gense(stand, texts, tmp_path / "out"))
    assert {one["p_true"] for row in rows_of(tmp_path / "out" / "scored") for one in row["entailment"]} == {0.875}
    stand.logprobs = False
    here(*gense(stand, texts, tmp_path / "out", "rules.threshold=null", "overwrite=true"))
    rows = rows_of(tmp_path / "out" / "scored")
    assert {one["p_true"] for row in rows for one in row["entailment"]} == {None}
    with pytest.raises(InputError, match="nothing was judged"):
        here("recipe=gense_filter", f"input={tmp_path / 'out'}", f"output={tmp_path / 'other'}")
    unjudged = ["rules.agree=false", "rules.threshold=null"]
    here("recipe=gense_filter", f"input={tmp_path / 'out'}", f"output={tmp_path / 'other'}", *unjudged)


def test_a_text_over_two_lines_is_not_closed():
    """The decoder abandons such a text, which nothing else records for a candidate."""
    how = decoding(stop='"', abandon="\n")
    answer = ServerAnswer(text="A cat.\nA dog.", whole=True, tokens=4, listed=[], refused="")
    assert text_of(answer, 'Say: "', how, chat=False) == ("A cat.\nA dog.", False)


def test_a_truncated_answer_is_not_closed(stand, texts, tmp_path):
    here(*dino(stand, texts, tmp_path / "out", "max_new_tokens=4"))
    counts = json.loads((tmp_path / "out" / "manifest.json").read_text())["counts"]
    assert (counts["accepted"], counts["rejected"]) == (0, {"no quotation mark": counts["samples"]})


@pytest.mark.parametrize("fault", ["context", "400", "500"])
def test_one_prompt_that_the_server_does_not_bear_costs_its_own_texts(stand, texts, tmp_path, fault):
    stand.bad_prompt = ("number 7 ", fault)
    here(*dino(stand, texts, tmp_path / "out", "requests.max_retries=1"))
    counts = json.loads((tmp_path / "out" / "manifest.json").read_text())["counts"]
    why = {"context": "no room in the context", "400": "refused by the server", "500": "no answer"}[fault]
    assert counts["rejected"] == {why: 6}
    assert counts["accepted"] == len(TEXTS) * 6 - 6


def test_a_text_that_has_to_wait_is_not_left_out_while_others_are_answered(stand, texts, tmp_path, good, monkeypatch):
    stand.delay = 0.02
    monkeypatch.setattr(stand, "fault_of", lambda said: "429" if "number 1 " in said and not enough() else None)

    def enough():
        return len(stand.answered) >= 40

    here(*dino(stand, texts, tmp_path / "out", "requests.max_retries=2"))
    assert sum("number 1 " in body["prompt"] for _, body, _ in stand.asked) > 3 * 6, "more than the client's own tries"
    assert shards(tmp_path / "out") == good(dino)


def test_halves_of_letters_do_not_end_it(stand, texts, tmp_path):
    stand.always = "surrogate"
    here(*dino(stand, texts, tmp_path / "out"))
    assert any("?" in row["text_b"] for row in rows_of(tmp_path / "out"))


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("401", "OPENAI_API_KEY"),
        ("404", "base_url mostly ends in /v1"),
        ("400", r"max_tokens, .*top_p, top_k, stop.*requests\.body"),
        ("gone", "wanted an answer of OpenAI's protocol, got: Server disconnected"),
        ("html", "wanted an answer of OpenAI's protocol, got: '<html>Welcome</html>'"),
    ],
)
def test_what_the_server_refuses_at_once_is_the_users_to_correct(stand, texts, tmp_path, fault, says):
    stand.always = fault
    with pytest.raises(InputError, match=says) as error:
        here(*dino(stand, texts, tmp_path / "out"))
    assert KEY not in str(error.value)
    assert len(stand.asked) <= 8, "those that were under way"


def test_an_address_without_a_server(stand, texts, tmp_path):
    stand.close()
    with pytest.raises(InputError, match=r"connection attempts failed\. Start the server, or correct the address"):
        here(*dino(stand, texts, tmp_path / "out"))


def test_a_server_that_is_gone_ends_the_command_which_goes_on_later(stand, texts, tmp_path, good):
    """Answered requests are not sent again, even with another address."""
    stand.delay = 0.02
    stand.most_answered = 30
    with pytest.raises(SynthesisError, match="does not answer, however often"):
        here(*dino(stand, texts, tmp_path / "out", "requests.max_retries=3"))
    other = Stand()
    here(*dino(other, texts, tmp_path / "out"))
    assert asked_twice([*stand.answered, *other.answered]) == []
    assert shards(tmp_path / "out") == good(dino)
    other.close()


def test_a_key_that_is_cut_is_not_shown(stand, texts, tmp_path):
    stand.always = "page"
    with pytest.raises(InputError, match=r"got: .<html>---") as error:
        here(*dino(stand, texts, tmp_path / "out"))
    assert KEY[:9] not in str(error.value)


def test_killed_and_continued_nothing_answered_is_asked_again(stand, texts, tmp_path, good):
    """SIGKILL in the middle of the first shard; of the answered requests, only those in progress are repeated."""
    stand.delay = 0.02
    out = tmp_path / "out"
    words = gense(stand, texts, out, "requests.in_flight=2")
    process = start(*(word.replace("generator=", "model=") for word in words), OPENAI_API_KEY=KEY)  # as it is typed
    process.wait_for(lambda: len(stand.answered) >= 8)
    process.kill(signal.SIGKILL)
    assert process.finish().status == -signal.SIGKILL
    before = len(stand.answered)
    lines = [line for path in out.rglob("answers.jsonl") for line in path.read_bytes().splitlines()]
    assert before - len(lines) <= 3, "but for those under way"
    own = next(out.rglob("answers.jsonl"))
    own.write_bytes(own.read_bytes() + b'["torn')  # as a kill within a line leaves it
    here(*words)
    assert len(asked_twice(stand.answered)) <= 3
    assert shards(out) == good(gense)


def test_the_key_is_written_nowhere(stand, texts, tmp_path):
    """It is in neither output nor messages, although the server repeats it in its errors; and it is sent."""
    stand.faults = ["500"]
    process = start(*dino(stand, texts, tmp_path / "out"), OPENAI_API_KEY=KEY, OPENAI_LOG="debug")
    outcome = process.finish()
    assert outcome.status == 0, outcome.err
    stand.always = "401"
    refused = start(*dino(stand, texts, tmp_path / "other"), OPENAI_API_KEY=KEY).finish()
    assert refused.status == 2
    assert "your key ***" in refused.err
    assert stand.asked[0][2]["authorization"] == f"Bearer {KEY}"
    said = outcome.out + outcome.err + refused.out + refused.err
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 5
    assert KEY not in said
    assert not [path for path in files if KEY.encode() in path.read_bytes()]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["decay=100"], r"decay=100: expected 0 "),
        (["base_url=null"], "base_url=None: wanted the address"),
        (["base_url=http://me:secret@localhost/v1"], "base_url holds more than an address"),
        (["devices=2"], r"devices=2 goes with weights"),
        (["requests.in_flight=0"], r"requests\.in_flight=0"),
    ],
)
def test_wrong_words(stand, texts, tmp_path, words, says):
    with pytest.raises(InputError, match=says) as error:
        here(*dino(stand, texts, tmp_path / "out", *words))
    assert "secret" not in str(error.value)
    assert stand.asked == []
    assert not (tmp_path / "out").exists()
