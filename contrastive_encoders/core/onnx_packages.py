"""Check that the packages of the extra ``onnx`` are installed."""

import os

from contrastive_encoders.core.errors import missing_package


def require_onnx(key: str, value: str) -> None:
    """Check that the packages of the extra ``onnx`` are installed, because the setting ``key=value`` requires them.

    Raises:
        InputError: a package is missing.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # it writes a file .ses to the temporary directory otherwise
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    except ImportError as error:
        raise missing_package(str(error.name), "onnx", key=key, value=value) from error
