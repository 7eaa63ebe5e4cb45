"""Base class of synthesis recipes: the config keys of a recipe, and the steps that it implements.

The keys are the fields of its class; their defaults stand in ``configs/recipe/NAME.yaml``. ``plan`` checks them and
looks at the input, ``claim`` asks whose the folder is, ``write`` writes the shards that are missing, ``finish`` does
what is left when all are there.
"""

import logging
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from cli.devices import check_devices, device_of
from cli.process_group import Ranks
from contracts import InputError
from contracts.settings import key
from synthesis.bounds import Bounded
from synthesis.decoding.generator import Generator, load_generator
from synthesis.decoding.loop import decode
from synthesis.server.clients import ask
from synthesis.server.server import Requests, Server, check_url, library
from synthesis.shards.progress import choose_progress
from synthesis.shards.provenance import identify_generator
from synthesis.shards.stage import DataSet, Stage, WaitCallback, close_stage, leave_unfinished, run_stage
from synthesis.shards.store import RECORDS_FOLDER

log = logging.getLogger(__name__)

Precision = Literal["fp32", "bf16", "fp16"]
InputType = Literal["auto", "text", "jsonl", "csv", "tsv", "stsb", "parquet"]


@dataclass(kw_only=True)
class Recipe(Bounded, ABC):
    """The base class of all recipes."""

    has_labels: ClassVar[bool] = False  # which a person can give, too
    recipe: dict[str, Any]  # its name, and what is written by which instructions
    generator: str | None
    input: str | Sequence[str] | None
    output: str
    overwrite: bool
    quiet: bool

    @property
    def folder(self) -> Path:
        return Path(self.output)

    @property
    def processes(self) -> int:
        """The number of processes to start."""
        return 1

    @property
    def has_pairs(self) -> bool:
        """Whether texts are written for others; known once it is planned."""
        return True

    @property
    def home(self) -> Path:
        """The folder in which processes leave their heartbeats for each other."""
        return self.folder

    @abstractmethod
    def plan(self) -> None:
        """Check all that can be checked before a model is loaded.

        Raises:
            InputError: a value, the input or the generator's folder is wrong.
        """

    @abstractmethod
    def claim(self, writer: bool) -> bool:
        """Return whether the data set is finished. One process is the ``writer``, which may change the folder.

        Raises:
            InputError: the folder is another data set's.
        """

    def write(self, ranks: Ranks, watch: WaitCallback) -> None:
        """Write this process's part of the missing shards. ``watch`` raises when another process, which it waits for,
        is lost.
        """

    def finish(self) -> None:
        """Do the remaining work, if all shards are written."""

    def require(self, key: str, why: str) -> None:
        """InputError where the key is not set."""
        if getattr(self, key) is None:
            raise InputError(f"{key} is not set: {why}")


@dataclass(kw_only=True)
class ModelRecipe(Recipe):
    """A recipe that runs a model, on one device or several."""

    engine: Literal["local", "openai"]
    base_url: str | None
    requests: Requests
    chat_template: bool
    revision: str | None
    precision: Precision
    device: str
    devices: int = key(least=1)
    shard_size: int = key(least=1)

    @property
    def processes(self) -> int:
        return self.devices

    @property
    def served(self) -> bool:
        """Whether the model is behind a server."""
        return self.engine == "openai"

    def check_engine(self) -> None:
        """InputError for devices that are not there, and for keys of a server without one, or the other way about."""
        if not self.served:
            if self.base_url is not None:
                raise InputError(f"base_url={self.base_url} goes with engine=openai. Say both, or neither.")
            check_devices(self.devices, self.device)
            return
        self.base_url = check_url(self.base_url)
        library()
        if self.devices > 1 or self.revision is not None:
            key = "devices" if self.devices > 1 else "revision"
            raise InputError(
                f"{key}={getattr(self, key)} goes with weights, and engine=openai loads none; requests.in_flight says "
                "how much is asked at once. Leave it out."
            )

    def identify_model(self) -> dict[str, Any]:
        """Return what identifies the model: its files, or the name under which a server has it, whatever the server's
        address.
        """
        if not self.served:
            return identify_generator(str(self.generator), self.revision)
        body = {"body": self.requests.body} if self.requests.body else {}
        return {"engine": self.engine, "model": self.generator, **body}

    def load_writer(self, ranks: Ranks) -> Generator | Server:
        """A causal language model, or a server."""
        if self.served:
            return self.server(ranks)
        return load_generator(
            str(self.generator),
            precision=self.precision,
            device=device_of(self.device),
            revision=self.revision,
            chat_template=self.chat_template,
        )

    def server(self, ranks: Ranks) -> Server:
        """Not at work yet."""
        folder = self.home / RECORDS_FOLDER
        return Server(str(self.generator), str(self.base_url), self.requests, self.chat_template, folder, ranks.rank)


def decode_shards(
    stage: Stage,
    generator: Generator | Server,
    ranks: Ranks,
    close: Callable[[Stage], None],
    watch: WaitCallback,
    *,
    quiet: bool,
) -> None:
    """Shards and manifest of texts that a model writes."""

    def run() -> None:
        decoder: Any = ask if isinstance(generator, Server) else decode
        with generator.at_work():
            spent = run_stage(stage, generator, ranks, choose_progress(ranks, quiet=quiet), decoder)
        if spent.row_steps:
            log.info("%.1f %% of the rows decoded were finished ones", 100 * spent.wasted_row_steps / spent.row_steps)

    write_shards(stage, run, ranks, close, watch)


def write_shards(
    data_set: DataSet, run: Callable[[], None], ranks: Ranks, close: Callable[[Any], None], watch: WaitCallback
) -> None:
    """``run``, then ``close`` when the others have written their parts, too. Cut short, it leaves the shards that are
    whole, and a manifest that says so."""
    try:
        run()
        close_stage(data_set, close, watch if ranks.world > 1 else None)
    except (KeyboardInterrupt, SystemExit):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        leave_unfinished(data_set)
        if ranks.rank == 0:
            log.info("%s: interrupted. What is whole is there; the same command goes on.", data_set.folder)
        raise
