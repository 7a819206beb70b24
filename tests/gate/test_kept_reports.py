"""Kept reports are taken for the same text alone, and nvcc's are compared with a sample of them."""

from __future__ import annotations

from pathlib import Path

import kept_reports
import pytest
import resources
from kept_reports import Report, Resources
from launches import Launch

SOUND = Report({"f": Resources(40, 1024, 0, 0), "g": Resources(32, 0, 0, 0)}, [])
FAULTS = [
    Report({"f": Resources(40, 0, 8, 0)}, []),
    Report({"f": Resources(40, 0, 0, 4)}, []),
    Report({"f": Resources(40, 0, 0, 0)}, ["a warning"]),
    Report({}, []),
]


class Text:
    """A kernel's text, whose key is that of its options."""

    def __init__(self, unit: tuple[str, tuple[str, ...]]) -> None:
        self.unit, self.key = unit, unit[1][0]


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keys of what is compiled, whose reports are SOUND. The file of reports is in `tmp_path`, made by another nvcc."""
    found: list[str] = []

    def compile_texts(arch: str, texts: list[Text]) -> dict[object, Report]:
        found.extend(text.key for text in texts)
        return {text.unit: SOUND for text in texts}

    monkeypatch.setattr(kept_reports, "read", lambda read=kept_reports.read: read(tmp_path / "reports"))
    monkeypatch.setattr(kept_reports, "made_by", lambda: "nvcc 1")
    monkeypatch.setattr(resources, "compilers", lambda: "nvcc 2")
    monkeypatch.setattr(resources.batches, "texts", lambda nvcc, arch, units: [Text(unit) for unit in sorted(units)])
    monkeypatch.setattr(resources, "_compile", compile_texts)
    monkeypatch.setattr(resources, "NVCC", Path("nvcc"))
    monkeypatch.setattr(resources, "ALL", False)
    return found


def launches(*keys: str) -> list[Launch]:
    return [Launch("a.cu", "f", (key,), 128, 0) for key in keys]


def test_sound_reports_come_back_and_faults_are_not_kept(tmp_path: Path) -> None:
    file = tmp_path / "reports"
    reports = {f"{i:016x}": report for i, report in enumerate([SOUND, *FAULTS, SOUND])}
    kept_reports.write(reports, "nvcc", "command", file)
    assert kept_reports.read(file) == {f"{i:016x}": SOUND for i in (0, 1 + len(FAULTS))}
    assert kept_reports.made_by(file) == "nvcc"
    assert (kept_reports.read(tmp_path / "none"), kept_reports.made_by(tmp_path / "none")) == ({}, "")


def test_what_is_kept_is_not_compiled_but_for_a_sample(tmp_path: Path, compiled: list[str]) -> None:
    keys = [f"{i:016x}" for i in range(64)]
    kept_reports.write(dict.fromkeys(keys, SOUND), "nvcc", "command", tmp_path / "reports")
    new = "f" * 16
    reports = resources.compile_all("sm_80", launches(*keys, new))
    assert len(reports) == len(keys) + 1
    assert compiled == [key for key in keys if kept_reports.is_compiled_anyway(key)] + [new]
    assert len(compiled) == 64 // kept_reports.SAMPLE + 1


def test_everything_is_compiled_if_all_is_asked_for(
    tmp_path: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_reports.write({"1" * 16: SOUND}, "nvcc", "command", tmp_path / "reports")
    monkeypatch.setattr(resources, "ALL", True)
    resources.compile_all("sm_80", launches("1" * 16))
    assert compiled == ["1" * 16]


def test_a_kept_report_that_is_not_nvccs_is_found(tmp_path: Path, compiled: list[str]) -> None:
    other = Report({"f": Resources(41, 1024, 0, 0), "g": Resources(32, 0, 0, 0)}, [])
    kept_reports.write({"0" * 16: other}, "nvcc", "command", tmp_path / "reports")
    with pytest.raises(AssertionError, match=r"other reports than nvcc of .*a\.cu"):
        resources.compile_all("sm_80", launches("0" * 16))


def test_many_missing_reports_are_said_if_the_same_compilers_made_the_file(
    tmp_path: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = ["1" * 16, "2" * 16, "3" * 16]
    kept_reports.write({keys[0]: SOUND}, "nvcc", "command", tmp_path / "reports")
    resources.compile_all("sm_80", launches(*keys))
    assert compiled == keys[1:]
    monkeypatch.setattr(kept_reports, "made_by", resources.compilers)
    with pytest.warns(UserWarning, match="2 of 3 kernels of sm_80 have no kept report"):
        resources.compile_all("sm_80", launches(*keys))
