"""Names of PyTorch's that Alpha has not: the error says what to do, and the advice is true."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import pytest

import alpha
from alpha import data, nn, transforms, utils
from alpha.core.names.missing_names import FAMILIES, INSTEAD, INSTEAD_IN, MissingName, advice

SPACES = {
    "torch.nn": nn,
    "torch.nn.functional": nn.functional,
    "torch.linalg": alpha.linalg,
    "torch.optim": alpha.optim,
    "torch.amp": alpha.amp,
    "torch.utils.data": data,
}
INTERNAL = re.compile(  # names that stand there, and that no documentation of PyTorch tells of
    r"TYPE_CHECKING|LinearCrossEntropyOptions|common_types|factory_kwargs|intrinsic|BroadcastingList\d|GRID_SAMPLE\w+|ScalingType|DType"
    r"|SwizzleType|\w*torch_function\w*|assert_int_or_pair|boolean_dispatch|\w+_notes|DFIterDataPipe|DataChunk"
    r"|argument_validation|functional_datapipe|\w*determinis\w+|runtime_validation\w*|swap_in_optimizer_params_and_state"
)


@pytest.mark.torch
@pytest.mark.parametrize("space", SPACES)
def test_every_name_of_pytorch_is_there_or_has_advice(space: str) -> None:
    torch = pytest.importorskip("torch")
    theirs: Any = torch
    for part in space.split(".")[1:]:
        theirs = getattr(theirs, part)
    own = {
        name
        for name, value in vars(theirs).items()
        if not name.startswith("_") and str(getattr(value, "__module__", "torch")).startswith("torch")
    }
    names = sorted(
        name for name in own if not INTERNAL.fullmatch(name) and type(vars(theirs)[name]).__name__ != "module"
    )
    ours = SPACES[space]
    silent = [name for name in names if not hasattr(ours, name) and not advice(ours.__name__, name)]
    assert not silent


@pytest.mark.parametrize(
    ("owner", "name", "told"),
    [
        (alpha, "float16", "bfloat16"),
        (alpha, "set_default_dtype", r"dtype="),
        (alpha, "datasets", "alpha.data has Cifar10"),
        (alpha, "DataLoader", r"alpha\.data\.DataLoader is what"),
        (alpha, "Conv2d", r"alpha\.nn\.Conv2d is what"),
        (alpha.linalg, "eigh", r"numpy\.linalg\.eigh"),
        (nn, "DataParallel", "averages gradients over processes"),
        (nn.modules, "utils", "a pair is"),
        (alpha.autograd, "functional", "no second derivatives"),
        (alpha, "distributions", "log_softmax"),
        (alpha, "newaxis", "None is it"),
        (nn, "no_sync", "docs/distributed.md"),
        (nn.functional, "conv_tbc", "conv1d"),
        (transforms, "ToTensor", r"x\.float\(\) / 255"),
        (utils, "save_image", r"PIL\.Image"),
        (utils, "make_grid", r"PIL\.Image"),
        (nn.init, "constant", r"alpha\.nn\.init\.constant_ is its name"),
        (nn.init, "normal", r"alpha\.nn\.init\.normal_ is its name"),
        (alpha.cuda, "Stream", "one order"),
        (alpha.ones(2), "half", "bfloat16"),
        (alpha.ones(2), "t_", r"x = x\.t\("),
        (alpha.ones(2), "dropout", r"alpha\.nn\.functional\.dropout"),
        (nn.Linear(2, 3), "half", "bfloat16"),
        (nn.Linear(2, 3), "share_memory", "state_dict"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_error_says_what_to_do(owner: Any, name: str, told: str) -> None:
    assert not hasattr(owner, name)
    assert getattr(owner, name, 3) == 3
    with pytest.raises(AttributeError, match=f"has no attribute '{name}': .*{told}") as error:
        getattr(owner, name)
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)
    assert error.value.name == name


def test_a_name_that_nobody_knows_has_no_advice() -> None:
    with pytest.raises(AttributeError, match=r"^module 'alpha.nn' has no attribute 'Convolve'$"):
        nn.Convolve  # noqa: B018
    with pytest.raises(AttributeError, match=r"^'Tensor' object has no attribute 'weigth'$"):
        alpha.ones(2).weigth  # noqa: B018


def test_what_the_advice_names_is_there() -> None:
    texts = [*INSTEAD.values(), *INSTEAD_IN.values(), *(text for _, text in FAMILIES)]
    paths = {path for text in texts for path in re.findall(r"\balpha(?:\.\w+)+", text)}
    assert len(paths) > 20
    for path in paths:
        value: Any = alpha
        for part in path.split(".")[1:]:
            assert hasattr(value, part), path
            value = getattr(value, part)
    offered = INSTEAD.keys() & {*alpha.__all__, *nn.__all__, *nn.functional.__all__}
    assert not offered


# -- modules ----------------------------------------------------------------------------------------------------


class Wrapper(nn.Module):
    """Hands on what it has not, as PyTorch's programs write it."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)  # type: ignore[misc]
        except AttributeError:
            return getattr(self.module, name)


def test_a_module_may_hand_on_attributes() -> None:
    wrapper = Wrapper(nn.Linear(2, 3))
    assert wrapper.in_features == 2
    assert wrapper.weight is wrapper.module.weight
    assert isinstance(nn.Module.__getattr__(wrapper, "module"), nn.Linear)  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="'Linear' object has no attribute 'nothing'"):
        wrapper.nothing  # noqa: B018
    for other in (copy.deepcopy(wrapper), copy.copy(wrapper), pickle.loads(pickle.dumps(wrapper))):
        assert other.out_features == 3
        assert vars(other).keys() == vars(wrapper).keys()


def test_a_property_that_fails_says_why() -> None:
    class Net(nn.Module):
        @property
        def width(self) -> Any:
            return self.hidden

    with pytest.raises(MissingName, match="'Net' object has no attribute 'hidden'"):
        Net().width  # noqa: B018
