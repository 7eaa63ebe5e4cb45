"""The models, and ``load_encoder``; importing the package loads neither torch nor transformers."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from encoders.loading.load import load_encoder

__all__ = ["load_encoder"]


def __getattr__(name: str) -> Any:
    if name == "load_encoder":
        from encoders.loading.load import load_encoder

        return load_encoder
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
