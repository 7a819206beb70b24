"""Files of torch.save: alpha.load reads them, runs nothing of them, and refuses what is no data with advice."""

from __future__ import annotations

import pickle
import zipfile
from collections import Counter, OrderedDict
from pathlib import Path

import numpy as np
import pytest
from torch_archives import Evil, archive

import alpha
from alpha import CheckpointError, Tensor, nn
from alpha.io import torch_files


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
