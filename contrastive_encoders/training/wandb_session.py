"""Logging to Weights & Biases (W&B): one W&B run per output folder, and an early check of the login."""

import configparser
import hashlib
import netrc
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from contrastive_encoders.core import InputError

if TYPE_CHECKING:
    from pytorch_lightning.loggers import WandbLogger

HOST = "https://api.wandb.ai"
SILENT_MODES = ("offline", "disabled", "dryrun", "shared")


def wandb_logger(
    output_dir: str | Path,
    *,
    project: str,
    name: str | None,
    group: str | None,
    offline: bool,
) -> "WandbLogger":
    """Create Lightning's W&B logger, which writes its local files to ``output_dir``. A resumed run continues its
    existing W&B run.

    Raises:
        InputError: see ``check_wandb``.
    """
    check_wandb(offline)
    from pytorch_lightning.loggers import WandbLogger

    folder = Path(output_dir).resolve()
    folder.mkdir(parents=True, exist_ok=True)  # wandb would fall back to the system's temporary folder
    return WandbLogger(
        project=project,
        name=name or (f"{folder.parent.name}-{folder.name}" if folder.name.startswith("stage-") else folder.name),
        group=group,
        offline=offline,
        save_dir=str(folder),
        id=run_id(folder),
        resume="allow",
    )


def close_wandb(status: int) -> None:
    """Finish the W&B run of this process, if there is one, because the next job of a sweep starts a new W&B run."""
    wandb = sys.modules.get("wandb")
    if wandb is not None and wandb.run is not None:
        wandb.finish(exit_code=status)


def run_id(folder: Path) -> str:
    """Return the W&B id of a run: the name of its folder and six hex digits, which distinguish folders with the same
    name, such as folders of stages or on other machines.
    """
    readable = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in folder.name)
    return f"{readable}-{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:6]}"


def check_wandb(offline: bool, environment: Mapping[str, str] | None = None) -> None:
    """Check that W&B can log without asking for a login: it is offline or disabled, or wandb will find a login.

    Raises:
        InputError: wandb would ask for a login.
    """
    known = os.environ if environment is None else environment
    if offline or known.get("WANDB_MODE", "").lower() in SILENT_MODES:
        return
    if known.get("WANDB_API_KEY") or known.get("WANDB_IDENTITY_TOKEN_FILE"):
        return
    settings = _settings(known)
    if settings.get("mode", "").lower() in SILENT_MODES or settings.get("disabled", "").lower() == "true":
        return
    host = known.get("WANDB_BASE_URL") or settings.get("base_url") or HOST
    if settings.get("api_key") or _in_netrc(host, known):
        return
    raise InputError(
        key="logger",
        value="wandb",
        expected=f"a login for {host} (WANDB_API_KEY, netrc, or wandb's settings)",
        hint="Set WANDB_MODE=offline to log to the local disk.",
    )


def _settings(known: Mapping[str, str]) -> dict[str, str]:
    """Return the settings in wandb's settings files, which `wandb login`, `wandb offline`, or the user has written. The
    project's file takes precedence.
    """
    home = Path(known.get("WANDB_CONFIG_DIR") or Path(known.get("HOME", "~")).expanduser() / ".config" / "wandb")
    project = Path(known.get("WANDB_DIR") or ".") / "wandb"
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read([home / "settings", project / "settings"], encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError) as error:
        raise InputError(
            key="logger",
            value="wandb",
            expected=f"readable settings files of wandb ({error})",
            hint="Correct or remove the file.",
        ) from error
    return dict(parser["default"]) if parser.has_section("default") else {}


def _in_netrc(host: str, known: Mapping[str, str]) -> bool:
    home = Path(known.get("HOME", "~")).expanduser()
    candidates = [Path(known["NETRC"]).expanduser()] if known.get("NETRC") else [home / ".netrc", home / "_netrc"]
    for path in candidates:
        try:
            if netrc.netrc(path).authenticators(urlsplit(host).netloc):
                return True
        except (OSError, netrc.NetrcParseError):
            continue  # wandb skips it, too
    return False
