"""Find ``configs/`` and the packages, in a checkout and in an installed wheel."""

import os
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]  # of the packages
CONFIGS = next((path for path in (ROOT / "configs", Path(__file__).parent / "configs") if path.is_dir()), ROOT)


def choices(group: str) -> list[str]:
    """Names that the command line may choose for a group."""
    return sorted(path.stem for path in (CONFIGS / group).glob("*.yaml"))


def finding_our_modules(environment: Mapping[str, str]) -> dict[str, str]:
    """That of a process which takes our modules, whatever is called like one of them in the working folder."""
    paths = [str(ROOT), *filter(None, [environment.get("PYTHONPATH")])]
    return {**environment, "PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(paths)}
