"""Train, evaluate, export, and compare contrastive sentence encoders.

A name is loaded when it is first used, so ``import contrastive_encoders`` imports neither torch nor transformers.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contrastive_encoders.core.errors import InputError, OutputError, TrainingError
    from contrastive_encoders.core.results import Results, Verdict
    from contrastive_encoders.datamodules.data_configs import (
        DocstringPairDataConfig,
        DocumentDataConfig,
        GenerationDataConfig,
        MixtureDataConfig,
        ModuleDataConfig,
        NLIDataConfig,
        QuestionDataConfig,
        ScoredPairDataConfig,
        ScoredTripletDataConfig,
        SentenceDataConfig,
        TripletDataConfig,
    )
    from contrastive_encoders.encoders.loading.load import load_encoder
    from contrastive_encoders.encoders.loading.loaded_encoder import LoadedEncoder
    from contrastive_encoders.encoders.model_configs import LoRAConfig
    from contrastive_encoders.encoders.objective import Objective
    from contrastive_encoders.encoders.objectives.declutr_config import DeCLUTRConfig
    from contrastive_encoders.encoders.objectives.distil_config import DistilConfig
    from contrastive_encoders.encoders.objectives.distil_scores_config import DistilScoresConfig
    from contrastive_encoders.encoders.objectives.gense_config import GenSEConfig
    from contrastive_encoders.encoders.objectives.gense_generator_config import GenSEGeneratorConfig
    from contrastive_encoders.encoders.objectives.pairs_config import PairsConfig
    from contrastive_encoders.encoders.objectives.reranker_config import RerankerConfig
    from contrastive_encoders.encoders.objectives.sbert_nli_config import SBERTConfig
    from contrastive_encoders.encoders.objectives.scored_pairs_config import AnglEConfig, CoSENTConfig
    from contrastive_encoders.encoders.objectives.simcse_config import SimCSEConfig
    from contrastive_encoders.encoders.objectives.sroberta_config import SRoBERTaConfig
    from contrastive_encoders.encoders.objectives.tsdae_config import TSDAEConfig
    from contrastive_encoders.evaluation.evaluate import evaluate
    from contrastive_encoders.export.embed import embed
    from contrastive_encoders.training.api import TrainResult, run, train
    from contrastive_encoders.training.compose import compose
    from contrastive_encoders.training.run_config import RunConfig

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

__all__ = [
    "AnglEConfig",
    "CoSENTConfig",
    "DeCLUTRConfig",
    "DistilConfig",
    "DistilScoresConfig",
    "DocstringPairDataConfig",
    "DocumentDataConfig",
    "GenSEConfig",
    "GenSEGeneratorConfig",
    "GenerationDataConfig",
    "InputError",
    "LoRAConfig",
    "LoadedEncoder",
    "MixtureDataConfig",
    "ModuleDataConfig",
    "NLIDataConfig",
    "Objective",
    "OutputError",
    "PairsConfig",
    "QuestionDataConfig",
    "RerankerConfig",
    "Results",
    "RunConfig",
    "SBERTConfig",
    "SRoBERTaConfig",
    "ScoredPairDataConfig",
    "ScoredTripletDataConfig",
    "SentenceDataConfig",
    "SimCSEConfig",
    "TSDAEConfig",
    "TrainResult",
    "TrainingError",
    "TripletDataConfig",
    "Verdict",
    "__version__",
    "compose",
    "embed",
    "evaluate",
    "load_encoder",
    "run",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
