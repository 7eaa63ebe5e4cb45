"""Send concurrent requests to a server of a language model, with retries.

What may pass is waited for (429, 5xx, no connection, silence, nonsense), longer each time. What the server refuses is
the user's to correct while nothing has been answered yet, and counted where only some prompts are refused.
"""

import asyncio
import contextlib
import logging
import os
import random
import time
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from urllib.parse import urlsplit

from contracts import InputError
from contracts.settings import key
from synthesis.bounds import Bounded
from synthesis.server.journal import Journal, name_of
from synthesis.server.protocol import (
    LOGPROBS,
    NO_ANSWER,
    REFUSED,
    Answer,
    UnusableAnswer,
    read_answer,
    refusal,
    with_another_prompt,
)
from synthesis.shards.store import SynthesisFailed

API_KEY_VARIABLE = "OPENAI_API_KEY"  # of the environment; it is written nowhere
FIRST_WAIT, LONGEST_WAIT = 0.5, 60.0  # seconds
MOST_FAILURES = 5  # of one request, though another was answered: it is this prompt that the server does not bear
MOST_REFUSED = 20  # one after the other: it is not the prompts
SECONDS_BETWEEN_LINES = 20.0  # seconds between lines of the log
PROMPT_STATUSES = (400, 413, 422)  # statuses that may be about one prompt alone
TRANSIENT_STATUSES = (408, 409, 425, 429)  # and all from 500
MOST_SHOWN_CHARACTERS = 300  # characters of what a server says
Outcome = TypeVar("Outcome")

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Requests(Bounded):
    """How a server is asked."""

    prefix: ClassVar[str] = "requests."

    in_flight: int = key(least=1)
    timeout: float = key(above=0)  # seconds
    patience: float = key(above=0)  # seconds
    body: dict[str, Any]


@dataclass
class Server:
    """The model ``name`` at ``url``. All that asks stands within ``at_work``."""

    name: str
    url: str
    requests: Requests
    chat: bool
    folder: Path  # of the recorded answers
    context: int = field(init=False, default=10**9)  # the server knows it
    answered: float = field(init=False, default=0.0)  # when the last answer came; 0: none yet
    refused: int = field(init=False, default=0)  # one after the other
    logged: float = field(init=False, default=0.0)

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Inside, requests go out; what is under way at the end is given up."""
        openai = library()
        self.openai, self.key = openai, key_of_environment()
        self.journal = Journal(self.folder)
        with contextlib.closing(self.journal), asyncio.Runner() as self.runner:
            self.room, self.gate = asyncio.Semaphore(self.requests.in_flight), asyncio.Lock()
            client = openai.AsyncOpenAI(
                base_url=self.url, api_key=self.key or "none", max_retries=0, timeout=self.requests.timeout
            )
            self.ask = (client.chat.completions if self.chat else client.completions).with_raw_response.create
            yield

    def run(self, work: Coroutine[Any, Any, Outcome]) -> Outcome:
        """What comes of ``work``; everything else under way goes on meanwhile. Answers are safe when it returns."""
        try:
            return self.runner.run(work)
        finally:
            self.journal.sync()

    def begin(self, work: Coroutine[Any, Any, Outcome]) -> "asyncio.Task[Outcome]":
        return self.runner.get_loop().create_task(work)

    async def answer(self, body: Mapping[str, Any], *which: Any) -> Answer:
        """To a request, which ``which`` tells from others of the same body: the recorded one, or a new one."""
        whole = {"model": self.name, **body, **self.requests.body}
        whole = {key: value for key, value in whole.items() if value is not None}
        asked = name_of(self.chat, whole, *which)
        if known := self.journal.known(asked):
            return Answer(**known)  # type: ignore[typeddict-item]
        if not self.answered:
            async with self.gate:  # the first goes alone
                found = await self._until_answered(whole) if not self.answered else None
        else:
            found = None
        if found is None:
            async with self.room:
                found = await self._until_answered(whole)
        if found["listed"] or found["refused"] or LOGPROBS not in whole:  # without, the server may be told to give them
            self.journal.record(asked, found)
        return found

    async def _until_answered(self, body: dict[str, Any]) -> Answer:
        """Ask until there is an answer, or none is to be hoped for."""
        began, tries, faults = time.monotonic(), 0, 0
        hears = False  # whether it was alive and well when this request had failed
        while True:
            try:
                found = await self._once(body)
            except self.openai.APIStatusError as error:
                why, elsewhere = self._said(error.message), False
                retry_after = error.response.headers.get("retry-after")
                if error.status_code not in TRANSIENT_STATUSES and error.status_code < 500:
                    return self._refused(error.status_code, why, body)
                faults += error.status_code != 429  # who is told to wait has done nothing wrong
            except (self.openai.APIError, UnusableAnswer, TimeoutError, OSError) as error:
                slow = isinstance(error, TimeoutError | self.openai.APITimeoutError)
                why = f"no answer in {self.requests.timeout:g} s" if slow else self._said(_cause(error))
                retry_after, elsewhere = None, _is_elsewhere(error, faults)
                faults += 1
            else:
                self.answered, self.refused = time.monotonic(), 0
                return found
            tries, now, wait = tries + 1, time.monotonic(), _wait(tries, retry_after)
            if hears and faults >= MOST_FAILURES:
                log.warning("%s: %d times %s, while others were answered: this text is left out", self.url, faults, why)
                return refusal(NO_ANSWER)
            self._give_up_where_hopeless(why, now - max(self.answered, began) + wait, elsewhere)
            if now - self.logged > SECONDS_BETWEEN_LINES:
                self.logged = now
                log.warning("%s: %s. It is asked again in %.1f s.", self.url, why, wait)
            await asyncio.sleep(wait)
            hears = faults >= MOST_FAILURES - 1 and await self._hears(body)

    async def _hears(self, body: Mapping[str, Any]) -> bool:
        """Whether another prompt is answered now."""
        try:
            await self._once(with_another_prompt(body, chat=self.chat))
        except (self.openai.APIError, UnusableAnswer, TimeoutError, OSError):
            return False
        self.answered = time.monotonic()
        return True

    async def _once(self, body: dict[str, Any]) -> Answer:
        own = {key: body[key] for key in ("model", "messages", "prompt") if key in body}
        async with asyncio.timeout(self.requests.timeout):  # of all of it: a server may send a byte now and then
            raw = await self.ask(**own, extra_body={key: value for key, value in body.items() if key not in own})
        try:
            found = raw.http_response.json()
        except (ValueError, RecursionError) as error:
            raise UnusableAnswer(f"no JSON: {self._said(raw.text)[:80]!r} ({type(error).__name__})") from None
        return read_answer(found, chat=self.chat, stop=body.get("stop"))

    def _refused(self, status: int, why: str, body: Mapping[str, Any]) -> Answer:
        """What may be about this prompt alone is counted; the rest is the user's to correct."""
        if "context" in why.casefold() and status in PROMPT_STATUSES:
            return refusal("no room in the context")
        self.refused += 1
        if self.answered and status in PROMPT_STATUSES and self.refused <= MOST_REFUSED:
            return refusal(REFUSED)
        sent = ", ".join(key for key in body if key not in ("model", "messages", "prompt"))
        advice = {
            401: f"Put the key in the environment variable {API_KEY_VARIABLE}.",
            403: f"Put the key in the environment variable {API_KEY_VARIABLE}.",
            404: "base_url mostly ends in /v1, and model=NAME is one of those that the server lists there under "
            f"/models; {'chat_template=false asks /completions' if self.chat else 'chat_template=true asks a chat'}.",
        }.get(
            status,
            f"Sent besides the prompt: {sent}. top_p=1 top_k=0 leave two of these out, and "
            "+requests.body.KEY=null any.",
        )
        raise InputError(f"base_url={self.url} refuses what it is asked: {why}. {advice}")

    def _give_up_where_hopeless(self, why: str, waited: float, elsewhere: bool) -> None:
        if elsewhere and not self.answered and not self.journal.places:
            raise InputError(
                f"base_url={self.url}: wanted an answer of OpenAI's protocol, got: {why}. Start the server, or correct "
                "the address, which mostly ends in /v1."
            )
        if waited > self.requests.patience:
            raise SynthesisFailed(
                f"{self.url} has not answered for {self.requests.patience:g} seconds: {why}. What was answered is "
                "there; the same command goes on."
            )

    def _said(self, text: object) -> str:
        """What is shown of it: never the key, which some servers repeat."""
        plain = " ".join(str(text).split())
        return (plain.replace(self.key, "***") if self.key else plain)[:MOST_SHOWN_CHARACTERS].rstrip(".")


