"""``engine=openai`` with a test server that stalls, fails, truncates responses, and exits; API keys never leak."""

import functools
import json
import math
import signal
from collections import Counter

import pytest

from contrastive_encoders.synthesis.rules.filters import NO_ROOM, UNCLOSED
from contrastive_encoders.synthesis.server.protocol import (
    NO_ANSWER,
    REFUSED,
    ServerAnswer,
    extract_text,
    probability,
    read_answer,
)
from contrastive_encoders.synthesis.shards.store import SynthesisError
from tests.synthesis.commands import here, refusal, rows_of, start
from tests.synthesis.openai_server import JUDGED, Stand, text_for
from tests.synthesis.settings import decoding
from tests.variations import slow_after

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


def dino(stand, texts, output, *overrides):
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
        *overrides,
    ]


def gense(stand, texts, output, *overrides):
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
        *overrides,
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
    """The rows are compared with the fake server's answers to the requests."""
    patient = "requests.timeout=30"  # tolerate a busy machine
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


@pytest.mark.rotates
@pytest.mark.parametrize("kind", slow_after(1, [gense, dino]))
def test_temporary_faults_do_not_change_the_texts(stand, texts, tmp_path, kind, good):
    stand.faults = [None, *FAULTS]  # the first request is sent alone
    below_a_stall = "requests.timeout=2"  # and far above the response time of a busy machine
    here(*kind(stand, texts, tmp_path / "out", below_a_stall))
    assert stand.faults == []
    assert shards(tmp_path / "out") == good(kind)
    assert asked_twice(stand.answered) == []


def test_triplets_are_judged_by_the_probabilities_of_the_first_token(stand, texts, tmp_path):
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
    assert " some/model" in report


def test_an_unlisted_answer_has_the_lowest_listed_probability(stand):
    answers = {"yes": "True", "no": "False"}
    listed = [(" true", math.log(0.6)), ("The", math.log(0.1)), ("Yes", math.log(0.02))]
    assert probability(listed, answers) == pytest.approx(0.6 / 0.62)
    assert probability([("A", -1.0), ("B", -2.0)], answers) is None
    assert probability([("ĠF", math.log(0.3)), ("▁true", math.log(0.1))], answers) == pytest.approx(0.25)


def test_probabilities_above_one_are_clipped():
    logprobs = {"top_logprobs": [{"T": 1e4, "F": "-Infinity"}]}
    read = read_answer(json.dumps({"choices": [{"text": "T", "logprobs": logprobs}]}).encode(), chat=False)
    assert probability(read["listed"], {"yes": "True", "no": "False"}) == pytest.approx(1.0)


@pytest.mark.advice("contrastive_encoders.synthesis.rules.triplet_rules:UNJUDGED_HINT")
def test_a_server_without_probabilities_cannot_judge(stand, texts, tmp_path):
    stand.logprobs = False
    error = refusal(*gense(stand, texts, tmp_path / "out"))
    assert (error.key, error.value, "log-probabilities" in error.expected) == ("base_url", stand.url, True)
    assert "rules.agree=false rules.threshold=null" in error.hint
    assert len(stand.asked) == 1
    stand.logprobs = True  # it was told to give them: texts without them are requested again
    here(*gense(stand, texts, tmp_path / "out"))
    assert {one["p_true"] for row in rows_of(tmp_path / "out" / "scored") for one in row["entailment"]} == {0.875}
    stand.logprobs = False
    here(*gense(stand, texts, tmp_path / "out", "rules.threshold=null", "overwrite=true"))
    rows = rows_of(tmp_path / "out" / "scored")
    assert {one["p_true"] for row in rows for one in row["entailment"]} == {None}
    assert refusal("recipe=gense_filter", f"input={tmp_path / 'out'}", f"output={tmp_path / 'other'}").key == "rules"
    unjudged = ["rules.agree=false", "rules.threshold=null"]
    here("recipe=gense_filter", f"input={tmp_path / 'out'}", f"output={tmp_path / 'other'}", *unjudged)


def test_a_text_over_two_lines_is_not_closed():
    """The decoder abandons such a text, which nothing else records for a candidate."""
    how = decoding(stop='"', abandon="\n")
    answer = ServerAnswer(text="A cat.\nA dog.", whole=True, tokens=4, listed=[], refused="")
    assert extract_text(answer, 'Say: "', how, chat=False) == ("A cat.\nA dog.", False)


def test_a_truncated_answer_is_not_closed(stand, texts, tmp_path):
    here(*dino(stand, texts, tmp_path / "out", "max_new_tokens=4"))
    counts = json.loads((tmp_path / "out" / "manifest.json").read_text())["counts"]
    assert (counts["accepted"], counts["rejected"]) == (0, {UNCLOSED: counts["samples"]})


