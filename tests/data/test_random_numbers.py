"""Random numbers that a data set, a sampler or a collating function draws while a loader makes its batches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import alpha
from alpha import transforms
from alpha.data import (
    ArrayDataset,
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    ImageFolder,
    IterableDataset,
    RandomSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
    random_split,
)
from alpha.errors import DataError

COUNT = 11


class Items(Dataset[Any]):
    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        first = alpha.rand(2)
        time.sleep(0.001 * (index % 3))  # threads draw in another order
        return first + 10 * alpha.rand(2)


class Batches(Dataset[Any]):
    def __len__(self) -> int:
        return COUNT

    def batch(self, indices: Any) -> Any:
        return np.array([alpha.rand(()).item() for _ in indices])


class Read(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        for _ in range(COUNT):
            yield alpha.rand(2)


class Order:
    """A sampler that draws by Alpha's random numbers."""

    def __iter__(self) -> Iterator[int]:
        yield from alpha.randperm(COUNT).tolist()

    def __len__(self) -> int:
        return COUNT


class Transformed(ArrayDataset):
    augment = transforms.RandomCrop(4, padding=2)

    def __getitem__(self, index: Any) -> Any:
        image, label = super().__getitem__(index)
        return self.augment(alpha.tensor(image[None]))[0], label


def noisy(items: list[Any]) -> Any:
    return np.stack(items) + alpha.rand(2).numpy()


def transformed() -> Transformed:
    images = np.random.default_rng(0).random((COUNT, 4, 4, 3), np.float32)
    return Transformed(images, np.arange(COUNT))


KINDS: dict[str, Any] = {
    "items": lambda **options: DataLoader(Items(), 4, **options),
    "single items": lambda **options: DataLoader(Items(), None, **options),
    "batches": lambda **options: DataLoader(Batches(), 4, **options),
    "parts": lambda **options: DataLoader(ConcatDataset([Subset(Items(), range(5)), Items()]), 4, **options),
    "collating": lambda **options: DataLoader(np.zeros((COUNT, 2)), 4, collate_fn=noisy, **options),
    "an order": lambda **options: DataLoader(np.arange(COUNT), 4, sampler=Order(), **options),
    "in its own order": lambda **options: DataLoader(Read(), 4, **options),
    "transforms": lambda **options: DataLoader(transformed(), 4, **options),
}


def taken(loader: DataLoader, draw: bool = False) -> list[bytes]:
    """The batches; the program draws, too, while they are made."""
    found = []
    for batch in loader:
        part = batch[0] if isinstance(batch, tuple) else batch
        found.append((part.numpy() if hasattr(part, "numpy") else np.asarray(part)).tobytes())
        if draw:
            alpha.rand(1)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_they_do_not_depend_on_threads_nor_on_the_program(kind: str) -> None:
    alpha.manual_seed(3)
    expected = taken(KINDS[kind](prefetch=0))
    assert len(set(expected)) == len(expected)
    for options in ({"prefetch": 0}, {"prefetch": 2}, {"num_workers": 1}, {"num_workers": 4}):
        alpha.manual_seed(3)
        assert taken(KINDS[kind](**options), draw=True) == expected


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_epoch_goes_on_within_it(kind: str, prefetch: int) -> None:
    loader = KINDS[kind](prefetch=prefetch, seed=0)
    epochs = [taken(loader) for _ in range(3)]
    assert len({batch for epoch in epochs for batch in epoch}) == 3 * len(epochs[0])
    for epoch, first in ((1, 0), (1, 2), (2, 1)):
        again = KINDS[kind](prefetch=prefetch, seed=0)
        again.set_epoch(epoch, first)
        assert taken(again) == epochs[epoch][first:]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prefetch", [0, 2])
def test_the_program_draws_as_if_the_loader_drew_nothing(kind: str, prefetch: int) -> None:
    state = alpha.get_rng_state()
    loader = KINDS[kind](prefetch=prefetch, seed=0)
    for _ in loader:
        assert alpha.get_rng_state() == state
    if kind != "in its own order":
        loader.batch(np.arange(2))
    assert alpha.get_rng_state() == state
    loader = KINDS[kind](prefetch=prefetch)
    state["stream"] += 1  # the seed of the epoch
    for _ in loader:
        assert alpha.get_rng_state() == state


