"""The ALPHA_* variables: a value or a name that means nothing is never ignored."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from alpha import config
from alpha.config import user_path
from alpha.data import Cifar10, Cifar10Sample, Cifar100, ImageFolder, Mnist, resolve
from alpha.errors import CheckpointError, ConfigError, DataError
from alpha.installation import data_dir
from alpha.ops.conv2d.problem import FORWARD, INPUT, WEIGHT, Target
from alpha.ops.conv2d.select import tune
from alpha.ops.conv2d.select.choose import choose
from alpha.ops.conv2d.select.table import CONFIGURATIONS
from alpha.ops.conv2d.shape import conv_shape
from alpha.runtime import get_device, registry
from alpha.runtime.cuda.compile import cuda_compiler, target
from alpha.runtime.cuda.emulated.driver_emulated import EmulatedDriver
from alpha.train.commands.command_line import path
from alpha.train.files.run import Run

FLAGS = [v for v in config.VARIABLES if v.meaning.startswith("1:") or v is config.ISOLATE]
NAMED = [v for v in config.VARIABLES if v.choices]


def test_the_table_has_flags_and_names() -> None:
    assert {v.name for v in FLAGS} == {"ALPHA_DEBUG", "ALPHA_TUNE", "ALPHA_ISOLATE", "ALPHA_EMULATED_DEBUG"}
    assert {v.name for v in NAMED} == {"ALPHA_CUDA_DRIVER", "ALPHA_COMPILER", "ALPHA_EMULATED_BLOCKS"}


@pytest.mark.parametrize("variable", FLAGS, ids=lambda v: v.name)
def test_flags_know_one_set_of_words(variable: config.Variable, monkeypatch: pytest.MonkeyPatch) -> None:
    for text, value in (("1", True), ("true", True), ("Yes", True), ("ON", True)):
        monkeypatch.setenv(variable.name, text)
        assert variable.flag() is value
    for text in ("0", "false", "No", "OFF", ""):
        monkeypatch.setenv(variable.name, text)
        assert variable.flag() is False
    monkeypatch.delenv(variable.name)
    assert variable.flag() is False
    for text in ("2", "nope", "y", " 1"):
        monkeypatch.setenv(variable.name, text)
        with pytest.raises(ConfigError) as info:
            variable.flag()
        assert str(info.value) == (
            f"{variable.name}={text!r} is neither on (1, true, yes, on) nor off (0, false, no, off)"
        )


@pytest.mark.parametrize("variable", NAMED, ids=lambda v: v.name)
def test_names_are_of_a_list(variable: config.Variable, monkeypatch: pytest.MonkeyPatch) -> None:
    for text in (*variable.choices, ""):
        monkeypatch.setenv(variable.name, text)
        assert variable.choice() == (text or variable.default)
    monkeypatch.setenv(variable.name, "nope")
    with pytest.raises(ConfigError, match=f"{variable.name}='nope' is unknown: use '{variable.choices[0]}'.* or '"):
        variable.choice()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("operator", [FORWARD, INPUT, WEIGHT])
def test_a_row_that_does_not_exist(operator: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    s = conv_shape("test", (64, 8, 8, 64), (64, 3, 3, 64), (1, 1), (1, 1))
    on = Target(device, (8, 0), 108)
    known = choose(operator, s, on)
    for _ in range(2):
        monkeypatch.setenv("ALPHA_CONV_KERNEL", "conv_v2_sm80_bf16_64x46")
        with pytest.raises(ConfigError, match=r"'conv_v2_sm80_bf16_64x46' is unknown: did you mean '.*'\?") as info:
            choose(operator, s, on)
        assert "'conv_v2_sm80_bf16_64x64'" in str(info.value)
    monkeypatch.setenv("ALPHA_CONV_KERNEL", "nope")
    with pytest.raises(ConfigError, match="ALPHA_CONV_KERNEL='nope' is unknown: ") as info:
        choose(operator, s, on)
    assert all(repr(v.name) in str(info.value) for v in CONFIGURATIONS)  # nothing is close: all of them
    monkeypatch.setenv("ALPHA_CONV_KERNEL", "")
    assert choose(operator, s, on) is known


def test_a_flag_that_means_nothing_stops_a_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPHA_DEBUG", "maybe")
    with pytest.raises(ConfigError, match="ALPHA_DEBUG='maybe'"):
        choose(FORWARD, conv_shape("test", (1, 4, 4, 1), (1, 3, 3, 1), (1, 1), (0, 0)), Target("cpu"))


def test_names_of_the_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_devices", {})
    monkeypatch.setenv("ALPHA_CUDA_DRIVER", "opencl")
    for name in ("cuda", "auto"):
        with pytest.raises(ConfigError, match="ALPHA_CUDA_DRIVER='opencl' is unknown: use 'pycuda' or 'emulated'"):
            get_device(name)
    monkeypatch.setenv("ALPHA_COMPILER", "clang")
    with pytest.raises(ConfigError, match="ALPHA_COMPILER='clang' is unknown: use 'nvcc' or 'nvrtc'"):
        cuda_compiler("sm_80")
    for name in ("sm80", "ampere"):
        monkeypatch.setenv("ALPHA_ARCH", name)
        with pytest.raises(ConfigError, match=f"ALPHA_ARCH='{name}' is unknown: use 'sm_75', .* or 'sm_120'"):
            EmulatedDriver()
        with pytest.raises(ConfigError, match=f"ALPHA_ARCH='{name}' is unknown: use a name such as 'sm_80'"):
            target((8, 0))
    monkeypatch.setenv("ALPHA_ARCH", "sm_121")
    assert target((8, 0)) == "sm_121"
    monkeypatch.setenv("ALPHA_ARCH", "sm_80")
    monkeypatch.setenv("ALPHA_EMULATED_BLOCKS", "backwards")
    with pytest.raises(ConfigError, match="ALPHA_EMULATED_BLOCKS='backwards' is unknown"):
        EmulatedDriver()


def test_variables_that_alpha_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPHA_CONV_VARIENT", "x")
    monkeypatch.setenv("ALPHA_QQQQQ", "x")
    lines = config.unknown()
    assert "ALPHA_CONV_VARIENT is unknown: did you mean ALPHA_CONV_KERNEL?" in lines
    assert "ALPHA_QQQQQ is unknown" in lines
    assert not [line for line in lines if line.startswith("ALPHA_CACHE_DIR")]


@pytest.mark.parametrize("variable", config.VARIABLES, ids=lambda variable: variable.name)
def test_a_name_is_suggested_for_one_that_is_close(variable: config.Variable, monkeypatch: pytest.MonkeyPatch) -> None:
    """A letter is left out, doubled or exchanged; the beginning that all names share makes none of them close."""
    name = variable.name.removeprefix("ALPHA_")
    for wrong in (name[:-1], name[1:], name + name[-1], name.replace("_", "")):
        if "ALPHA_" + wrong not in [known.name for known in config.VARIABLES]:
            monkeypatch.setenv("ALPHA_" + wrong, "x")
            assert f"ALPHA_{wrong} is unknown: did you mean {variable.name}?" in config.unknown()
    for far in ("FOO", "BAR", "TEST", "HOME", "MODE", "VERSION", "A", "LEVEL", "X_Y_Z"):
        monkeypatch.setenv("ALPHA_" + far, "x")
        assert f"ALPHA_{far} is unknown" in config.unknown()


@pytest.mark.parametrize("variable", [v for v in config.VARIABLES if v.kind == "folder"], ids=lambda v: v.name)
def test_paths_are_expanded_as_by_a_shell(
    variable: config.Variable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PART", "b")
    monkeypatch.delenv("MISSING", raising=False)
    monkeypatch.chdir(tmp_path)
    for text, expected in (
        ("~/a", tmp_path / "a"),
        ("~", tmp_path),
        ("$HOME/a", tmp_path / "a"),
        ("${HOME}/$PART", tmp_path / "b"),
        ("/x/~/y", Path("/x/~/y")),
        ("plain", Path("plain")),
    ):
        monkeypatch.setenv(variable.name, text)
        assert variable.path() == variable.folder() == expected
        assert variable.check() == ""
    (tmp_path / "a$b").mkdir()
    monkeypatch.setenv(variable.name, "a$b")  # which is there
    assert variable.path() == Path("a$b")
    for text, message in (
        ("$MISSING/x", "the variable \\$MISSING is not set"),
        ("/x/${MISSING}", "the variable \\${MISSING} is not set"),
        ("~nobody-of-this-name/x", "there is no home folder; give the whole path"),
    ):
        monkeypatch.setenv(variable.name, text)
        assert re.search(f"{variable.name}={re.escape(repr(text))}: {message}", variable.check())
    (tmp_path / "gone").symlink_to("nowhere")
    monkeypatch.setenv(variable.name, "gone")
    assert "is no folder" in variable.check()
    assert [path.name for path in tmp_path.iterdir() if "~" in path.name] == []


def test_the_folders_that_are_used_are_the_expanded_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ALPHA_CACHE_DIR", "~/c")
    monkeypatch.setenv("ALPHA_DATA_DIR", "$HOME/d")
    assert (config.cache_dir(), data_dir()) == (tmp_path / "c", tmp_path / "d")
    assert tune.folder() == tmp_path / "c" / "tuned"


def test_a_path_of_a_program_or_a_command_line_may_begin_at_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path is of a folder of data, of a run or of an option, as `--output=~/x`; no folder is named `~`."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert user_path("~/a") == user_path(Path("~/a")) == path("~/a") == tmp_path / "a"
    run = Run.start({}, "~/runs/one")
    assert run.folder == tmp_path / "runs" / "one"
    run.close()
    run = Run.start({}, "ignored", "~/runs/two")
    assert run.folder == tmp_path / "runs" / "two"
    run.close()
    with pytest.raises(CheckpointError, match=re.escape(f"{tmp_path}/runs/two: has no checkpoint.safetensors")):
        Run.resume("~/runs/two")
    for read in (Cifar10, Cifar100, Mnist, ImageFolder, Cifar10Sample):
        with pytest.raises(DataError, match=re.escape(f"{tmp_path}/nowhere")):
            read("~/nowhere")
    with pytest.raises(DataError, match=re.escape(f"--data {tmp_path}/nowhere")):
        resolve("~/nowhere", has_gpu=False)
    assert not Path("~").exists()
    with pytest.raises(argparse.ArgumentTypeError, match="~nobody-of-this-name: there is no home folder"):
        path("~nobody-of-this-name")
