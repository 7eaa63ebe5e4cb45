"""Send concurrent requests to a language model server with the client of the package openai.

The client retries after temporary errors (429, 5xx, no connection, timeout, and invalid responses) with increasing
delays. If the server rejects a request before it has answered any, the settings must be corrected, and an error is
raised. If it only rejects some prompts, these are counted.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from contrastive_encoders.core import InputError, missing_package
from contrastive_encoders.synthesis.recipe_configs import Requests
from contrastive_encoders.synthesis.server.journal import Journal, name_of
from contrastive_encoders.synthesis.server.protocol import (
    LOGPROBS,
    NO_ANSWER,
    REFUSED,
    InvalidResponseError,
    ServerAnswer,
    read_answer,
    refusal,
    replace_prompt,
)
from contrastive_encoders.synthesis.shards.store import SynthesisError

API_KEY_VARIABLE = "OPENAI_API_KEY"  # environment variable; the key is never written
FIRST_REQUEST_RETRIES = 2  # before there is evidence of such a server
MAX_REFUSALS = 20  # consecutive rejections that cannot be due to the prompts
LOG_INTERVAL_S = 20.0  # of the log
PROMPT_STATUSES = (400, 413, 422)  # statuses that may concern a single prompt
MAX_SHOWN_CHARS = 300  # characters of a server's message
Outcome = TypeVar("Outcome")

log = logging.getLogger(__name__)


@dataclass
class Server:
    """Client of the model ``name`` on the server at ``url``. Requests must be sent within ``session``."""

    name: str
    url: str
    requests: Requests
    chat: bool
    folder: Path  # of the recorded answers
    context: int = field(init=False, default=10**9)  # known to the server only
    answered: float = field(init=False, default=0.0)  # time of the last answer; 0: none yet
    refused: int = field(init=False, default=0)  # consecutive rejections
    logged: float = field(init=False, default=0.0)

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        """Context manager that opens the client and the journal. On exit, pending requests are canceled."""
        openai = import_openai()
        import httpx2

        self.openai, self.httpx, self.key = openai, httpx2, read_api_key()
        self.journal = Journal(self.folder)
        with contextlib.closing(self.journal), asyncio.Runner() as self.runner:
            self.room, self.gate = asyncio.Semaphore(self.requests.in_flight), asyncio.Lock()
            self.client = openai.AsyncOpenAI(
                base_url=self.url,
                api_key=self.key or "none",
                timeout=self.requests.timeout,
                http_client=openai.DefaultAsyncHttpxClient(event_hooks={"response": [self._read_response]}),
            )
            yield

    def run(self, work: Coroutine[Any, Any, Outcome]) -> Outcome:
        """Run the coroutine ``work`` and return its result. Other requests continue in the meantime.

        The journal is synced to disk before this method returns.
        """
        try:
            return self.runner.run(work)
        finally:
            self.journal.sync()

    def begin(self, work: Coroutine[Any, Any, Outcome]) -> "asyncio.Task[Outcome]":
        return self.runner.get_loop().create_task(work)

    async def answer(self, body: Mapping[str, Any], *which: Any) -> ServerAnswer:
        """Return the answer to a request, from the journal if the journal contains it, otherwise from the server.

        ``which`` distinguishes requests with the same body.
        """
        whole = {"model": self.name, **body, **self.requests.body}
        whole = {key: value for key, value in whole.items() if value is not None}
        asked = name_of(self.chat, whole, *which)
        if known := self.journal.known(asked):
            return ServerAnswer(**known)  # type: ignore[typeddict-item]
        async with self.gate:  # the first request is sent alone
            found = None if self.answered else await self._until_answered(whole)
        if found is None:
            async with self.room:
                found = await self._until_answered(whole)
        if found["listed"] or found["refused"] or LOGPROBS not in whole:  # else log-probabilities may be enabled
            self.journal.record(asked, found)
        return found

    async def _until_answered(self, body: dict[str, Any]) -> ServerAnswer:
        """Send a request until it is answered or rejected, or the retries are exhausted."""
        known = self.answered or self.journal.places
        retries = self.requests.max_retries if known else min(FIRST_REQUEST_RETRIES, self.requests.max_retries)
        while True:
            began = time.monotonic()
            try:
                found = await self._ask(body, retries)
            except self.openai.RateLimitError as error:
                if self.answered < began:  # otherwise other requests are answered, so waiting is sufficient
                    raise self._no_response_error(error) from None
            except (self.openai.InternalServerError, self.openai.APIConnectionError) as error:
                if not known and type(error) is self.openai.APIConnectionError:  # excludes timeouts
                    raise InputError(
                        key="base_url",
                        value=self.url,
                        expected=f"a server that responds according to OpenAI's API ({self._error_cause(error)})",
                        hint="Start the server, or correct the URL, which usually ends in /v1.",
                    ) from None
                return await self._skip_text(error, body)
            except self.openai.APIStatusError as error:
                return self._handle_rejection(error.status_code, self._error_cause(error), body)
            else:
                self.refused = 0
                return found

    async def _ask(self, body: Mapping[str, Any], retries: int) -> ServerAnswer:
        """Send a request with up to ``retries`` retries.

        Raises:
            APIError: openai's error after the last retry.
        """
        path = "/chat/completions" if self.chat else "/completions"
        response = await self.client.post(
            path, cast_to=self.httpx.Response, body=body, options={"max_retries": retries}
        )
        self.answered = time.monotonic()
        return read_answer(response.content, chat=self.chat, stop=body.get("stop"))

    async def _read_response(self, response: Any) -> None:
        """Read the complete response to a request.

        If it contains no answer or arrives too late, an error is raised after which the client retries.
        """
        try:
            async with asyncio.timeout(self.requests.timeout):  # in total: a server may send single bytes
                await response.aread()
        except TimeoutError as error:
            raise self.httpx.ReadTimeout(str(error)) from None
        if response.is_error and time.monotonic() - self.logged > LOG_INTERVAL_S:
            self.logged = time.monotonic()
            log.warning("%s: %s %s", self.url, response.status_code, self._shorten_message(response.text))
        if response.is_success:
            try:
                read_answer(response.content, chat=self.chat)
            except InvalidResponseError as error:
                raise self.httpx.RemoteProtocolError(
                    f"{self._shorten_message(response.text)[:80]!r} ({error})"
                ) from None

    async def _skip_text(self, error: Exception, body: Mapping[str, Any]) -> ServerAnswer:
        """Handle an error that persists after all retries: skip the text if the server answers another prompt.

        Raises:
            SynthesisError: The server does not answer the other prompt.
        """
        try:
            await self._ask(replace_prompt(body, chat=self.chat), FIRST_REQUEST_RETRIES)
        except self.openai.APIError:
            raise self._no_response_error(error) from None
        log.warning("%s: %s for one text, which is skipped", self.url, self._error_cause(error))
        return refusal(NO_ANSWER)

    def _no_response_error(self, error: Exception) -> SynthesisError:
        return SynthesisError(
            f"{self.url} does not respond after all retries: {self._error_cause(error)}. The answers so far are "
            "saved. Run the same command again to resume."
        )

    def _error_cause(self, error: Any) -> str:
        """Return the cause of an error, since the client's message is only "Connection error."."""
        if isinstance(error, self.openai.APITimeoutError):
            return f"no answer in {self.requests.timeout:g} s"
        return self._shorten_message(error.__cause__ or error.message)

    def _handle_rejection(self, status: int, why: str, body: Mapping[str, Any]) -> ServerAnswer:
        """Count a rejected request if its prompt may have caused the rejection. Otherwise, raise `InputError`."""
        if "context" in why.casefold() and status in PROMPT_STATUSES:
            return refusal("no room in the context")
        self.refused += 1
        if self.answered and status in PROMPT_STATUSES and self.refused <= MAX_REFUSALS:
            return refusal(REFUSED)
        sent = ", ".join(key for key in body if key not in ("model", "messages", "prompt"))
        advice = {
            401: f"Store the key in the environment variable {API_KEY_VARIABLE}.",
            403: f"Store the key in the environment variable {API_KEY_VARIABLE}.",
            404: "base_url usually ends in /v1, and generator is a model that the server lists there under /models; "
            "chat_template chooses between /completions and /chat/completions.",
        }.get(
            status,
            f"The request contains the prompt and {sent}. requests.body can remove or add keys.",
        )
        expected = f"a server that accepts the request ({why})"
        raise InputError(key="base_url", value=self.url, expected=expected, hint=advice)

    def _shorten_message(self, text: object) -> str:
        """Shorten a message of the server, and mask the API key, which some servers repeat."""
        plain = " ".join(str(text).split())
        return (plain.replace(self.key, "***") if self.key else plain)[:MAX_SHOWN_CHARS].rstrip(".")


def import_openai() -> Any:
    """Import the package openai.

    Raises:
        InputError: The package is not installed.
    """
    try:
        import openai
    except ModuleNotFoundError:
        raise missing_package("openai", "server", key="engine", value="openai") from None
    return openai


def read_api_key() -> str:
    """Return the API key from the environment, or an empty string, since local servers need no key."""
    key = os.environ.get(API_KEY_VARIABLE, "").strip()
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise InputError(key=API_KEY_VARIABLE, expected="a key of printable ASCII characters without spaces")
    return key


def check_url(url: str | None) -> str:
    """Return a valid server URL without a trailing slash. Raise `InputError` if it is invalid or contains secrets."""
    try:
        parts = urlsplit(url or "")
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        secret = bool(parts.username or parts.password or parts.query or parts.fragment)
    except ValueError:
        right = secret = False
    if secret:
        raise InputError(
            key="base_url",
            expected="a URL without user name, password, query, and fragment, such as http://localhost:8000/v1",
            hint=f"Store a key in the environment variable {API_KEY_VARIABLE}.",
        )
    if not right:
        raise InputError(key="base_url", value=url, expected="the URL of a server, such as http://localhost:8000/v1")
    return str(url).rstrip("/")
