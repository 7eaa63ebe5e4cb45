"""Location of ``configs/``, in a checkout or in an installed wheel, and the choices of its groups."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2]
# In a checkout without symbolic links, the package does not contain this folder
CONFIGS = next(path for path in (PACKAGE / "configs", PACKAGE.parent / "configs") if path.is_dir())
MEANINGS = "meanings"  # key of a file in configs/race: the meanings of its own keys


def choices(group: str) -> list[str]:
    """Return the sorted names of the choices of a config group."""
    return sorted(path.stem for path in (CONFIGS / group).glob("*.yaml"))
