"""A folder in which commands run."""

from __future__ import annotations

from pathlib import Path

import pytest
from photo_room import tiny

from alpha.models import saved


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALPHA_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(saved, "NETWORKS", {**saved.NETWORKS, "tiny": tiny, "torchvision.tiny": tiny})
    return tmp_path
