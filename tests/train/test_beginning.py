"""Mistakes that a Trainer finds when a training begins, and the layers that it leaves in evaluation mode."""

from __future__ import annotations

import gc
import warnings
import weakref
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn, transforms
from alpha.data import ArrayDataset, ConcatDataset, DataLoader, Dataset, Subset, TensorDataset
from alpha.data.dataset import classes_of
from alpha.errors import DataError
from alpha.optim import SGD, CosineAnnealingLR, ReduceLROnPlateau, SequentialLR, StepLR
from alpha.train import Callback, EarlyStopping, Run, Trainer

LABELS = (np.arange(24) % 3).astype(np.int32)
NAMES = ("ant", "bee", "cat")


def images(names: tuple[str, ...] = (), kind: Any = np.uint8) -> ArrayDataset:
    pixels = np.random.default_rng(0).integers(0, 256, (24, 6, 6, 3)).astype(kind)
    return ArrayDataset(pixels, LABELS, names)


def network() -> nn.Sequential:
    block = nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.Dropout(0.5))
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), block, nn.Flatten(), nn.Linear(64, 3))


def trainer_of(model: nn.Module, **options: Any) -> Trainer:
    return Trainer(model, SGD(model.parameters(), lr=0.01), "cpu", **options)


# -- layers that stay in evaluation mode ------------------------------------------------------------

LAYERS = ["1", "2", "2.1", "2.2"]


@pytest.mark.parametrize("frozen", [chosen for count in range(3) for chosen in combinations(LAYERS, count)], ids=str)
def test_layers_of_which_eval_was_called_stay_so(frozen: tuple[str, ...]) -> None:
    """Over epochs and evaluations; the statistics of such a batch normalisation stay as they are."""
    model = network()
    modules = dict(model.named_modules())
    for name in frozen:
        modules[name].eval()
    expected = {name for name, module in modules.items() if not module.training}
    before = {name: value.numpy().copy() for name, value in model.named_buffers()}
    trainer, loader = trainer_of(model), DataLoader(images(), 8)
    for _ in range(2):
        trainer.train_epoch(loader)
        assert {name for name, module in modules.items() if not module.training} == expected
        trainer.evaluate(loader)
        assert not any(module.training for module in modules.values())
    for name, value in model.named_buffers():
        stays = name.rpartition(".")[0] in expected
        assert np.array_equal(value.numpy(), before[name]) == stays, name


def test_layers_that_are_trained_again() -> None:
    model = network()
    model[1].eval()
    trainer, loader = trainer_of(model), DataLoader(images(), 8)
    trainer.fit(loader, loader, epochs=1, show=None)
    model[1].train()
    trainer.train_epoch(loader)
    assert all(module.training for module in model.modules())


def test_a_model_in_evaluation_mode_is_trained_as_a_whole() -> None:
    model = network().eval()
    trainer_of(model).train_epoch(DataLoader(images(), 8))
    assert all(module.training for module in model.modules())


def test_a_frozen_layer_stays_so_whoever_evaluates_and_trains() -> None:
    """A callback predicts photos, another trainer has the model, and layers are frozen later, in training mode."""
    model = network()
    model[1].eval()
    loader, before = DataLoader(images(), 8), model[1].running_mean.numpy().copy()

    class Photo(Callback):
        def on_epoch(self, fit: Any) -> None:
            modes = [module.training for module in model.modules()]
            alpha.models.Classifier(model, alpha.models.Description("own", image_size=6)).predict(images().images[0])
            assert [module.training for module in model.modules()] == modes

    trainer_of(model).fit(loader, loader, epochs=2, callbacks=[Photo()], show=None)
    trainer_of(model).fit(loader, epochs=2, callbacks=[Photo()], show=None)
    np.testing.assert_array_equal(model[1].running_mean.numpy(), before)
    other = model[2][1].running_mean.numpy().copy()
    model.train()
    model[2].eval()
    trainer_of(model).fit(loader, loader, epochs=2, show=None)
    np.testing.assert_array_equal(model[2][1].running_mean.numpy(), other)
    assert (model[1].running_mean.numpy() != before).any()


