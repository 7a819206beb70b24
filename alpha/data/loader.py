"""Batches of a dataset, in a reproducible order."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from alpha.core import generators, rng
from alpha.data.batch_threads import Draws, made, prefetched, recipe_of
from alpha.data.checks import flag, indices_of, only_offered, seed_of, whole_number
from alpha.data.collate import collate
from alpha.data.dataset import Batches, Dataset, Items, IterableDataset, check_indexed, classes_of, in_threads
from alpha.data.processes.pool import Pool
from alpha.data.processes.worker import Job, Task
from alpha.data.samplers import BatchSampler, WeightedRandomSampler, chunks, may_draw, part_of, permutation, raw
from alpha.errors import DataError

HELD_BY = "held by"  # in what `describe` says


class Part(NamedTuple):
    """Part of each epoch that one of several processes takes; see `alpha.data.samplers.part_of`.

    Attributes:
        by_number: it is made of the items whose number is `rank` modulo `world_size`, of which alone the process has
            memory, in place of every world_size-th of the order.
        told: is called with the order that a sampler gives for an epoch, before it is divided.
    """

    rank: int
    world_size: int
    even: bool
    by_number: bool = False
    told: Callable[[NDArray[np.int64]], None] | None = None


class DataLoader:
    """Iterates over `dataset` in batches of numpy arrays, as images (B, H, W, C) uint8 and labels (B,) int32.

    Args:
        dataset: has a length and `batch(indices)`, or a length and an item by each index, `dataset[i]`, or is an
            `IterableDataset`. Items are stacked as `default_collate` says; those with Alpha's tensors give tensors.
        batch_size: items per batch; the last one is shorter unless `drop_last`. None gives the items as they are.
        shuffle: a new order every epoch.
        sampler: gives the indices of an epoch at each `iter()`, in place of `shuffle`.
        batch_sampler: gives the indices of each batch, in place of `batch_size`, `shuffle`, `sampler` and `drop_last`.
        num_workers: threads that make items, or whole batches, several at once; 0 makes one after another. They are
            threads of this process, so the dataset is not copied. An `IterableDataset` is read by one thread.
        multiprocessing_context: "spawn", or `multiprocessing.get_context("spawn")`, makes the workers processes of
            their own, each with a copy of the dataset. Each makes whole batches, by one thread. The batches are the
            same, whatever workers there are.
        collate_fn: makes a batch of a list of items; with batch_size=None, of one item.
        drop_last: leave out a last batch that is not full.
        seed: fixes the orders, with the number of the epoch. Without it each epoch takes a fresh draw of the program
            for its seed, so the orders follow from `alpha.manual_seed` and what was drawn since.
        generator: the seed, under PyTorch's name; of an `alpha.Generator` it is the next draw.
        prefetch_factor: batches that are kept ready for each worker, in place of `prefetch`.
            Of worker processes it is 2 unless it is given.
        prefetch: batches a background thread keeps ready; 0 makes them when asked for. It is nothing to processes.
        timeout: seconds after which it is an error if worker processes have made no batch; 0 waits for ever.
        worker_init_fn: is called in each worker process with its number, when it has the dataset.
        persistent_workers: keep worker processes for the next epoch, with the dataset as it was when they began.
            Otherwise they end with the epoch, or when it is given up.
        pin_memory, pin_memory_device: change nothing; a `Trainer` copies through page-locked memory by itself.
        in_order: not offered; only True.

    Each `iter()` is one epoch; `set_epoch` picks the next one's number and place, to resume a run. Alpha's random
    numbers within the dataset, the sampler and `collate_fn` follow from `alpha.manual_seed`, `seed` and the epoch,
    whatever threads there are; the program's own draws go on as if these had drawn nothing.

    Attributes:
        seed: of all epochs, or None.
        part: what a `Trainer` takes here as one of several processes, a `Part` of the order; None for the whole.
        epoch_seed: of the next epoch, if the loader has no seed; None draws one when the epoch begins. A run that goes
            on within an epoch sets it.

    Raises DataError if an argument means nothing. With worker processes `iter()` and its batches raise it, too: if the
    dataset cannot be pickled, or a process has ended. An exception in a worker is raised here; its cause is the
    traceback there.

    Examples:
        >>> import alpha
        >>> from alpha.data import DataLoader, TensorDataset
        >>> data = TensorDataset(alpha.arange(6).float(), alpha.arange(6))
        >>> for x, y in DataLoader(data, batch_size=4):
        ...     print(x.shape, y.tolist())
        ...
        (4,) [0, 1, 2, 3]
        (2,) [4, 5]
    """

    # what they hold, a user may change between two epochs
    dataset: Any
    batch_size: Any  # an int, or None: items as they are, or `batch_sampler`
    sampler: Any
    batch_sampler: Any

    def __init__(
        self,
        dataset: Batches | Items | Dataset[Any],
        batch_size: int | None = 1,
        shuffle: bool | None = False,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: generators.Generator | int | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        seed: int | None = None,
        prefetch: int = 2,
    ) -> None:
        self.dataset = dataset
        self.batch_size = None if batch_size is None else whole_number("DataLoader", "batch_size", batch_size, 1)
        self.shuffle = flag("DataLoader", "shuffle", False if shuffle is None else shuffle)
        self.sampler, self.batch_sampler = sampler, batch_sampler
        self.num_workers = whole_number("DataLoader", "num_workers", num_workers, 0)
        self.collate_fn = collate_fn
        self.drop_last = flag("DataLoader", "drop_last", drop_last)
        self.seed = seed_of("DataLoader", seed, generator)
        self.prefetch = whole_number("DataLoader", "prefetch", prefetch, 0)
        if prefetch_factor is not None:
            if not self.num_workers:
                raise DataError(
                    f"DataLoader: prefetch_factor={prefetch_factor} needs num_workers above 0; see prefetch="
                )
            self.prefetch = whole_number("DataLoader", "prefetch_factor", prefetch_factor, 1) * self.num_workers
        flag("DataLoader", "pin_memory", pin_memory)
        only_offered("DataLoader", in_order=(in_order, True))
        self.persistent_workers = flag("DataLoader", "persistent_workers", persistent_workers)
        self.timeout, self.worker_init_fn = timeout, worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self._depth = prefetch_factor or 2  # batches of each worker process
        self._pool: Pool | None = None  # that waits for the next epoch
        self._check_dataset()
        self._check_processes()
        self._check_samplers()
        self._epoch = 0
        self._first = 0
        self.epoch_seed: int | None = None
        self.part: Part | None = None
        self._prepared: tuple[tuple[int, ...], NDArray[np.int64]] | None = None  # what an order depends on, the order

    def _check_dataset(self) -> None:
        if isinstance(self.dataset, IterableDataset):
            given = [name for name in ("sampler", "batch_sampler") if getattr(self, name) is not None]
            given += ["shuffle"] if self.shuffle else []
            if given:
                raise DataError(
                    f"DataLoader: {given[0]} is for datasets with indices; an IterableDataset has its own order"
                )
            return
        check_indexed("DataLoader", self.dataset, self.collate_fn is not None or self.batch_size is None)

    def _check_processes(self) -> None:
        context, timeout = self.multiprocessing_context, self.timeout
        if not isinstance(timeout, (int, float)) or isinstance(timeout, bool) or not 0 <= timeout < float("inf"):
            raise DataError(f"DataLoader: timeout is {timeout!r}, expected seconds, 0 or more")
        if context is None:
            for name, value in (("timeout", timeout or None), ("worker_init_fn", self.worker_init_fn)):
                if value is not None:
                    raise DataError(
                        f"DataLoader: {name}={value!r} is for worker processes; give multiprocessing_context='spawn'"
                    )
            return
        method = context.get_start_method() if hasattr(context, "get_start_method") else context
        if method != "spawn":
            raise DataError(
                f"DataLoader: multiprocessing_context={method!r} is not offered; only 'spawn', or None for threads: "
                "CUDA and threads do not survive a fork"
            )
        if not self.num_workers:
            raise DataError("DataLoader: multiprocessing_context='spawn' needs num_workers above 0")
        if isinstance(self.dataset, IterableDataset):
            raise DataError(
                "DataLoader: an IterableDataset is read in one order, so worker processes cannot share it; use a "
                "thread: leave multiprocessing_context out"
            )
        if self.worker_init_fn is not None and not callable(self.worker_init_fn):
            raise DataError(f"DataLoader: worker_init_fn is {self.worker_init_fn!r}, expected a function of a number")

    def _check_samplers(self) -> None:
        for name in ("sampler", "batch_sampler"):
            if getattr(self, name) is not None and not hasattr(getattr(self, name), "__iter__"):
                raise DataError(f"DataLoader: {name} is a {type(getattr(self, name)).__name__}, which has no __iter__")
        if self.sampler is not None and self.shuffle:
            raise DataError("DataLoader: sampler and shuffle=True are both given; a sampler has its own order")
        if type(self.sampler) is WeightedRandomSampler and len(self.sampler.weights) != len(self.dataset):
            raise DataError(
                f"DataLoader: the sampler has {len(self.sampler.weights)} weights for {len(self.dataset)} items; it "
                "needs one for each item: of weights of classes, weights[labels]"
            )
        if self.batch_sampler is not None:
            if self.batch_size not in (1, None) or self.shuffle or self.sampler is not None or self.drop_last:
                raise DataError(
                    "DataLoader: batch_sampler takes the place of batch_size, shuffle, sampler and drop_last"
                )
            self.batch_size = None
        elif self.batch_size is None and self.drop_last:
            raise DataError("DataLoader: drop_last has no meaning with batch_size=None")

    @property
    def _order_is_own(self) -> bool:
        return self._given_sampler is None

    @property
    def _given_sampler(self) -> Any:
        """Source of the indices in place of the loader itself, or None; an empty one counts, too."""
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    @property
    def all_samples(self) -> int:
        """Items per epoch of all processes, before `drop_last`. Raises TypeError if the sampler has no length."""
        return len(self.dataset if self.sampler is None else self.sampler)

    @property
    def samples(self) -> int:
        """Items per epoch, before `drop_last`. Raises TypeError if the sampler has no length."""
        count = self._shared(self.all_samples)
        if self.part is None or not count:
            return count
        rank, size, even, *_ = self.part
        return -(-count // size) if even else len(range(rank, count, size))

    def _shared(self, count: int) -> int:
        """Number of items that are shared out, of so many: without a last batch of all processes that is not full."""
        if self.part is None or not self.part.even or not self.drop_last:
            return count
        return count - count % (self.part.world_size * (self.batch_size or 1))

    def __repr__(self) -> str:
        name, parts = type(self.dataset).__name__, []
        if isinstance(self.dataset, IterableDataset):
            parts.append(f"{name}, batches of {self.batch_size}")
        else:
            parts += [
                f"{name} of {len(self.dataset):,} items",
                f"{len(self):,} batches of {self.batch_size or 'items'}",
            ]
        if not self._order_is_own:
            parts.append(type(self._given_sampler).__name__)
        parts += ["shuffled"] if self.shuffle else []
        parts += [f"seed {self.seed}"] if self.seed is not None else []
        parts += [f"{self.num_workers} workers"] if self.num_workers else []
        return f"DataLoader({', '.join(parts)})"

    def __len__(self) -> int:
        """Batches per epoch. Raises TypeError if what gives the items has no length."""
        if self.batch_sampler is not None:
            return len(self.batch_sampler)
        full, rest = divmod(self.samples, 1 if self.batch_size is None else self.batch_size)
        return full if self.drop_last or not rest else full + 1

    @property
    def next_epoch(self) -> tuple[int, int]:
        """The number of the next `iter()` and the batch with which it begins, as `set_epoch` takes them."""
        return self._epoch, self._first

    def set_epoch(self, epoch: int, batch: int = 0) -> None:
        """Gives the next `iter()` this number (the first is 0), and lets it begin with that batch.

        A sampler that has `set_epoch` is told the number.
        """
        epoch, batch = (
            whole_number("DataLoader", name, value, 0) for name, value in (("epoch", epoch), ("batch", batch))
        )
        self._epoch, self._first = epoch, batch
        sampler = self._given_sampler
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)

    def describe(self) -> dict[str, Any]:
        """Facts on which the batches of every epoch depend, apart from the items themselves."""
        about: dict[str, Any] = {
            "images": len(self.dataset),
            "batch_size": int(self.batch_size or 0) * (1 if self.part is None else self.part.world_size),
            "shuffle": bool(self.shuffle),
            "seed": None if self.seed is None else int(self.seed),
            "drop_last": bool(self.drop_last),
        }
        if names := classes_of(self.dataset):
            about["classes"] = list(names)
        if self.part is not None and self.part.by_number:
            about[HELD_BY] = f"{self.part.world_size} processes in shares"  # then orders depend on their number
        if self.sampler is not None:
            name, seed = type(self.sampler).__name__, getattr(self.sampler, "seed", 0)
            seed = None if seed is None else int(seed)
            about |= {"sampler": name, "samples": self.all_samples, "sampler_seed": seed}
        return about

    def __iter__(self) -> Generator[Any, None, None]:
        if self.multiprocessing_context is not None and self.num_workers:
            single, draws, batches = self._begin_epoch()
            return self._by_processes(single, draws, batches)
        threads = in_threads(self.dataset)
        return prefetched(self._by_threads(self.num_workers if threads else 0), self.prefetch if threads else 0)

    def _by_threads(self, workers: int) -> Iterator[Any]:
        """The batches of the next epoch, which counts as begun."""
        if isinstance(self.dataset, IterableDataset):
            self._draw_seed()
            single, draws, first = self.batch_size is None, self._draws(), self._count_epoch()
            begin = first * (self.batch_size or 1)
            return draws.steadily(lambda: self._read(islice(iter(self.dataset), begin, None), single))
        single, draws, batches = self._begin_epoch()
        return made(recipe_of(self.dataset, self.collate_fn, single), batches, workers, draws)

    def _by_processes(self, single: bool, draws: Draws, batches: Iterable[Any]) -> Generator[Any, None, None]:
        """Batches that worker processes make, which begin with the first batch."""
        tasks = (Task(number, indices, single, draws.numbers) for number, indices in enumerate(batches, draws.first))
        job = Job(self.dataset, self.collate_fn, self.worker_init_fn)
        kept, self._pool = self._pool, None
        pool = kept if kept is not None and self._fits(kept, job) else None
        try:
            if pool is None:
                if kept is not None:
                    kept.close()
                pool = Pool(job, self.num_workers, self._depth, rng.Substream(*draws.numbers).key >> 1)
            yield from pool.batches(tasks, lambda: self.timeout)
        finally:
            if pool is not None:
                if self.persistent_workers and pool.idle and self._pool is None:
                    self._pool = pool
                else:
                    pool.close()

    def _fits(self, pool: Pool, job: Job) -> bool:
        """True if the processes that were kept are those which this epoch needs."""
        same = all(held is wanted for held, wanted in zip(pool.job, job, strict=True))
        return same and pool.idle and pool.count == self.num_workers

    def _begin_epoch(self) -> tuple[bool, Draws, Iterable[Any]]:
        """The next epoch, which counts as begun: if its batches are single items, its random numbers, its indices."""
        self._draw_seed()
        single, draws = self.batch_size is None and self.batch_sampler is None, self._draws()
        if self._order_is_own or (self.part is not None and self.batch_sampler is None):
            order, first = self.take_epoch()
            size, stop = self.batch_size or 1, len(self)
            starts = range(first * size, stop * size, size)
            return single, draws, (order[first:] if single else (order[i : i + size] for i in starts))
        source = self.batch_sampler
        if source is None:
            source = self.sampler if single else BatchSampler(self.sampler, self.batch_size, self.drop_last)
        return single, draws, islice(draws.steadily(lambda: source), self._count_epoch(), None)

    def _draw_seed(self) -> None:
        """Fix the seed of the epoch that begins now."""
        if self.seed is not None or self.epoch_seed is not None:
            return
        if not self._first:
            self.epoch_seed = rng.fresh_seed()
        elif self._order_is_drawn:  # perhaps another one than that with which the epoch began
            raise DataError(
                f"DataLoader: epoch {self._epoch} is to begin with batch {self._first}, but the order of its first "
                "batches is not known, since the loader has no seed; give seed= to the loader, or set its epoch_seed"
            )

    @property
    def _order_is_drawn(self) -> bool:
        """True if the order follows from the seed of the epoch, or may do so."""
        return self.shuffle if self._order_is_own else may_draw(self._given_sampler)

    def _seed(self) -> int:
        """The seed of the next epoch, if nothing else is drawn before it begins."""
        if self.seed is not None:
            return int(self.seed)
        return rng.coming_seed() if self.epoch_seed is None else int(self.epoch_seed)

    def _draws(self, shared: bool = False) -> Draws:
        """Source of the random numbers of the next epoch, of this process, or `shared` with all that train together."""
        rank = getattr(self.sampler, "rank", 0) if self.part is None else self.part.rank
        own = (int(rank),) if rank and not shared else ()
        lost = self._first and self.seed is None and self.epoch_seed is None
        return Draws((rng.default.key, None if lost else self._seed(), int(self._epoch), *own), int(self._first))

    def _read(self, items: Iterable[Any], single: bool) -> Iterator[Any]:
        """Batches of items that come by themselves."""
        if single:
            yield from items if self.collate_fn is None else map(self.collate_fn, items)
            return
        begin = 0
        for chunk in chunks(items, self.batch_size, self.drop_last):
            yield (
                collate(chunk, range(begin, begin + len(chunk))) if self.collate_fn is None else self.collate_fn(chunk)
            )
            begin += len(chunk)

    def _count_epoch(self) -> int:
        """The first batch of the epoch that begins now."""
        first = self._first
        self._epoch, self._first, self._prepared, self.epoch_seed = self._epoch + 1, 0, None, None
        return first

    def take_epoch(self) -> tuple[NDArray[np.int64], int]:
        """(the order of the images in the next epoch, its first batch), for whoever makes the batches by himself.

        The epoch counts as begun, as by `iter()`.
        """
        self._draw_seed()
        if self._order_is_own:
            self.prepare_epoch()
            assert self._prepared is not None
            order = self._prepared[1]
        else:
            order = indices_of("DataLoader", self._draws(shared=True).steadily(lambda: self.sampler))
        if self.part is not None:
            rank, size, even, by_number, told = self.part
            if told is not None:
                told(order)
            if by_number:
                order = np.resize(order[order % size == rank], self.samples)
            else:
                order = part_of(order[: self._shared(len(order))], rank, size, even)
        return order, self._count_epoch()

    def prepare_epoch(self) -> None:
        """Draw the order of the next epoch now, for instance while a device still works on the last one.

        A sampler is asked when its epoch begins.
        """
        if not self._order_is_own:
            return
        key = self._epoch, self._seed() if self.shuffle else 0, int(self.shuffle), len(self.dataset)
        if self._prepared is None or self._prepared[0] != key:
            self._prepared = key, self._order(self._epoch)

    def batch(self, indices: NDArray[np.int64]) -> Any:
        """The samples of `indices` (B,), which the dataset hands out or whose items are stacked.

        What it draws is what the first batch of the next epoch will draw.
        """
        return next(made(recipe_of(self.dataset, self.collate_fn, single=False), [indices], 0, self._draws()))

    def _order(self, epoch: int) -> NDArray[np.int64]:
        count = len(self.dataset)
        return permutation(raw(self._seed(), epoch, count)) if self.shuffle else np.arange(count, dtype=np.int64)