SHUFFLED: dict[str, Any] = {
    **KINDS,
    "shuffled": lambda **options: DataLoader(np.arange(COUNT), 4, shuffle=True, **options),
    "random": lambda **options: DataLoader(np.arange(COUNT), 4, sampler=RandomSampler(range(COUNT)), **options),
    "subset": lambda **options: DataLoader(np.arange(COUNT), 4, sampler=SubsetRandomSampler(range(COUNT)), **options),
    "weighted": lambda **options: DataLoader(
        np.arange(COUNT), 4, sampler=WeightedRandomSampler(np.ones(COUNT), COUNT), **options
    ),
    "batch sampler": lambda **options: DataLoader(
        np.arange(COUNT), batch_sampler=BatchSampler(RandomSampler(range(COUNT)), 4, False), **options
    ),
}


@pytest.mark.parametrize("kind", SHUFFLED)
def test_without_a_seed_each_epoch_is_another_one_which_manual_seed_fixes(kind: str) -> None:
    """A loader may be kept, or made anew for each epoch; one with a seed gives the same when it is made anew."""

    def epochs(seed: int) -> tuple[list[list[bytes]], list[list[bytes]]]:
        alpha.manual_seed(seed)
        kept = SHUFFLED[kind]()
        return [taken(kept) for _ in range(3)], [taken(SHUFFLED[kind]()) for _ in range(3)]

    first, second = epochs(1), epochs(2)
    different = [b"".join(epoch) for program in (first, second) for way in program for epoch in way]
    assert len(set(different)) == len(different)
    assert epochs(1) == first
    assert taken(SHUFFLED[kind](seed=5)) == taken(SHUFFLED[kind](seed=5))


@pytest.mark.parametrize("kind", ["shuffled", "random", "batch sampler", "an order"])
def test_without_a_seed_an_epoch_goes_on_by_its_epoch_seed_alone(kind: str) -> None:
    loader = SHUFFLED[kind]()
    loader.set_epoch(2)
    loader.epoch_seed = 9
    whole, another = taken(loader), taken(loader)
    again = SHUFFLED[kind]()
    again.set_epoch(2, 1)
    with pytest.raises(DataError, match="epoch 2 is to begin with batch 1, but the order of its first batches is not"):
        iter(again)
    again.epoch_seed = 9
    assert taken(again) == whole[1:]
    assert taken(again) != another  # the next epoch draws a seed again


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{"prefetch": 0}, {"prefetch": 2}, {"num_workers": 2}], ids=str)
def test_without_a_seed_an_epoch_that_goes_on_draws_no_other_numbers(kind: str, options: dict[str, Any]) -> None:
    """The order may be known; what items draw is not, and another draw than in the whole epoch would not be seen."""
    loader = KINDS[kind](**options)
    loader.set_epoch(2, 1)
    state = alpha.get_rng_state()
    with pytest.raises(DataError, match=r"has no seed; give seed= to the loader, or set its epoch_seed"):
        taken(loader)
    assert alpha.get_rng_state() == state


@pytest.mark.parametrize("sampler", [None, list(range(COUNT)), RandomSampler(range(COUNT), seed=4)], ids=str)
def test_the_program_draws_the_same_after_an_epoch_that_goes_on(sampler: Any) -> None:
    """The epoch took its draw of the program when it began, so none is taken when it goes on."""

    def trained(loader: DataLoader, first: int = 0) -> list[tuple[list[int], float]]:
        loader.set_epoch(0, first)
        return [(batch.tolist(), alpha.rand(1).item()) for _ in range(2) for batch in loader]

    alpha.manual_seed(8)
    whole = trained(DataLoader(np.arange(COUNT), 4, sampler=sampler))
    alpha.manual_seed(8)
    loader = DataLoader(np.arange(COUNT), 4, sampler=sampler)
    loader.set_epoch(0)
    batches = iter(loader)
    begun = [(next(batches).tolist(), alpha.rand(1).item()) for _ in range(2)]
    del batches
    assert begun + trained(DataLoader(np.arange(COUNT), 4, sampler=sampler), 2) == whole


def test_a_seed_that_an_item_sets_is_enough_in_an_epoch_that_goes_on() -> None:
    class Seeded(Items):
        def __getitem__(self, index: int) -> Any:
            alpha.manual_seed(index)
            return super().__getitem__(index)

    whole = taken(DataLoader(Seeded(), 4))
    loader = DataLoader(Seeded(), 4)
    loader.set_epoch(0, 1)
    assert taken(loader) == whole[1:]


