"""Upload of an exported folder to the Hugging Face hub, on request only."""

import os
import re
from pathlib import Path

from huggingface_hub import HfApi, get_token
from huggingface_hub.errors import HfHubHTTPError, HTTPError  # the latter is of the HTTP library that it uses
from transformers.utils.hub import is_offline_mode

from contrastive_encoders.core import InputError
from contrastive_encoders.io.output_directory import MARKER

NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
HUB = "https://huggingface.co"


def check_push(name: str) -> None:
    """Check the repository's name, whether the Hub is enabled, and the token, before anything is written.

    Raises:
        InputError: the name is not ORG/NAME, the hub is disabled, or there is no token.
    """
    if not NAME.fullmatch(name):
        expected = "ORG/NAME (owner and repository), where both consist of letters, digits, -, _, and dots"
        raise InputError(key="push", value=name, expected=expected)
    if is_offline_mode():
        hint = "HF_HUB_OFFLINE is set, which disables the Hub."
        raise InputError(key="push", value=name, expected="null if the Hub is disabled", hint=hint)
    if get_token() is None:
        raise InputError(
            key="push",
            value=name,
            expected=f"a token with write access to {_endpoint()}, but no token is stored",
            hint="Put a token into the environment variable HF_TOKEN, or log in with hf auth login.",
        )


def push(folder: Path, name: str, *, private: bool) -> str:
    """Create the repository if needed, and commit the files of ``folder``. Return the URL of the commit.

    The visibility of an existing repository does not change.

    Raises:
        InputError: the hub refused the upload, or is not reachable.
    """
    hub = HfApi(endpoint=_endpoint())
    try:
        hub.create_repo(name, private=private, exist_ok=True)
        commit = hub.upload_folder(
            repo_id=name, folder_path=folder, commit_message="Add the exported encoder", ignore_patterns=[MARKER]
        )
    except HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else "?"
        advice = {401: "Check the token.", 403: "The token needs write access."}.get(status, "")
        reason = error.server_message or str(error).strip().splitlines()[0]
        raise InputError(
            f"push={name}: {_endpoint()} answered {status}: {reason} {advice} The export in {folder} is complete."
        ) from error
    except (OSError, HTTPError) as error:
        raise InputError(
            f"push={name}: {_endpoint()} cannot be reached ({error}). The export in {folder} is complete. Upload it "
            f"later: hf upload {name} {folder}"
        ) from error
    return str(commit.commit_url)


def _endpoint() -> str:
    return os.environ.get("HF_ENDPOINT", HUB).rstrip("/")
