"""Base classes of synthesis recipes: the steps that a recipe implements.

Its keys are the fields of its class in `recipe_configs`. ``plan`` checks them and looks at the input, ``claim`` checks
whose the output directory is, ``write`` writes what is missing.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from contrastive_encoders.core import InputError
from contrastive_encoders.io.atomic import remove
from contrastive_encoders.io.output_directory import FINISHED, LOCK, MARKER, lock_folder, release_lock
from contrastive_encoders.runtime.devices import check_devices, device_of
from contrastive_encoders.runtime.worker_loop import Start
from contrastive_encoders.runtime.worker_pool import InProcess, WorkerPool, open_pool
from contrastive_encoders.synthesis.decoding.generator import Generator, load_generator
from contrastive_encoders.synthesis.recipe_configs import GenerateConfig, ModelConfig, Precision
from contrastive_encoders.synthesis.server.server import Server, check_url, library
from contrastive_encoders.synthesis.shards.provenance import identify_generator, versions
from contrastive_encoders.synthesis.shards.store import RECORDS_FOLDER

log = logging.getLogger(__name__)


class Recipe(GenerateConfig, ABC):
    """The base class of all recipes."""

    has_labels: ClassVar[bool] = False  # which a person can give, too
    takes_encoder: ClassVar[bool] = False  # the recipe uses encoder= itself, not its report

    @property
    def folder(self) -> Path:
        return Path(str(self.output))

    @property
    def has_pairs(self) -> bool:
        """Whether the data set holds pairs of texts, and not single ones. `plan` has to be called before."""
        return True

    @property
    def home(self) -> Path:
        """The folder that the model's texts are written into."""
        return self.folder

    def run(self) -> None:
        """Write the data set, after `plan`; shards that are there are kept.

        Raises:
            InputError: the input or the generator is wrong, or the folder is another data set's.
            SynthesisError: the model, its server or its processes failed.
        """
        try:
            lock_folder("output", self.folder)
            if self.claim():
                log.info(FINISHED, self.folder)
            else:
                self.write()
        finally:
            release_lock(self.folder / LOCK)
            if self.folder.is_dir() and {path.name for path in self.folder.iterdir()} <= {MARKER}:
                remove(self.folder)  # only claimed: the input was wrong, or plan_only was set

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


class ModelRecipe(ModelConfig, Recipe):
    """A recipe that runs a model, on one device or several."""

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

    @property
    def recorded_precision(self) -> str:
        return "the server's" if self.served else self.precision

    def short_name(self, name: str | None) -> str:
        """Return the name of a model in records: of a directory, only its own name."""
        path = Path(str(name))
        return path.resolve().name if path.exists() and not self.served else str(name)

    def about_generator(self, weights: Mapping[str, Any]) -> dict[str, Any]:
        """Return the entries of a manifest about the model; ``weights`` identify it."""
        return {"generator": {"name": self.short_name(self.generator), "weights": weights}, "versions": versions()}

    def open_pool(self, start: Start) -> InProcess | WorkerPool:
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
