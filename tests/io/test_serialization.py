"""alpha.save and alpha.load: what was saved comes back, and damaged or dangerous files are refused."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import child
import numpy as np
import pytest
from safetensors.numpy import save_file
from torch_archives import Evil, archive

import alpha
from alpha import CheckpointError, nn
from alpha.module.state_dict import StateDict


def back(value: Any, path: Path, **options: Any) -> Any:
    alpha.save(value, path / "file.pt")
    return alpha.load(path / "file.pt", **options)


def test_plain_data_comes_back_with_its_types(tmp_path: Path) -> None:
    state = {
        "numbers": [1, -(2**70), 0.1, float("inf"), True, None],
        (3, "key"): ("text", b"\x00\xff", ()),
        5: {"a": {1, 2}, None: frozenset("x")},
        "dtypes": [alpha.bfloat16, alpha.float32],
        2.5: [[]],
    }
    found = back(state, tmp_path)
    assert found == state
    assert list(map(type, found)) == [str, tuple, int, str, float]
    assert [type(part) for part in found["numbers"]] == [int, int, float, float, bool, type(None)]
    assert np.isnan(back(float("nan"), tmp_path))


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int64", "int32", "uint8", "bool"])
def test_tensors_keep_dtype_device_and_what_is_recorded(device: str, tmp_path: Path, dtype: str) -> None:
    if device == "cuda" and dtype == "float64":
        pytest.skip("cuda has no float64")
    x = alpha.tensor(np.arange(6).reshape(2, 3), device=device).to(dtype)
    x.requires_grad = dtype == "float32"
    found = back([x, alpha.zeros(0, 2)], tmp_path)
    assert (found[0].dtype, found[0].device.name, found[0].requires_grad) == (x.dtype, device, x.requires_grad)
    np.testing.assert_array_equal(found[0].numpy(), x.numpy())
    assert found[1].shape == (0, 2)


def test_arrays_of_numpy_stay_such(tmp_path: Path) -> None:
    found = back({"a": np.arange(6.0).reshape(2, 3).T, "s": np.float32(2.5), "b": np.array(True)}, tmp_path)
    assert {name: type(value) for name, value in found.items()} == {"a": np.ndarray, "s": np.float32, "b": np.ndarray}
    np.testing.assert_array_equal(found["a"], np.arange(6.0).reshape(2, 3).T)


def test_a_run_goes_on(device: str, tmp_path: Path) -> None:
    def make() -> tuple[nn.Module, alpha.optim.Optimizer]:
        model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2)).to(device)
        return model, alpha.optim.Adam(model.parameters())

    def step(model: nn.Module, optimizer: alpha.optim.Optimizer) -> None:
        optimizer.zero_grad()
        model(alpha.ones(3, 4, 4, 2, device=device)).square().sum().backward()
        optimizer.step()

    model, optimizer = make()
    step(model, optimizer)
    state = back({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path)
    assert isinstance(state["model"], StateDict)
    assert state["model"].layout == "NHWC"
    assert {value.device.name for value in state["model"].values()} == {"cpu"}  # no memory of the model's device
    again, other = make()
    again.load_state_dict(state["model"])
    other.load_state_dict(state["optimizer"])
    for pair in ((model, optimizer), (again, other)):
        step(*pair)
    for name, value in model.state_dict().numpy().items():
        np.testing.assert_array_equal(again.state_dict()[name], value, err_msg=name)


def test_parameters_come_back_as_such(tmp_path: Path) -> None:
    layer = nn.Linear(2, 3)
    layer.bias.requires_grad = False  # type: ignore[union-attr]
    weight, bias = back([layer.weight, layer.bias], tmp_path)
    assert isinstance(weight, nn.Parameter)
    assert (weight.requires_grad, bias.requires_grad) == (True, False)
    np.testing.assert_array_equal(weight.numpy(), layer.weight.numpy())


def test_map_location(tmp_path: Path) -> None:
    x = alpha.ones(2, device="cuda")
    for location in ("cpu", alpha.get_device("cpu"), {"cuda": "cpu"}, {"cuda:0": "cpu"}):
        assert back([x], tmp_path, map_location=location)[0].device.name == "cpu"
    assert back([x], tmp_path, map_location={"cpu": "cuda"})[0].device.name == "cuda"
    assert back(alpha.ones(2), tmp_path, map_location="cuda").device.name == "cuda"
    with pytest.raises(TypeError, match=r"^load: map_location is a function"):
        back(x, tmp_path, map_location=lambda storage, place: storage)


def test_files_that_are_open(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    alpha.save(alpha.arange(3), buffer)
    buffer.seek(0)
    assert alpha.load(buffer, weights_only=True).tolist() == [0, 1, 2]
    for call in (lambda: alpha.save(1, 3), lambda: alpha.load(3)):  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="f is a int; a path or a file"):
            call()
    with pytest.raises(TypeError, match=r"^load: weights_only is a str"):
        alpha.load(tmp_path / "none", weights_only="yes")  # type: ignore[arg-type]


def test_a_file_object_is_named_in_errors(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    with (
        path.open("rb") as file,
        pytest.raises(CheckpointError, match=r"^\S+/notes.txt: is a text, which begins with 'hello'"),
    ):
        alpha.load(file)
    with pytest.raises(CheckpointError, match=r"^a BytesIO: is a text"):
        alpha.load(io.BytesIO(b"hello"))
    with pytest.raises(CheckpointError, match=r"^a BytesIO: cannot be read: it holds"):
        alpha.load(io.BytesIO(archive(tmp_path / "x.pth", Evil()).read_bytes()))
    with path.open() as text, pytest.raises(TypeError, match=r"f is a TextIOWrapper; .* for reading bytes"):
        alpha.load(text)  # type: ignore[arg-type]
    with path.open("w") as text, pytest.raises(TypeError, match=r"f is a TextIOWrapper; .* for writing bytes"):
        alpha.save(1, text)


def test_what_contains_itself_or_is_nested_too_deeply(tmp_path: Path) -> None:
    own: list[Any] = [1]
    own.append({"more": (own,)})
    with pytest.raises(ValueError, match=r"^save: obj\[1\]\['more'\]\[0\] contains itself"):
        alpha.save(own, tmp_path / "file.pt")
    deep: list[Any] = []
    for _ in range(100):
        deep = [deep]
    assert back(deep, tmp_path) == deep
    with pytest.raises(ValueError, match=r"^save: obj\[0\].* is nested in more than 100 others"):
        alpha.save([deep], tmp_path / "file.pt")
    twice = [1]
    assert back([twice, twice], tmp_path) == [[1], [1]]
    with pytest.raises(CheckpointError, match=r"file.pth: its parts contain themselves"):
        alpha.load(archive(tmp_path / "file.pth", own))


@pytest.mark.slow
@pytest.mark.parametrize("names", [["b", "a", "\u00e9", "c", "d"]])
def test_files_are_the_same_in_each_run(tmp_path: Path, names: list[str]) -> None:
    code = """
