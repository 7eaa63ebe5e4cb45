"""Where ``configs/`` lies: beside the packages of a checkout, or inside this one where a wheel was installed."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]  # of the packages
CONFIGS = next((path for path in (ROOT / "configs", Path(__file__).parent / "configs") if path.is_dir()), ROOT)


def choices(group: str) -> list[str]:
    """Names that the command line may choose for a group."""
    return sorted(path.stem for path in (CONFIGS / group).glob("*.yaml"))
