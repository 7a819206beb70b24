"""Archives as torch.save writes them, made by hand: of any pickle, one that would run code among them."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any


class Evil:
    """An object that prints when it is read by a reader that runs what a pickle asks for."""

    def __reduce__(self) -> Any:
        return print, ("run",)


def archive(path: Path, value: Any, **files: bytes) -> Path:
    """Write an archive whose data is the pickle of a value, or these bytes, beside other files."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", value if isinstance(value, bytes) else pickle.dumps(value, 2))
        for name, data in files.items():
            file.writestr(f"archive/{name}", data)
    return path