import sys, alpha, numpy as np
from alpha.train import save_weights
folder, *names = sys.argv[1:]
weights = {name: np.arange(i + 1, dtype=dtype) for i, (name, dtype) in enumerate(zip(names, "?Bfdq"))}
save_weights(folder + "/weights", weights, {name: name for name in reversed(names)})
alpha.save({"set": set(names), "x": alpha.ones(3)}, folder + "/object")
"""
    found = []
    for seed in ("1", "2"):
        (tmp_path / seed).mkdir()
        environment = child.environment(PYTHONHASHSEED=seed)
        child.run([sys.executable, "-c", code, str(tmp_path / seed), *names], check=True, env=environment)
        found.append([(tmp_path / seed / name).read_bytes() for name in ("weights", "object")])
    assert found[0] == found[1]
    header = found[0][0][8:]
    assert header.index(b'"a":"a"') < header.index(b'"b":"b"') < header.index('"\u00e9":'.encode())
    assert alpha.load(tmp_path / "1" / "object")["set"] == set(names)
    assert list(alpha.load(tmp_path / "1" / "weights")["d"]) == [0, 1, 2, 3, 4]


def test_what_cannot_be_saved_leaves_the_older_file(tmp_path: Path) -> None:
    alpha.save([1], tmp_path / "file.pt")
    for value, message in (
        ({"a": [1, nn.Linear(1, 1)]}, r"^save: obj\['a'\]\[1\] is a Linear; save its state_dict\(\)"),
        ({"a": object()}, r"^save: obj\['a'\] is a object, which is neither a tensor nor plain data"),
        ({alpha.ReLU if hasattr(alpha, "ReLU") else nn.ReLU: 1}, r"^save: a key of obj is a"),
        (np.array(["text"]), "^save: obj is an array of str"),
        (1j, "^save: obj is a complex"),
    ):
        with pytest.raises(TypeError, match=message):
            alpha.save(value, tmp_path / "file.pt")
    assert alpha.load(tmp_path / "file.pt") == [1]
    with pytest.raises(CheckpointError):
        alpha.save([1], tmp_path / "no folder" / "file.pt")


def test_damaged_files(tmp_path: Path) -> None:
    path = tmp_path / "file.pt"
    with pytest.raises(CheckpointError, match="no such"):
        alpha.load(path)
    alpha.save({"x": alpha.ones(3)}, path)
    data = path.read_bytes()
    path.write_bytes(data[:-4])
    with pytest.raises(CheckpointError):
        alpha.load(path)
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    changed = data.replace(b'\\"values\\": \\"0\\"', b'\\"values\\": \\"7\\"')
    assert changed != data, header
    path.write_bytes(changed)
    with pytest.raises(CheckpointError, match="is damaged"):
        alpha.load(path)


DAMAGED: list[Any] = [
    {"$": "bytes", "text": 5},
    {"$": "bytes", "text": "\u1234"},
    {"$": "bytes"},
    {"$": []},
    {"$": "tensor", "values": [], "device": "cpu"},
    {"$": "tensor", "values": "0", "device": "tpu", "parameter": False, "requires_grad": False},
    {"$": "dict", "items": 5},
    {"$": "dict", "items": {"ab": 1}},
    {"$": "dict", "items": [[1, 2, 3]]},
    {"$": "dict", "items": ["ab"]},
    {"$": "dict", "items": [[{"$": "dict", "items": []}, 1]]},
    {"$": "dict", "items": [], "layout": 5},
    {"$": "tuple", "items": "abc"},
    {"$": "set", "items": [[]]},
    {"$": "dtype", "name": []},
    {"$": "dtype", "name": "nothing"},
    {"$": "nothing", "items": []},
    {"a": 1},
]


def test_damage_of_an_object_is_an_error_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "file.pt"
    texts = [json.dumps(value) for value in DAMAGED]
    for text in (*texts, "[" * 100_000 + "]" * 100_000, "[" * 900 + "]" * 900, "{", ""):
        save_file({"0": np.ones(2)}, path, metadata={"alpha.object": text})
        with pytest.raises(CheckpointError, match=r"file.pt: (is damaged|its parts .* nested too deeply)"):
            alpha.load(path)


def test_a_wrong_device_is_no_damage(tmp_path: Path) -> None:
    alpha.save([1], tmp_path / "file.pt")
    for place in ("xpu", {"cuda": "xpu"}):
        with pytest.raises(alpha.DeviceError, match="no device 'xpu'"):
            alpha.load(tmp_path / "file.pt", map_location=place)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX pipes")
def test_what_is_no_regular_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # opening it would wait for a writer
    for name, message in (("pipe", "is a device, pipe or socket, not a regular file"), (".", "is a folder, not a")):
        with pytest.raises(CheckpointError, match=message):
            alpha.load(tmp_path / name)


def test_weights_of_other_programs(tmp_path: Path) -> None:
    from alpha.train import save_weights

    save_weights(tmp_path / "w.safetensors", nn.Linear(2, 3).state_dict())
    found = alpha.load(tmp_path / "w.safetensors")
    assert isinstance(found, StateDict)
    assert set(found) == {"weight", "bias"}


def test_weights_have_the_layout_that_their_file_names(tmp_path: Path) -> None:
    model = nn.Conv2d(2, 4, 3)
    alpha.train.save_weights(tmp_path / "own.safetensors", model.state_dict())
    assert alpha.load(tmp_path / "own.safetensors").layout == "NHWC"


@pytest.mark.parametrize(
    ("kind", "shape"), [("Conv2d", (8, 3, 3, 16)), ("Conv1d", (8, 3, 16)), ("Conv3d", (8, 3, 3, 3, 16))]
)
def test_weights_of_alpha_in_a_file_without_its_layout(tmp_path: Path, kind: str, shape: tuple[int, ...]) -> None:
    """The message does not name one shape twice as if the two differed: it says for what the file is taken."""
    path = tmp_path / "net.safetensors"
    model = getattr(alpha.nn, kind)(16, 8, 3)
    save_file({name: value.numpy() for name, value in model.state_dict().items()}, path)
    state, turned = alpha.load(path), (*shape[:1], *shape[2:], shape[1])
    known = alpha.nn.StateDict(dict(state), "NCHW")
    for given, layout, way in (
        (state, None, "layout='NHWC'"),
        (state, "NCHW", "layout='NHWC'"),
        (known, None, "alpha.nn.StateDict(weights, 'NHWC')"),
    ):
        told = (
            f"the weights have {shape}, the model {shape}; they fit with {way}; taken for PyTorch's, in NCHW, they are"
        )
        with pytest.raises(CheckpointError, match=re.escape(f"{told} {turned} here")):
            model.load_state_dict(given, layout=layout)
    model.load_state_dict(state, layout="NHWC")
    model.load_state_dict(alpha.nn.StateDict(dict(known), "NHWC"))