@dataclass
class Equal(nn.Module):
    """Models that are equal, and have no hash."""

    size: int = 2

    def __post_init__(self) -> None:
        self.first, self.last = nn.Linear(4, 3), nn.Linear(3, 3)
        self.first.register_forward_hook(self.note)
        self.first.eval()

    def note(self, *_: Any) -> None: ...

    def forward(self, x: Any) -> Any:
        return self.last(self.first(x))


@dataclass
class Stop(EarlyStopping):
    patience: int = 2

    def __post_init__(self) -> None:
        super().__init__(self.patience)


def test_models_and_callbacks_without_a_hash() -> None:
    """Frozen layers, whose hooks may reach the model, do not keep it."""
    loader = DataLoader(TensorDataset(np.ones((8, 4), np.float32), LABELS[:8]), 4)
    model = Equal()
    trainer_of(model, capture=False).fit(loader, loader, epochs=1, callbacks=[Stop()], show=None)
    trainer_of(model, capture=False).fit(loader, loader, epochs=1, show=None)
    trained = Equal()
    trained.first.train()
    trainer_of(trained, capture=False).train_epoch(loader)
    assert trained.first.training
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_predicting_leaves_what_train_does() -> None:
    """Layers of low rank are merged in evaluation, and not in training."""

    class Merged(nn.Linear):
        merged = False

        def train(self, mode: bool = True) -> Any:
            self.merged = not mode
            return super().train(mode)

    model = nn.Sequential(nn.Flatten(), Merged(108, 3))
    alpha.models.Classifier(model, alpha.models.Description("own", image_size=6)).predict(images().images[0])
    assert model[1].training
    assert not model[1].merged


def test_fit_says_which_layers_stay_in_evaluation_mode() -> None:
    model, said = network(), []
    loader = DataLoader(images(), 8)
    trainer_of(model).fit(loader, epochs=1, show=said.append)
    assert not any("evaluation mode" in line for line in said)
    model[2].eval()
    trainer_of(model).fit(loader, epochs=1, show=said.append)
    assert "4 layers stay in evaluation mode: 2, 2.0, 2.1, 2.2" in said

    class Leaves(Callback):
        def on_epoch(self, fit: Any) -> None:
            model[1].eval() if len(fit.rows) == 2 else model.train()

    said.clear()
    model.train()
    trainer_of(model).fit(loader, epochs=4, callbacks=[Leaves()], show=said.append)
    told = [line for line in said if not line.startswith("epoch")]
    assert told == ["1 layer stays in evaluation mode: 1", "all layers are in training mode again"]


# -- parameters and schedules ------------------------------------------------------------------------


