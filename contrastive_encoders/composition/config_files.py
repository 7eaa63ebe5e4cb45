"""Find ``configs/``, in a checkout and in an installed wheel."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
# In a checkout without symbolic links, the package does not contain this folder
CONFIGS = next(path for path in (PACKAGE / "configs", PACKAGE.parent / "configs") if path.is_dir())
MEANINGS = "meanings"  # key of a file in configs/race: the meanings of its own keys


def choices(group: str) -> list[str]:
    """Return the names that the command line may choose for a group, sorted."""
    return sorted(path.stem for path in (CONFIGS / group).glob("*.yaml"))
