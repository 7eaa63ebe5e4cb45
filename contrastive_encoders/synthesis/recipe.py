"""Base class of synthesis recipes: the config keys of a recipe, and the steps that it implements.

The keys are the fields of its class; their defaults stand in ``configs/recipe/NAME.yaml``. ``plan`` checks them and
looks at the input, ``claim`` asks whose the folder is, ``write`` writes what is missing.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

from contrastive_encoders.core import InputError
from contrastive_encoders.core.config_schema import config_field
from contrastive_encoders.runtime.devices import check_devices, device_of
from contrastive_encoders.runtime.worker_loop import Start
from contrastive_encoders.runtime.worker_pool import InProcess, Pool, open_pool
from contrastive_encoders.synthesis.checked_settings import Bounded
from contrastive_encoders.synthesis.decoding.generator import Generator, load_generator
from contrastive_encoders.synthesis.server.server import Requests, Server, check_url, library
from contrastive_encoders.synthesis.shards.provenance import identify_generator
from contrastive_encoders.synthesis.shards.store import RECORDS_FOLDER

log = logging.getLogger(__name__)

Precision = Literal["fp32", "bf16", "fp16"]
InputType = Literal["auto", "text", "jsonl", "csv", "tsv", "stsb", "parquet"]


@dataclass(kw_only=True)
class Recipe(Bounded, ABC):
    """The base class of all recipes."""

    has_labels: ClassVar[bool] = False  # which a person can give, too
    takes_encoder: ClassVar[bool] = False  # encoder= is the recipe's own key, and not the report's
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
    def has_pairs(self) -> bool:
        """Whether the data set holds pairs of texts, and not single ones. `plan` has to be called before."""
        return True

    @property
    def home(self) -> Path:
        """The folder that the model's texts are written into."""
        return self.folder

    @abstractmethod
    def plan(self) -> None:
        """Check all that can be checked before a model is loaded.

        Raises:
            InputError: a value, the input or the generator's folder is wrong.
        """

    @abstractmethod
    def claim(self) -> bool:
        """Mark the folder as that of this data set, and return whether it is finished.

        Raises:
            InputError: the folder is another data set's.
        """

    @abstractmethod
    def write(self) -> None:
        """Write what is missing.

        Raises:
            SynthesisError: the model, its server or its processes failed.
        """

    def require(self, key: str, expected: str) -> None:
        """Raise `InputError` if the key is not set."""
        if getattr(self, key) is None:
            raise InputError(key=key, value=None, expected=expected)


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
    devices: int = config_field(ge=1)
    cluster: str | None
    num_cpus: float | None = config_field(ge=0)
    num_gpus: float | None = config_field(ge=0)
    shard_size: int = config_field(ge=1)

    @property
    def served(self) -> bool:
        """Whether the model is behind a server."""
        return self.engine == "openai"

    def check_engine(self) -> None:
        """InputError for devices that are not there, and for keys of a server without one, or the other way about."""
        if not self.served:
            if self.base_url is not None:
                raise InputError(f"base_url={self.base_url} goes with engine=openai. Say both, or neither.")
            if self.cluster is None:
                check_devices(self.devices, self.device)
            return
        self.base_url = check_url(self.base_url)
        library()
        if self.devices > 1 or self.revision is not None or self.cluster is not None:
            key = "devices" if self.devices > 1 else "cluster" if self.cluster is not None else "revision"
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

    def open_pool(self, start: Start) -> InProcess | Pool:
        """Open a pool of ``devices`` workers; ``start`` loads what each needs."""
        return open_pool(start, self.devices, self.cluster, self.num_cpus, self.num_gpus)

    def writer(self) -> Start:
        """What loads a causal language model, or the client of a server, in a worker."""
        if self.served:
            return self.server
        return partial(
            load_writer, str(self.generator), self.precision, self.device, self.revision, chat=self.chat_template
        )

    def server(self) -> Server:
        """Not at work yet."""
        folder = self.home / RECORDS_FOLDER
        return Server(str(self.generator), str(self.base_url), self.requests, self.chat_template, folder)


def load_writer(name: str, precision: Precision, device: str, revision: str | None, *, chat: bool) -> Generator:
    """Load a causal language model in a worker, on the worker's device."""
    return load_generator(name, precision=precision, device=device_of(device), revision=revision, chat_template=chat)
