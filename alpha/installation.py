"""Facts on how this Alpha is installed: its folders, and the command that installs what an extra brings."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from alpha import config

DISTRIBUTION = "alpha-cks"
OR_CPU = ", or use device='cpu'"  # ends an error that the cuda device cannot be opened
PACKAGE = Path(__file__).resolve().parent


def checkout() -> Path | None:
    """The folder of the checkout from which Alpha runs; None if it is an installed wheel."""
    folder = PACKAGE.parent
    return folder if (folder / "pyproject.toml").is_file() else None


def data_dir() -> Path:
    """ALPHA_DATA_DIR, else `datasets/` of the checkout or, if Alpha is an installed wheel, of the cache folder."""
    if (path := config.DATA_DIR.path()) is not None:
        return path
    return (checkout() or config.cache_dir()) / "datasets"


def install(*extras: str) -> str:
    """Command that installs the packages of extras, as `pip install "alpha-cks[cuda]"`.

    pip takes the Alpha that is installed, and adds to it. One that runs from a checkout without being installed is
    named by its folder.
    """
    wanted = f"[{','.join(extras)}]"
    try:
        metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return f'pip install -e "{checkout() or PACKAGE.parent}{wanted}"'
    return f'pip install "{DISTRIBUTION}{wanted}"'
