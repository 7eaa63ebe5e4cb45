"""Build requests and parse responses of OpenAI's API, for chat completions and completions.

In a chat, the user's message is the prompt without its last line, as for a local model. No server guarantees to
continue a partial answer. Therefore, the last line is not sent, and is removed from answers that begin with it.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from contrastive_encoders.synthesis.decoding.continuations import Decoding, split_chat_prompt

FINISH_REASONS = {"stop", "eos", "eos_token", "stop_sequence"}  # servers' reasons for a text that ended on its own
REFUSALS = NO_ANSWER, REFUSED = "no answer", "refused by the server"  # reasons for no text, next to a full context
LOGPROBS = "logprobs"
TOP_LOGPROBS = 5  # number of likeliest first tokens to request for a judge: the number that every server supports


class InvalidResponseError(ValueError):
    """Raised for a response that does not follow OpenAI's API."""


class ServerAnswer(TypedDict):
    """A parsed answer of a server, as stored in the journal."""

    text: str
    whole: bool  # ended on its own; by the stop string, if the server makes the distinction
    tokens: int
    listed: list[tuple[str, float]]  # likeliest first tokens with log p; empty if the server returns none
    refused: str  # reason for a missing answer; empty if there is one


def refusal(why: str) -> ServerAnswer:
    return ServerAnswer(text="", whole=False, tokens=0, listed=[], refused=why)


def generation_request(prompt: str, how: Decoding, seed: int, *, chat: bool) -> dict[str, Any]:
    """Return the body of a request that generates one text."""
    body: dict[str, Any] = {"max_tokens": how.max_new_tokens, "temperature": how.temperature, "seed": seed}
    if how.top_p is not None and how.top_p < 1:
        body["top_p"] = how.top_p
    if how.top_k:
        body["top_k"] = how.top_k  # supported by all servers except OpenAI's
    if how.stop and not chat:
        body["stop"] = [how.stop]
    return {**_prompt_fields(prompt, chat), **body}


def judge_request(prompt: str, *, chat: bool) -> dict[str, Any]:
    """Return the body of a request for the log-probabilities of the first token.

    The temperature is 1, so that servers do not change the probabilities.
    """
    listed = {LOGPROBS: True, "top_logprobs": TOP_LOGPROBS} if chat else {LOGPROBS: TOP_LOGPROBS}
    return {**_prompt_fields(prompt, chat), "max_tokens": 1, "temperature": 1.0, **listed}


def replace_prompt(body: Mapping[str, Any], *, chat: bool) -> dict[str, Any]:
    """Replace the prompt of a request by a short prompt that every server can answer."""
    return {**body, **_prompt_fields("Hello", chat)}


def _prompt_fields(prompt: str, chat: bool) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": split_chat_prompt(prompt)[0]}]} if chat else {"prompt": prompt}


def read_answer(content: bytes, *, chat: bool, stop: object = None) -> ServerAnswer:
    """Parse the answer in a response.

    Args:
        stop: Value of the ``stop`` key in the request.

    Raises:
        InvalidResponseError: The response is not JSON, or a field is missing or has the wrong type.
    """
    try:
        found = json.loads(content)
        choice = found["choices"][0]
        text = (choice["message"].get("content") or "") if chat else choice["text"]
        tokens = (found.get("usage") or {}).get("completion_tokens")
        whole = choice.get("finish_reason") in FINISH_REASONS
        if stop and "stop_reason" in choice:  # vLLM: null if the model ended without the stop string
            whole = whole and choice["stop_reason"] is not None
        listed = _first_token(choice.get(LOGPROBS), chat)
        text = text.encode("utf-8", "replace").decode()  # halves of surrogate pairs are not valid text
        tokens = tokens if isinstance(tokens, int) and tokens >= 0 else len(text.split())
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InvalidResponseError(f"not a response of OpenAI's protocol: {type(error).__name__}: {error}") from None
    return ServerAnswer(text=text, whole=whole, tokens=tokens, listed=listed, refused="")


def _first_token(found: Any, chat: bool) -> list[tuple[str, float]]:
    if not found:
        return []
    if chat:
        tokens = (found.get("content") or [{}])[0].get("top_logprobs") or []
        pairs = [(one["token"], one["logprob"]) for one in tokens]
    else:
        pairs = list(((found.get("top_logprobs") or [None])[0] or {}).items())
    listed = [(str(token), float(log_p)) for token, log_p in pairs if log_p is not None]
    return [(token, min(log_p, 0.0)) for token, log_p in listed if not math.isnan(log_p)]


def extract_text(answer: ServerAnswer, prompt: str, how: Decoding, *, chat: bool) -> tuple[str, bool]:
    """Extract the generated text from an answer. Return the text, and whether it is closed (not truncated)."""
    text, whole, mark = answer["text"], answer["whole"], how.stop
    if not chat:
        text, found, _ = text.partition(mark) if mark else (text, "", "")
        return text, (whole or bool(found)) and not (how.abandon and how.abandon in text)
    text = text.strip()
    if not mark:
        return text, whole
    label = split_chat_prompt(prompt)[1].removesuffix(mark).strip()
    if label and label in text:
        text = text.partition(label)[2].strip()
    opened = text.startswith(mark)
    if opened:
        text, found, _ = text[len(mark) :].partition(mark)
        return text, bool(found) and not (how.abandon and how.abandon in text)
    return text, whole and mark not in text and not (how.abandon and how.abandon in text)


def probability(listed: Sequence[tuple[str, float]], answers: Mapping[str, str]) -> float | None:
    """Return P(yes), normalized over yes and no, or None if the answer lists neither of the two tokens.

    Tokens that are a prefix of exactly one answer count for that answer, regardless of case and blanks. An answer that
    is not listed gets the probability of the least likely listed token, which is an upper bound.
    """
    yes, no = (answers[name].strip().casefold() for name in ("yes", "no"))
    sums = {yes: 0.0, no: 0.0}
    for token, log_p in listed:
        plain = token.strip(" \t\n\r\"'*Ġ▁Ċ").casefold()
        begins = [word for word in sums if plain and word.startswith(plain)]
        if len(begins) == 1:
            sums[begins[0]] += math.exp(log_p)
    least = max(min(math.exp(log_p) for _, log_p in listed), 1e-12)
    true, false = (total or least for total in sums.values())
    return true / (true + false) if any(sums.values()) else None
