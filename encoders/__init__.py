"""The models, and ``load_encoder``; importing the package loads neither torch nor transformers."""

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contrastive_encoders.encoders.loading.load import load_encoder

# peft imports it, and it warns about a kernel for inference in 4 bits, which nothing here calls
logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)

__all__ = ["load_encoder"]


def __getattr__(name: str) -> Any:
    if name == "load_encoder":
        from contrastive_encoders.encoders.loading.load import load_encoder

        return load_encoder
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
