"""Base classes of synthesis recipes, with the methods that each recipe implements.

The keys of a recipe are the fields of its class in `recipe_configs`. ``plan`` checks the keys and the input, ``claim``
checks that the output directory belongs to this dataset, and ``write`` writes the missing files.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from contrastive_encoders.core import InputError
from contrastive_encoders.core.runtime.devices import check_devices
from contrastive_encoders.core.runtime.worker_loop import Start
from contrastive_encoders.core.runtime.worker_pool import InProcess, WorkerPool, open_pool
from contrastive_encoders.io.atomic import remove
from contrastive_encoders.io.output_directory import FINISHED, LOCK, MARKER, lock_folder, release_lock
from contrastive_encoders.synthesis.decoding.generator import load_generator
from contrastive_encoders.synthesis.recipe_configs import GenerateConfig, ModelConfig
from contrastive_encoders.synthesis.server.server import Server, check_url, import_openai
from contrastive_encoders.synthesis.shards.provenance import identify_generator, versions
from contrastive_encoders.synthesis.shards.store import RECORDS_FOLDER

log = logging.getLogger(__name__)


class Recipe(GenerateConfig, ABC):
    """Base class of all synthesis recipes."""

    has_labels: ClassVar[bool] = False  # labels that annotators can also assign
    takes_encoder: ClassVar[bool] = False  # True if the recipe itself uses encoder=, instead of its report

    @property
    def folder(self) -> Path:
        return Path(str(self.output))

    @property
    def has_pairs(self) -> bool:
        """Return whether the dataset contains pairs of texts instead of single texts. Call `plan` first."""
        return True

    @property
    def generation_folder(self) -> Path:
        """Return the folder that generated texts are written to: ``folder``, or a subfolder for some recipes."""
        return self.folder

    def run(self) -> None:
        """Claim the output folder and write the dataset. Call `plan` first. Existing shards are kept.

        Raises:
            InputError: The input or the generator is invalid, or the folder contains another dataset.
            SynthesisError: The model, its server, or its processes failed.
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
                remove(self.folder)  # claimed only: the input was invalid, or estimate_only is set

    @abstractmethod
    def plan(self) -> None:
        """Check everything that can be checked before a model is loaded.

        Raises:
            InputError: A value, the input, or the generator's folder is invalid.
        """

    @abstractmethod
    def claim(self) -> bool:
        """Claim the folder for this dataset, and return whether the dataset is already finished.

        Raises:
            InputError: The folder contains another dataset.
        """

    @abstractmethod
    def write(self) -> None:
        """Write the missing parts of the dataset.

        Raises:
            SynthesisError: The model, its server, or its processes failed.
        """


class ModelRecipe(ModelConfig, Recipe):
    """Base class of recipes that run a model on one or more devices."""

    @property
    def served(self) -> bool:
        """Return whether the model runs on a server."""
        return self.engine == "openai"

    def check_engine(self) -> None:
        """Raise `InputError` if devices are missing, or keys are set that do not apply to ``engine``."""
        if not self.served:
            if self.base_url is not None:
                raise InputError(
                    key="base_url",
                    value=self.base_url,
                    expected="null if engine=local",
                    hint="Remove base_url, or choose the engine openai to use a server.",
                )
            if self.ray.cluster is None:
                check_devices(self.devices, self.device)
            return
        self.base_url = check_url(self.base_url)
        import_openai()
        devices = self.devices if self.devices > 1 else None
        for key, value in {"devices": devices, "cluster": self.ray.cluster, "revision": self.revision}.items():
            if value is not None:
                raise InputError(
                    key=key,
                    value=value,
                    expected="the default value, because engine=openai loads no weights",
                    hint="Remove this key. The number of simultaneous requests is requests.in_flight.",
                )

    def identify_model(self) -> dict[str, Any]:
        """Return the settings that identify the model: a hash of its files or its commit, or its name on a server.

        The address of the server is not included.
        """
        if not self.served:
            return identify_generator(str(self.generator), self.revision)
        body = {"body": self.requests.body} if self.requests.body else {}
        return {"engine": self.engine, "model": self.generator, **body}

    @property
    def recorded_precision(self) -> str:
        return "the server's" if self.served else self.precision

    def short_name(self, name: str | None) -> str:
        """Return the short name of a model that is written to manifests and reports. For a directory, this is the last
        component of its path.
        """
        path = Path(str(name))
        return path.resolve().name if path.exists() and not self.served else str(name)

    def about_generator(self, weights: Mapping[str, Any]) -> dict[str, Any]:
        """Return the manifest entries about the model. ``weights`` is the result of `identify_model`."""
        return {"generator": {"name": self.short_name(self.generator), "weights": weights}, "versions": versions()}

    def open_pool(self, start: Start) -> InProcess | WorkerPool:
        """Open a pool of ``devices`` workers. ``start`` is called in each worker to load its model."""
        return open_pool(start, self.devices, self.ray.cluster, self.ray.num_cpus, self.ray.num_gpus)

    def writer(self) -> Start:
        """Return the function with which a worker loads a causal language model or creates the client of a server."""
        if self.served:
            return self.server
        return partial(
            load_generator,
            str(self.generator),
            precision=self.precision,
            device=self.device,
            revision=self.revision,
            chat_template=self.chat_template,
        )

    def server(self) -> Server:
        """Return the client of the server. It is not connected yet."""
        folder = self.generation_folder / RECORDS_FOLDER
        return Server(str(self.generator), str(self.base_url), self.requests, self.chat_template, folder)