def test_splits_and_samplers_without_a_seed() -> None:
    makers: list[Any] = [
        lambda: [part.indices.tolist() for part in random_split(range(20), [12, 8])],
        lambda: list(RandomSampler(range(20))),
        lambda: list(RandomSampler(range(20), True)),
        lambda: list(SubsetRandomSampler(range(20))),
        lambda: list(WeightedRandomSampler(np.ones(20), 20)),
        lambda: list(WeightedRandomSampler(np.ones(20), 20, False)),
    ]
    for make in makers:
        found = []
        for seed in (1, 2, 1):
            alpha.manual_seed(seed)
            found.append([make() for _ in range(3)])
        assert found[2] == found[0]
        assert len(set(map(str, found[0] + found[1]))) == 6


def test_the_order_that_is_prepared_without_a_seed_is_taken_unless_something_was_drawn() -> None:
    for draws in (0, 1):
        alpha.manual_seed(4)
        loader = SHUFFLED["shuffled"]()
        state = alpha.get_rng_state()
        loader.prepare_epoch()
        assert alpha.get_rng_state() == state
        prepared = loader._prepared
        for _ in range(draws):
            alpha.rand(1)
        order, _ = loader.take_epoch()
        assert prepared is not None
        assert (order is prepared[1]) == (draws == 0)
        alpha.manual_seed(4)
        for _ in range(draws):
            alpha.rand(1)
        np.testing.assert_array_equal(SHUFFLED["shuffled"]().take_epoch()[0], order)


def test_an_order_that_is_taken_at_once_is_that_of_the_batches() -> None:
    for epoch in (0, 3):
        loader, taken_at_once = KINDS["an order"](seed=0), KINDS["an order"](prefetch=0, seed=0)
        loader.set_epoch(epoch)
        taken_at_once.set_epoch(epoch)
        alpha.rand(1)
        np.testing.assert_array_equal(np.concatenate(list(loader)), taken_at_once.take_epoch()[0])


def test_both_seeds_change_them() -> None:
    found = []
    for seed, own in ((1, 0), (2, 0), (1, 5), (2, 5)):
        alpha.manual_seed(seed)
        found.append(taken(KINDS["items"](seed=own))[0])
    assert len(set(found)) == 4


def test_a_seed_within_an_item_is_of_the_item_alone() -> None:
    class Seeded(Items):
        def __getitem__(self, index: int) -> Any:
            first = alpha.rand(1)
            alpha.manual_seed(5)
            state = alpha.get_rng_state()
            assert state == {"seed": 5, "stream": 0}
            second = alpha.rand(1)
            alpha.set_rng_state(state)
            assert alpha.rand(1).item() == second.item()
            return alpha.cat([first, second])

    for workers in (0, 3):
        state = alpha.get_rng_state()
        values = np.concatenate([batch.numpy() for batch in DataLoader(Seeded(), 4, num_workers=workers, seed=0)])
        assert len(set(values[:, 0])) == COUNT
        assert len(set(values[:, 1])) == 1
        assert alpha.get_rng_state() == state


@pytest.mark.parametrize("threads", [1, 4])
def test_the_threads_of_a_folder(tmp_path: Path, threads: int) -> None:
    (tmp_path / "a").mkdir()
    for index in range(COUNT):
        Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(tmp_path / "a" / f"{index}.png")

    def transform(image: Image.Image) -> np.ndarray:
        time.sleep(float(np.random.default_rng().random()) / 500)
        return np.asarray(image, np.float32) + alpha.rand(3).numpy()

    expected = taken(DataLoader(ImageFolder(tmp_path, transform=transform, workers=1), 4, seed=0))
    data = ImageFolder(tmp_path, transform=transform, workers=threads)
    assert taken(DataLoader(data, 4, num_workers=2, seed=0)) == expected
    alpha.manual_seed(1)
    first, second = data.batch(np.arange(COUNT))[0], data.batch(np.arange(COUNT))[0]
    assert len({image.tobytes() for image in (*first, *second)}) == 2 * COUNT
    alpha.manual_seed(1)
    np.testing.assert_array_equal(data.batch(np.arange(COUNT))[0], first)