def _wait(tries: int, retry_after: str | None) -> float:
    """Seconds: what the server says, else longer each time, and not the same for all that wait."""
    asked_for = float(retry_after) if retry_after and retry_after.replace(".", "", 1).isdecimal() else 0.0
    return asked_for or min(LONGEST_WAIT, FIRST_WAIT * 2 ** min(tries, 20)) * random.uniform(0.5, 1)


def _is_elsewhere(error: BaseException, faults: int) -> bool:
    """Whether there seems to be no server of this kind at all."""
    return type(error.__cause__).__name__ == "ConnectError" or (isinstance(error, UnusableAnswer) and faults > 2)


def _cause(error: BaseException) -> str:
    """The library says "Connection error." of any; what was wrong is below."""
    cause = error.__cause__
    return f"{error} {type(cause).__name__}: {cause}" if cause is not None else str(error)


def library() -> Any:
    """The client.

    Raises:
        InputError: it is not installed.
    """
    try:
        import openai
    except ModuleNotFoundError:
        raise InputError(
            "engine=openai wants the package openai, which is not installed. Say pip install "
            "'contrastive-encoders[server]', or pip install openai."
        ) from None
    return openai


def key_of_environment() -> str:
    """Empty where there is none, as servers of one's own want none."""
    key = os.environ.get(API_KEY_VARIABLE, "").strip()
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise InputError(f"{API_KEY_VARIABLE} holds letters that no key has. Set it again.")
    return key


def check_url(url: str | None) -> str:
    """InputError unless it is the address of a server, without a key in it."""
    try:
        parts = urlsplit(url or "")
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        secret = bool(parts.username or parts.password or parts.query or parts.fragment)
    except ValueError:
        right = secret = False
    if secret:
        raise InputError(
            f"base_url holds more than an address. Wanted http://HOST:PORT/v1; a key is put in {API_KEY_VARIABLE}."
        )
    if not right:
        raise InputError(f"base_url={url}: wanted the address of a server, such as http://localhost:8000/v1.")
    return str(url).rstrip("/")