def test_parameters_that_no_optimizer_has() -> None:
    model = network()
    optimizer = SGD(model.parameters(), lr=0.01)
    model[4] = nn.Linear(64, 3)
    loader = DataLoader(images(), 8)
    trainer = Trainer(model, optimizer, "cpu")
    with pytest.warns(
        UserWarning, match=r"no optimizer has these parameters .*: 4.weight, 4.bias\. Make the optimizer"
    ):
        trainer.train_epoch(loader)
    for parameter in model[4].parameters():
        parameter.requires_grad = False
    parts = [SGD(model[0].parameters(), lr=0.01), SGD([*model[1].parameters(), *model[2].parameters()], lr=0.01)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainer.train_epoch(loader)  # once a training is enough
        Trainer(model, parts, "cpu").train_epoch(loader)
        network_of_a_step = network()
        Trainer(
            network_of_a_step,
            SGD(network_of_a_step[0].parameters(), lr=0.01),
            "cpu",
            step=lambda m, batch: nn.functional.cross_entropy(m(batch[0]), batch[1]),
        ).train_epoch(loader)


@pytest.mark.parametrize(
    "make",
    [
        lambda optimizer: StepLR(optimizer, 2),
        lambda optimizer: CosineAnnealingLR(optimizer, 10),
        lambda optimizer: ReduceLROnPlateau(optimizer),
        lambda optimizer: SequentialLR(optimizer, [StepLR(optimizer, 2), StepLR(optimizer, 3)], [4]),
    ],
)
def test_a_schedule_of_another_optimizer_is_refused(make: Any) -> None:
    model = network()
    first, second = (SGD(model.parameters(), lr=0.01) for _ in range(2))
    Trainer(model, [first, second], "cpu", schedule=make(second))
    with pytest.raises(ValueError, match="sets the rates of another SGD than the trainer's"):
        Trainer(model, first, "cpu", schedule=make(second))
    trainer = Trainer(model, first, "cpu")
    trainer.schedule = make(second)
    with pytest.raises(ValueError, match="another SGD"):
        trainer.train_epoch(DataLoader(images(), 8))


def test_schedules_of_the_same_groups_and_of_a_step() -> None:
    """A wrapper that shares the groups of an optimizer, and a step that steps another one by itself."""
    model = network()
    base, other = (SGD(model.parameters(), lr=0.01) for _ in range(2))

    class Wrapper(SGD):
        def __init__(self) -> None:
            super().__init__(model.parameters(), lr=0.01)
            self.param_groups = base.param_groups

    trainer = Trainer(model, Wrapper(), "cpu", schedule=StepLR(base, 1, 0.5), schedule_per="epoch")
    trainer.train_epoch(DataLoader(images(), 8))
    assert base.param_groups[0]["lr"] == 0.005

    def step(model: Any, batch: Any) -> Any:
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    Trainer(model, base, "cpu", schedule=StepLR(other, 1), step=step).train_epoch(DataLoader(images(), 8))


# -- augmentation ------------------------------------------------------------------------------------

COLOURS = [transforms.ColorJitter, transforms.RandAugment, transforms.TrivialAugmentWide]


@pytest.mark.parametrize("kind", COLOURS)
def test_bounds_of_colours_are_those_of_the_images(kind: Any) -> None:
    def begin(augment: Any, loader: DataLoader) -> None:
        trainer = trainer_of(network())
        trainer.augment = augment
        trainer.train_epoch(loader)

    bytes_, floats = DataLoader(images(), 8), DataLoader(images(kind=np.float32), 8)
    items = DataLoader(Subset(TensorDataset(images().images, LABELS), range(16)), 8)
    for augment in (kind(), transforms.Compose([transforms.RandomHorizontalFlip(), kind()])):
        for loader in (bytes_, items):
            with pytest.raises(
                ValueError, match=rf"{kind.__name__} with bounds=\(0.0, 1.0\).*give it bounds=\(-1, 1\)"
            ):
                begin(augment, loader)
        begin(augment, floats)
    begin(kind(bounds=(-1, 1)), bytes_)
    begin(kind(bounds=(-2, 2)), bytes_)
    with pytest.raises(DataError, match="no batches of 8 in 0 samples"):
        begin(kind(), DataLoader(Subset(images(), []), 8))
    dense = nn.Conv2d(3, 2, 1, stride=2)  # with labels of uint8, which are no images
    masks = TensorDataset(images(kind=np.float32).images / 255, np.zeros((24, 3, 3, 1), np.uint8))
    trainer = Trainer(dense, SGD(dense.parameters(), lr=0.1), "cpu", lambda o, t: (o - t.float()).square().mean())
    trainer.augment = kind()
    trainer.train_epoch(DataLoader(masks, 8))
    begin(transforms.Compose([transforms.Normalize(-1.0, 2.0), kind()]), bytes_)  # to pixels from 0 to 1


# -- names of classes --------------------------------------------------------------------------------


@pytest.mark.parametrize("other", [("ant", "cat", "bee"), ("ant", "bee", "cat", "dog"), ("a", "b", "c")], ids=str)
def test_data_sets_of_other_classes_are_refused(other: tuple[str, ...], tmp_path: Path) -> None:
    """`fit` finds them before it trains, and so do `evaluate` and a resume; parts of data sets have names, too."""
    sets = [images(other), Subset(images(other), range(16)), ConcatDataset([images(other), images(other)])]
    train = DataLoader(images(NAMES), 8, seed=0)
    for dataset in sets:
        trainer = trainer_of(network())
        with pytest.raises(DataError, match="so both need the same ones in the same order"):
            trainer.fit(train, DataLoader(dataset, 8), epochs=1, show=None)
        assert trainer.epoch == 0
        trainer.train_epoch(train)
        with pytest.raises(DataError, match=rf"has the classes {other[0]}, .* the training has ant, bee, cat \(3\)"):
            trainer.evaluate(DataLoader(dataset, 8))
        trainer.fit(train, DataLoader(images(NAMES), 8), epochs=2, show=None)
        trainer.evaluate(DataLoader(images(), 8))  # without names
    run = Run.start({}, tmp_path / "run")
    trainer_of(network()).fit(train, epochs=1, run=run, show=None)
    run.close()
    run, trainer = Run.resume(tmp_path / "run"), trainer_of(network())
    run.restore(trainer)
    with pytest.raises(DataError, match="the training that goes on has ant, bee, cat"):
        trainer.fit(DataLoader(images(other), 8, seed=0), epochs=2, run=run, show=None)
    assert len(trainer.fit(train, epochs=2, run=run, show=None)) == 2
    run.close()


class Grouped(Dataset):
    """Other labels of a data set, whose names are not its own."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        image, label = self.dataset[index]
        return image, int(label > 0)


class Joined(ConcatDataset):
    classes = ("one", "two", "three", "four", "five", "six")


class Unnamed(ArrayDataset):
    @property
    def classes(self) -> Any:  # type: ignore[override]
        raise NotImplementedError

    @classes.setter
    def classes(self, names: Any) -> None: ...


@pytest.mark.parametrize(
    "dataset",
    [
        Grouped(images(NAMES)),
        ConcatDataset([images(NAMES), images()]),
        Unnamed(images().images, LABELS),
        *[type("Own", (TensorDataset,), {"classes": names})(images().images, LABELS) for names in (LABELS, "abc", 3)],
        type("Own", (TensorDataset,), {"classes": ["cat", "bee"] * 12})(images().images, LABELS),
    ],
)
def test_what_names_no_classes(dataset: Any) -> None:
    assert classes_of(dataset) == ()
    assert "classes" not in DataLoader(dataset, 8).describe()
    loader = DataLoader(images(NAMES), 8)
    trainer_of(network()).fit(loader, DataLoader(Subset(dataset, range(8)), 8), epochs=1, show=None)


def test_data_sets_of_pytorch() -> None:
    data = pytest.importorskip("torch.utils.data")
    named = images(NAMES)
    for dataset in (data.Subset(named, [0, 1]), data.ConcatDataset([named, data.Subset(named, [2])])):
        assert classes_of(dataset) == NAMES
    mixed = DataLoader(data.ConcatDataset([named, images(("a", "b", "c"))]), 8)
    with pytest.raises(
        DataError, match=r"ConcatDataset: data set 1 has 3 classes, data set 0 has .* class 0 is 'a' and"
    ):
        trainer_of(network()).fit(mixed, epochs=1, show=None)


def test_own_names_come_first() -> None:
    assert classes_of(Joined([images(NAMES), images(NAMES)])) == Joined.classes
    assert classes_of(ConcatDataset([images(NAMES), Subset(images(NAMES), [1])])) == NAMES


def test_a_step_may_not_use_labels() -> None:
    def step(model: Any, batch: Any) -> Any:
        return model(batch[0]).square().mean()

    model = network()
    trainer = Trainer(model, SGD(model.parameters(), lr=0.01), "cpu", step=step)
    trainer.fit(DataLoader(images(NAMES), 8), DataLoader(images(("x", "y", "z")), 8), epochs=1, show=None)


def test_a_state_of_before_names_no_classes() -> None:
    trainer, loader = trainer_of(network()), DataLoader(images(NAMES), 8, seed=0)
    trainer.train_epoch(loader)
    state = trainer.state_dict()
    del state["loader"]["classes"]
    other = trainer_of(network())
    other.load_state_dict(state)
    other.train_epoch(loader)
    assert other.state_dict()["loader"]["classes"] == list(NAMES)


# -- loaders -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [images(), np.zeros((4, 2)), (np.zeros(4), np.zeros(4)), [1, 2], None])
def test_what_is_no_loader(given: Any) -> None:
    trainer = trainer_of(network())
    for use in (trainer.fit, trainer.train_epoch, trainer.evaluate, trainer.predict):
        with pytest.raises(
            TypeError, match=r"is no loader; make one by alpha.data.DataLoader\(dataset, batch_size=..\)"
        ):
            use(given)


@pytest.mark.parametrize("kind", [np.uint8, np.float32])
@pytest.mark.parametrize("mixed", [False, True])
def test_predictions_need_no_targets(device: str, kind: Any, mixed: bool) -> None:
    """Images of uint8 are pixels as beside targets, and an augmentation that mixes targets has none."""
    alpha.manual_seed(0)
    inputs = np.random.default_rng(0).integers(0, 256, (10, 6, 6, 3)).astype(kind)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(64, 2)).to(device)
    trainer = Trainer(model, SGD(model.parameters(), lr=0.01), device)
    if mixed:
        trainer.augment = transforms.Compose([transforms.MixUp(num_classes=2), transforms.RandomCrop(6)])
    expected = trainer.predict(DataLoader(TensorDataset(inputs, np.zeros(10)), 4))
    for dataset in (TensorDataset(inputs), list(inputs)):
        np.testing.assert_array_equal(trainer.predict(DataLoader(dataset, 4)), expected)
    for loader in (DataLoader(TensorDataset(inputs[:0]), 4), DataLoader(TensorDataset(inputs), 16, drop_last=True)):
        with pytest.raises(DataError, match=r"no batches of (4|16) in (0|10) samples"):
            trainer.predict(loader)
    with pytest.raises(DataError, match="3 parts"):
        trainer.predict(DataLoader(TensorDataset(inputs, np.zeros(10), np.zeros(10)), 4))


# -- losses that are not finite ----------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 13, 23])
def test_the_item_whose_numbers_are_not_finite(wrong: float, place: int) -> None:
    def trainer(**options: Any) -> Trainer:
        return trainer_of(nn.Linear(4, 3), **options)

    inputs = np.random.default_rng(0).normal(size=(24, 4)).astype(np.float32)
    inputs[place, 2] = wrong
    data = TensorDataset(inputs, LABELS)
    words = f"its inputs have {wrong} in item {place} of the data set"
    words += "$" if np.isnan(wrong) else "; if that is meant, a lower learning rate usually helps"
    for loader in (DataLoader(data, 5), DataLoader(data, 5, shuffle=True), DataLoader(data, 5, shuffle=True, seed=1)):
        with pytest.raises(ArithmeticError, match=words):
            trainer().fit(loader, epochs=1, show=None)
        with pytest.raises(ArithmeticError, match=words):
            trainer().evaluate(loader)
    targets = TensorDataset(np.ones((24, 4), np.float32), inputs[:, 2:])
    model = nn.Linear(4, 2)
    regression = Trainer(model, SGD(model.parameters(), lr=0.01), "cpu", nn.functional.mse_loss)
    with pytest.raises(ArithmeticError, match=f"its targets have {wrong} in item {place}"):
        regression.evaluate(DataLoader(targets, 5))


def test_a_batch_without_a_label() -> None:
    model = nn.Linear(3, 3)
    loader = DataLoader(TensorDataset(np.ones((8, 3), np.float32), np.full(8, -100)), 4)
    with pytest.raises(ArithmeticError, match="no label of a class: all are below 0, the first is -100"):
        trainer_of(model).evaluate(loader)
    regression = Trainer(model, SGD(model.parameters(), lr=1e30), "cpu", nn.functional.mse_loss)
    ones = DataLoader(TensorDataset(*np.ones((2, 8, 3), np.float32)), 4)
    with pytest.raises(ArithmeticError, match="; a lower learning rate usually helps"):
        regression.fit(ones, epochs=9, show=None)
    last = nn.Linear(3, 1)
    whole = Trainer(last, SGD(last.parameters(), lr=1e30), "cpu", lambda o, t: (o[:, 0] - t.float()).square().mean())
    with pytest.raises(ArithmeticError, match="; a lower learning rate usually helps"):
        whole.fit(DataLoader(TensorDataset(np.ones((8, 3), np.float32), np.full(8, -5)), 4), epochs=9, show=None)
