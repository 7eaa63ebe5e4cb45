"""Train, evaluate, export, and compare contrastive sentence encoders.

A name is loaded when it is first used, so ``import contrastive_encoders`` imports neither torch nor transformers.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contrastive_encoders.core.errors import InputError as InputError
    from contrastive_encoders.core.errors import OutputError as OutputError
    from contrastive_encoders.core.errors import TrainingError as TrainingError
    from contrastive_encoders.core.results import Results as Results
    from contrastive_encoders.core.results import Verdict as Verdict
    from contrastive_encoders.datamodules.data_configs import DocstringPairDataConfig as DocstringPairDataConfig
    from contrastive_encoders.datamodules.data_configs import DocumentDataConfig as DocumentDataConfig
    from contrastive_encoders.datamodules.data_configs import GenerationDataConfig as GenerationDataConfig
    from contrastive_encoders.datamodules.data_configs import MixtureDataConfig as MixtureDataConfig
    from contrastive_encoders.datamodules.data_configs import ModuleDataConfig as ModuleDataConfig
    from contrastive_encoders.datamodules.data_configs import NLIDataConfig as NLIDataConfig
    from contrastive_encoders.datamodules.data_configs import QuestionDataConfig as QuestionDataConfig
    from contrastive_encoders.datamodules.data_configs import ScoredPairDataConfig as ScoredPairDataConfig
    from contrastive_encoders.datamodules.data_configs import ScoredTripletDataConfig as ScoredTripletDataConfig
    from contrastive_encoders.datamodules.data_configs import SentenceDataConfig as SentenceDataConfig
    from contrastive_encoders.datamodules.data_configs import TripletDataConfig as TripletDataConfig
    from contrastive_encoders.encoders.loading.load import load_encoder as load_encoder
    from contrastive_encoders.encoders.loading.loaded_encoder import LoadedEncoder as LoadedEncoder
    from contrastive_encoders.encoders.model_configs import LoRAConfig as LoRAConfig
    from contrastive_encoders.encoders.objective import Objective as Objective
    from contrastive_encoders.encoders.objectives.declutr_config import DeCLUTRConfig as DeCLUTRConfig
    from contrastive_encoders.encoders.objectives.distil_config import DistilConfig as DistilConfig
    from contrastive_encoders.encoders.objectives.distil_scores_config import DistilScoresConfig as DistilScoresConfig
    from contrastive_encoders.encoders.objectives.gense_config import GenSEConfig as GenSEConfig
    from contrastive_encoders.encoders.objectives.gense_generator_config import (
        GenSEGeneratorConfig as GenSEGeneratorConfig,
    )
    from contrastive_encoders.encoders.objectives.pairs_config import PairsConfig as PairsConfig
    from contrastive_encoders.encoders.objectives.reranker_config import RerankerConfig as RerankerConfig
    from contrastive_encoders.encoders.objectives.sbert_nli_config import SBERTConfig as SBERTConfig
    from contrastive_encoders.encoders.objectives.scored_pairs_config import AnglEConfig as AnglEConfig
    from contrastive_encoders.encoders.objectives.scored_pairs_config import CoSENTConfig as CoSENTConfig
    from contrastive_encoders.encoders.objectives.simcse_config import SimCSEConfig as SimCSEConfig
    from contrastive_encoders.encoders.objectives.sroberta_config import SRoBERTaConfig as SRoBERTaConfig
    from contrastive_encoders.encoders.objectives.tsdae_config import TSDAEConfig as TSDAEConfig
    from contrastive_encoders.evaluation.evaluate import evaluate as evaluate
    from contrastive_encoders.export.embed import embed as embed
    from contrastive_encoders.training.api import TrainResult as TrainResult
    from contrastive_encoders.training.api import run as run
    from contrastive_encoders.training.api import train as train
    from contrastive_encoders.training.compose import compose as compose
    from contrastive_encoders.training.run_config import RunConfig as RunConfig

__version__ = "0.2.0"

_MODULES = {  # module -> its names that the package exports
    "core.errors": ("InputError", "OutputError", "TrainingError"),
    "core.results": ("Results", "Verdict"),
    "datamodules.data_configs": (
        "DocstringPairDataConfig",
        "DocumentDataConfig",
        "GenerationDataConfig",
        "MixtureDataConfig",
        "ModuleDataConfig",
        "NLIDataConfig",
        "QuestionDataConfig",
        "ScoredPairDataConfig",
        "ScoredTripletDataConfig",
        "SentenceDataConfig",
        "TripletDataConfig",
    ),
    "encoders.loading.load": ("load_encoder",),
    "encoders.loading.loaded_encoder": ("LoadedEncoder",),
    "encoders.model_configs": ("LoRAConfig",),
    "encoders.objective": ("Objective",),
    "encoders.objectives.declutr_config": ("DeCLUTRConfig",),
    "encoders.objectives.distil_config": ("DistilConfig",),
    "encoders.objectives.distil_scores_config": ("DistilScoresConfig",),
    "encoders.objectives.gense_config": ("GenSEConfig",),
    "encoders.objectives.gense_generator_config": ("GenSEGeneratorConfig",),
    "encoders.objectives.pairs_config": ("PairsConfig",),
    "encoders.objectives.reranker_config": ("RerankerConfig",),
    "encoders.objectives.sbert_nli_config": ("SBERTConfig",),
    "encoders.objectives.scored_pairs_config": ("CoSENTConfig", "AnglEConfig"),
    "encoders.objectives.simcse_config": ("SimCSEConfig",),
    "encoders.objectives.sroberta_config": ("SRoBERTaConfig",),
    "encoders.objectives.tsdae_config": ("TSDAEConfig",),
    "evaluation.evaluate": ("evaluate",),
    "export.embed": ("embed",),
    "training.api": ("TrainResult", "run", "train"),
    "training.compose": ("compose",),
    "training.run_config": ("RunConfig",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = ["__version__", *_MODULE_OF]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
