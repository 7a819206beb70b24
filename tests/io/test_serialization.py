"""alpha.save and alpha.load: what was saved comes back; files of torch.save are read, and run nothing."""

from __future__ import annotations

import io
import json
import os
import pickle
import sys
import zipfile
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import child
import numpy as np
import pytest
from safetensors.numpy import save_file

import alpha
from alpha import CheckpointError, Tensor, nn
from alpha.io import torch_files
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


# -- PyTorch's files --------------------------------------------------------------------------------------------------


@pytest.mark.torch
def test_state_dicts_of_pytorch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    theirs = torch.nn.Sequential(torch.nn.Conv2d(2, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU()).eval()
    ours = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    torch.save({"model": theirs.state_dict(), "epoch": 3}, tmp_path / "run.pth")
    state = alpha.load(tmp_path / "run.pth", map_location="cpu")
    assert state["epoch"] == 3
    ours.load_state_dict(state["model"])
    x = np.random.default_rng(0).standard_normal((2, 5, 5, 2)).astype(np.float32)
    expected = theirs(torch.tensor(x).permute(0, 3, 1, 2)).permute(0, 2, 3, 1).detach().numpy()
    np.testing.assert_allclose(ours(alpha.tensor(x)).numpy(), expected, atol=1e-5)


@pytest.mark.torch
def test_tensors_of_pytorch(device: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    whole = torch.arange(24.0).reshape(2, 3, 4)
    values = [
        whole.transpose(0, 2),
        whole[1:, ::2],
        torch.tensor(5),
        torch.zeros(0, 3),
        torch.nn.Parameter(torch.ones(2)),
        whole[0, :1].expand(3, 4),
        *(torch.tensor([1, 0, 3]).to(dtype) for dtype in (torch.float16, torch.bfloat16, torch.int32, torch.bool)),
    ]
    torch.save(
        (values, {"size": torch.Size([2, 3]), "dtype": torch.int64, "device": torch.device("cpu")}), tmp_path / "x"
    )
    found, rest = alpha.load(tmp_path / "x", map_location=device)
    for mine, other in zip(found, values, strict=True):
        assert isinstance(mine, Tensor)
        assert mine.device.name == device
        np.testing.assert_array_equal(mine.numpy().astype(np.float64), other.detach().double().numpy())
    assert [str(mine.dtype) for mine in found[-3:]] == ["bfloat16", "int32", "bool"]
    assert rest == {"size": (2, 3), "dtype": np.dtype("int64"), "device": "cpu"}


@pytest.mark.torch
def test_data_that_pytorchs_programs_save(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], 0.1)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 3, 3])
    data = {"schedule": schedule.state_dict(), "bytes": [b"a\xff", b"", bytearray(b"b\x80"), bytearray()]}
    torch.save(data, tmp_path / "x")
    found = alpha.load(tmp_path / "x")
    assert found == data
    assert type(found["schedule"]["milestones"]) is Counter
    assert list(map(type, found["bytes"])) == [bytes, bytes, bytearray, bytearray]


@pytest.mark.torch
def test_dtypes_of_pytorch_that_alpha_has_not(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    wider = {"uint16": "int32", "uint32": "int64", "int8": "int32"}
    for name in (*wider, "uint64", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2"):
        value = torch.tensor([[1, 0, 3], [2, 4, 8]]).to(getattr(torch, name)).T
        torch.save([value], tmp_path / "x")
        (found,) = alpha.load(tmp_path / "x")
        assert isinstance(found, Tensor if name in wider else np.ndarray)
        assert str(found.dtype) == wider.get(name, name)
        np.testing.assert_array_equal(np.asarray(found).astype(complex), [[1, 2], [0, 4], [3, 8]], err_msg=name)
    z = torch.tensor([1 + 2j]).conj()
    for value, expected in ((z, [1 - 2j]), (z.imag, [-2])):  # which PyTorch has not computed yet
        torch.save(value, tmp_path / "x")
        assert alpha.load(tmp_path / "x").tolist() == expected


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")  # PyTorch warns of what it will not have any more
def test_advice_fits_what_is_refused(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "x"
    for value, message in (
        (torch.eye(2).to_sparse(), r"save the sparse tensor as x.to_dense\(\)"),
        (torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), r"the quantized tensor as x.dequantize\(\)"),
        ({"best": np.float64(2)}, r"numpy\.\S+, which .* its numbers as x.item\(\)"),
        (Path("a"), r"a pathlib\.\w+, which .* save tensors and plain data instead: numbers, text"),
    ):
        torch.save(value, path)
        with pytest.raises(CheckpointError, match=message):
            alpha.load(path)
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), path)
    with pytest.raises(CheckpointError, match=r"is a TorchScript file; .* state_dict"):
        alpha.load(path)