@pytest.mark.rotates
@pytest.mark.parametrize("fault", ["context", "400", "500"])
def test_a_prompt_that_the_server_rejects_loses_only_its_own_texts(stand, texts, tmp_path, fault):
    stand.bad_prompt = ("number 7 ", fault)
    here(*dino(stand, texts, tmp_path / "out", "requests.max_retries=1"))
    counts = json.loads((tmp_path / "out" / "manifest.json").read_text())["counts"]
    why = {"context": NO_ROOM, "400": REFUSED, "500": NO_ANSWER}[fault]
    assert counts["rejected"] == {why: 6}
    assert counts["accepted"] == len(TEXTS) * 6 - 6


@pytest.mark.rotates
def test_a_rate_limited_text_is_retried_while_other_requests_succeed(stand, texts, tmp_path, good, monkeypatch):
    stand.delay = 0.02
    monkeypatch.setattr(stand, "fault_of", lambda said: "429" if "number 1 " in said and not enough() else None)

    def enough():
        return len(stand.answered) >= 40

    here(*dino(stand, texts, tmp_path / "out", "requests.max_retries=2"))
    assert sum("number 1 " in body["prompt"] for _, body, _ in stand.asked) > 3 * 6, "more than the client's own tries"
    assert shards(tmp_path / "out") == good(dino)


def test_lone_surrogates_are_replaced(stand, texts, tmp_path):
    stand.always = "surrogate"
    here(*dino(stand, texts, tmp_path / "out"))
    assert any("?" in row["text_b"] for row in rows_of(tmp_path / "out"))


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("fault", "fact", "hint"),
    [
        ("401", "401 wrong", "OPENAI_API_KEY"),
        ("404", "404 wrong", "/v1"),
        ("400", "400 wrong", "top_p, top_k, stop"),
        ("gone", "Server disconnected", "/v1"),
        ("html", "'<html>Welcome</html>'", "/v1"),
    ],
)
def test_an_error_of_the_first_request_is_an_input_error(stand, texts, tmp_path, fault, fact, hint):
    stand.always = fault
    error = refusal(*dino(stand, texts, tmp_path / "out"))
    assert (error.key, error.value) == ("base_url", stand.url)
    assert fact in error.expected
    assert hint in error.hint
    assert KEY not in str(error)
    assert len(stand.asked) <= 8, "those that were pending"


def test_an_unreachable_server_is_an_input_error(stand, texts, tmp_path):
    stand.close()
    error = refusal(*dino(stand, texts, tmp_path / "out"))
    assert (error.key, error.value, "connection" in error.expected) == ("base_url", stand.url, True)


def test_a_command_fails_with_its_server_and_resumes_later(stand, texts, tmp_path, good):
    """Answered requests are not sent again, even with another address."""
    stand.delay = 0.02
    stand.most_answered = 30
    with pytest.raises(SynthesisError) as error:
        here(*dino(stand, texts, tmp_path / "out", "requests.max_retries=3"))
    assert stand.url in str(error.value)
    other = Stand()
    here(*dino(other, texts, tmp_path / "out"))
    assert asked_twice([*stand.answered, *other.answered]) == []
    assert shards(tmp_path / "out") == good(dino)
    other.close()


def test_a_truncated_key_is_not_shown(stand, texts, tmp_path):
    stand.always = "page"
    error = refusal(*dino(stand, texts, tmp_path / "out"))
    assert "<html>---" in error.expected
    assert KEY[:9] not in str(error)


def test_a_killed_command_does_not_request_saved_answers_again(stand, texts, tmp_path, good):
    """SIGKILL in the middle of the first shard; of the answered requests, only those in progress are repeated."""
    stand.delay = 0.02
    out = tmp_path / "out"
    overrides = gense(stand, texts, out, "requests.in_flight=2")
    process = start(
        *(override.replace("generator=", "model=") for override in overrides), OPENAI_API_KEY=KEY
    )  # as it is typed
    process.wait_for(lambda: len(stand.answered) >= 8)
    process.kill(signal.SIGKILL)
    assert process.finish().status == -signal.SIGKILL
    before = len(stand.answered)
    lines = [line for path in out.rglob("answers.jsonl") for line in path.read_bytes().splitlines()]
    assert before - len(lines) <= 3, "except for those that were pending"
    own = next(out.rglob("answers.jsonl"))
    own.write_bytes(own.read_bytes() + b'["torn')  # as a kill within a line leaves it
    here(*overrides)
    assert len(asked_twice(stand.answered)) <= 3
    assert shards(out) == good(gense)


def test_the_key_is_never_written(stand, texts, tmp_path):
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


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("overrides", "fact"),
    [
        (["decay=100"], "decay=100: "),
        (["base_url=null"], "base_url=null: "),
        (["base_url=http://me:secret@localhost/v1"], "base_url: "),
        (["devices=2"], "devices=2: "),
        (["requests.in_flight=0"], "requests.in_flight=0"),
    ],
)
def test_wrong_settings_are_refused_before_any_request(stand, texts, tmp_path, overrides, fact):
    error = refusal(*dino(stand, texts, tmp_path / "out", *overrides))
    assert fact in str(error)
    assert "secret" not in str(error)
    assert stand.asked == []
    assert not (tmp_path / "out").exists()