@pytest.mark.torch
def test_what_would_run_code_is_refused(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save(torch.nn.Linear(2, 3), tmp_path / "module.pth")
    with pytest.raises(CheckpointError, match=r"it holds a torch\.nn\.modules\.linear\.Linear, .* save the state_dict"):
        alpha.load(tmp_path / "module.pth")


class Evil:
    def __reduce__(self) -> Any:
        return print, ("run",)


def archive(path: Path, value: Any, **files: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", value if isinstance(value, bytes) else pickle.dumps(value, 2))
        for name, data in files.items():
            file.writestr(f"archive/{name}", data)
    return path


def test_made_up_archives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "file.pth"
    assert alpha.load(archive(path, OrderedDict(a=[1, (2,)]))) == {"a": [1, (2,)]}
    for value, files, message in (
        (Evil(), {}, r"holds a \w+\.print"),
        (b"\x80\x02K\x01", {}, "is damaged"),
        ([1], {"byteorder": b"big"}, "big-endian"),
        (b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00rot13\x86R.", {}, "as latin1, not 'rot13'"),
        (b"\x80\x02c__builtin__\nbytes\nK\x05\x85R.", {}, "is damaged"),
        (b"\x80\x02c__builtin__\nbytearray\nK\x05\x85R.", {}, "is damaged"),
        (b"\x80\x02c__builtin__\neval\n.", {}, "holds a __builtin__.eval"),
        (b"\x80\x04\x8c\x0bcollections\x8c\x10Counter.__init__\x93.", {}, "holds a collections.Counter.__init__"),
    ):
        with pytest.raises(CheckpointError, match=message):
            alpha.load(archive(path, value, **files))  # type: ignore[arg-type]
    assert "run" not in capsys.readouterr().out
    changed = b"\x80\x02ccollections\nOrderedDict\n)R}X\x05\x00\x00\x00itemsc__builtin__\ncomplex\nsb."
    assert alpha.load(archive(path, changed)) == {}  # the attribute is passed over


@pytest.mark.torch
@pytest.mark.parametrize("length", [0, 8, 15, 20, 900])
def test_an_archive_whose_storage_has_another_size(tmp_path: Path, length: int) -> None:
    torch = pytest.importorskip("torch")
    torch.save(torch.ones(4), tmp_path / "whole.pth")
    with zipfile.ZipFile(tmp_path / "whole.pth") as whole, zipfile.ZipFile(tmp_path / "cut.pth", "w") as cut:
        for name in whole.namelist():
            cut.writestr(name, bytes(length) if name.endswith("data/0") else whole.read(name))
    with pytest.raises(CheckpointError, match=f"storage 0 of 4 float32 needs 16 bytes and has {length}"):
        alpha.load(tmp_path / "cut.pth")


READ_TENSOR = torch_files._Object._tensor
STATES = {  # what BUILD would set, of a dtype and of a function
    "a dtype": b"\x80\x02ctorch\nbfloat16\n" + pickle.dumps((3, ">", None, None, None, 8, 8, 0), 2)[2:-1] + b"b0N.",
    "a function": b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n"
    + pickle.dumps((None, {"__defaults__": (1, 2)}), 2)[2:-1]
    + b"b0N.",
}


@pytest.mark.parametrize("name", STATES)
def test_no_file_changes_a_dtype_or_a_function(tmp_path: Path, name: str) -> None:
    path, defaults = archive(tmp_path / "x.pth", STATES[name], byteorder=b"little"), READ_TENSOR.__defaults__
    with pytest.raises(CheckpointError, match=r"sets the state of a .*, which is no state dict"):
        alpha.load(path)
    assert (alpha.bfloat16.itemsize, str(alpha.bfloat16)) == (2, "bfloat16")
    assert READ_TENSOR.__defaults__ == defaults


@pytest.mark.torch
def test_a_damaged_byte_of_pytorchs_file_is_an_error_or_changes_nothing(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "x.pth"
    torch.save({"w": torch.arange(6.0), "epoch": 3}, path)
    whole, refused = path.read_bytes(), 0
    for place in range(0, len(whole), 3):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x80]) + whole[place + 1 :])
        try:
            found = alpha.load(path)
        except CheckpointError:
            refused += 1
        else:
            assert found["w"].tolist() == [0, 1, 2, 3, 4, 5]
    assert refused > 50


def test_weights_have_the_layout_that_their_file_names(tmp_path: Path) -> None:
    model = nn.Conv2d(2, 4, 3)
    alpha.train.save_weights(tmp_path / "own.safetensors", model.state_dict())
    assert alpha.load(tmp_path / "own.safetensors").layout == "NHWC"
