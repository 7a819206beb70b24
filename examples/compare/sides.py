"""Training of one side: Alpha, PyTorch as its users get it, and PyTorch at its best."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from typing import Any

import numpy as np

import alpha
from alpha.data import DataLoader
from alpha.data.dataset import classes_of
from alpha.data.loader import Part
from alpha.distributed.membership.environment import choose_gpu, place_of
from alpha.train import Callback, Trainer
from alpha.train.commands.command_line import join_ranks
from compare.networks import network, twin
from compare.ranks import data_parallel, gather_alpha, gather_torch, join_torch, leave_torch, of_all_ranks, take_buffers
from compare.spec import LOSS_STEPS, Outcome, Spec, batches, fits, load, process_bytes

SEEDS = 1_000_003  # from a rank's seed of PyTorch's dropout to the next rank's, which draws other numbers


def initial_model(spec: Spec, classes: int) -> Any:
    """Alpha's network with the weights that both sides begin with."""
    alpha.manual_seed(spec.seed)
    return network(spec.model, classes, spec.image_size)


def train_alpha(spec: Spec) -> Outcome:
    """Train with Alpha's Trainer."""
    train_set, test_set, data = load(spec.data, spec.image_size)
    result = Outcome(data=data, version=alpha.__version__, images=len(train_set), batch_size=spec.batch_size)
    result.busy, result.ranks = spec.busy, spec.ranks
    device: Any = alpha.get_device(spec.device)
    if device.name == "cuda":
        result.streamed = spec.stream or not fits(train_set, device.driver.memory_info()[0])
    model = initial_model(spec, len(classes_of(train_set)))
    result.weights = sum(value.nbytes for value in model.state_dict().values())
    model.to(device)
    optimizer = alpha.optim.Adam(model.parameters(), lr=spec.lr)
    chosen: Any = {"precision": spec.precision, "memory_mode": spec.memory_mode}
    trainer = Trainer(model, optimizer, device, resident=not result.streamed, **chosen)
    loader = DataLoader(train_set, spec.batch_size, shuffle=True, seed=spec.seed)
    points = Points()
    rows = trainer.fit(loader, epochs=spec.epochs, steps=spec.steps, callbacks=[points], show=None)
    result.seconds, result.losses = [row.seconds for row in rows], [row.train_loss for row in rows]
    result.points = points.found
    result.gpu = device.properties.name if device.name == "cuda" else ""
    stats = device.memory_stats()
    result.live, result.reserved = stats.peak, stats.reserved
    result.process = process_bytes(device.name == "cuda", own_gpu(spec))
    if spec.steps is None:
        result.train_accuracy = trainer.evaluate(DataLoader(train_set, spec.batch_size)).accuracy or 0.0
        result.test_accuracy = trainer.evaluate(DataLoader(test_set, spec.batch_size)).accuracy or 0.0
    return result


class Points(Callback):
    """Keeps the points of the loss curve: (steps of the run, mean loss of about ten steps)."""

    def __init__(self) -> None:
        self.found: list[tuple[int, float]] = []
        self._before = 0

    def on_steps(self, fit: Any, step: int, loss: float) -> None:
        self.found.append((self._before + step, loss))

    def on_epoch(self, fit: Any) -> None:
        self._before += fit.trainer.step


def train_torch(spec: Spec) -> Outcome:
    """Train with PyTorch; "PyTorch best" is channels_last, compiled with CUDA graphs, and a fused Adam.

    Each of several ranks takes the images that Alpha's Trainer gives it.
    """
    import torch

    from compare.twins import copy_weights

    train_set, test_set, data = load(spec.data, spec.image_size)
    result = Outcome(data=data, version=torch.__version__, images=len(train_set), batch_size=spec.batch_size)
    result.busy, result.ranks = spec.busy, spec.ranks
    rank = place_of().rank if spec.ranks > 1 else 0
    classes = len(classes_of(train_set))
    model: Any = copy_weights(initial_model(spec, classes), twin(spec.model, classes, spec.image_size))
    result.weights = sum(value.numel() * value.element_size() for value in model.state_dict().values())
    gpu, best = spec.device == "cuda", spec.side == "PyTorch best"
    layout = torch.channels_last if best else torch.contiguous_format
    model = model.to(spec.device, memory_format=layout)
    torch.manual_seed(spec.seed + SEEDS * rank)
    torch.backends.cudnn.benchmark = best
    tf32 = spec.precision != "float32"
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32
    optimizer = torch.optim.Adam(model.parameters(), lr=spec.lr, fused=True if best and gpu else None)
    eager: Any = data_parallel(model, best) if spec.ranks > 1 else model
    run: Any = torch.compile(eager, mode="reduce-overhead") if best and gpu else eager
    there = torch.device(spec.device)
    result.streamed = streamed = spec.stream or (gpu and not fits(train_set, torch.cuda.mem_get_info()[0]))

    def prepared(images: Any, labels: Any) -> tuple[Any, Any]:
        pixels = images.float() * (2 / 255) - 1
        return pixels.permute(0, 3, 1, 2).contiguous(memory_format=layout), labels.long()

    def step(images: Any, labels: Any) -> Any:
        inputs, target = prepared(images, labels)
        with torch.autocast(spec.device, torch.bfloat16, enabled=spec.precision == "bf16"):
            loss = torch.nn.functional.cross_entropy(run(inputs), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach() * len(labels)

    @torch.no_grad()
    def accuracy(dataset: Any) -> float:
        model.eval()
        hits = 0
        for images, labels in torch_batches(shared(DataLoader(dataset, spec.batch_size), False), there, 0, None, None):
            inputs, target = prepared(images, labels)
            with torch.autocast(spec.device, torch.bfloat16, enabled=spec.precision == "bf16"):
                hits += int((model(inputs).argmax(1) == target).sum())
        return (hits if spec.ranks == 1 else sum(map(sum, gather_torch([hits])))) / len(dataset)

    def shared(loader: DataLoader, training: bool) -> DataLoader:
        loader.part = Part(rank, spec.ranks, training) if spec.ranks > 1 else None
        return loader

    loader = shared(DataLoader(train_set, spec.batch_size, shuffle=True, seed=spec.seed), True)
    pool = None if streamed else [torch.from_numpy(values).to(there) for values in whole(train_set)]
    model.train()
    for epoch in range(spec.epochs):
        while True:
            try:
                start, seen, points = time.perf_counter(), 0, []
                total = part = torch.zeros((), device=there)
                counts: list[int] = []
                for images, labels in torch_batches(loader, there, epoch, spec.steps, pool):
                    loss = step(images, labels)
                    total, part = total + loss, part + loss
                    counts.append(len(labels))
                    if len(counts) % LOSS_STEPS == 0:
                        points.append((len(counts), sum(counts[-LOSS_STEPS:]), part))
                        part = torch.zeros((), device=there)
                if rest := len(counts) % LOSS_STEPS:
                    points.append((len(counts), sum(counts[-rest:]), part))
                seen = sum(counts)
                mean = float(total) / seen  # waits for the device
                break
            except Exception as error:
                if run is eager:
                    raise
                result.note = f"torch.compile failed ({type(error).__name__}): eager"
                run = eager
                optimizer.zero_grad()
        result.seconds.append(time.perf_counter() - start)
        result.losses.append(mean)
        before = epoch * len(counts)
        result.points += [(before + steps, float(value) / images) for steps, images, value in points]
    if gpu:
        result.gpu = torch.cuda.get_device_name()
        result.live, result.reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    result.process = process_bytes(gpu, own_gpu(spec))
    if spec.steps is None:
        if spec.ranks > 1:
            take_buffers(model)
        result.train_accuracy = accuracy(train_set)
        result.test_accuracy = accuracy(test_set)
    return result


def whole(dataset: Any) -> tuple[Any, Any]:
    """All images and labels of a set, as arrays that PyTorch may take."""
    images, labels = dataset.batch(np.arange(len(dataset)))
    return np.ascontiguousarray(images), labels.astype("int64")


def torch_batches(loader: DataLoader, device: Any, epoch: int, steps: int | None, pool: Any) -> Iterator[Any]:
    """The batches of an epoch on PyTorch's device, in the order of Alpha's loader.

    They are taken from `pool`, images and labels on the device, or else copied from page-locked memory, one while the
    step before runs; threads of the loader read them ahead.
    """
    import torch

    if pool is not None:
        order, parts = batches(loader, epoch, steps)
        there = torch.from_numpy(order).to(device)
        for part in parts:
            yield tuple(values[there[part]] for values in pool)
        return
    loader.set_epoch(epoch)
    copies = torch.cuda.Stream() if device.type == "cuda" else None

    def copied(batch: Any) -> Any:
        tensors = [torch.from_numpy(np.ascontiguousarray(values)) for values in batch]
        if copies is None:
            return tensors
        with torch.cuda.stream(copies):
            return [values.pin_memory().to(device, non_blocking=True) for values in tensors]

    waiting = None
    with closing(iter(loader)) as read:
        for batch in islice(read, steps):
            following = copied(batch)
            if waiting is not None:
                yield waiting
            if copies is not None:
                torch.cuda.current_stream().wait_stream(copies)
                for values in following:
                    values.record_stream(torch.cuda.current_stream())
            waiting = following
        if waiting is not None:
            yield waiting


def own_gpu(spec: Spec) -> str:
    """The GPU of this process as CUDA_VISIBLE_DEVICES names it, if it is one of several ranks on GPUs; else ""."""
    return choose_gpu(place_of()) if spec.ranks > 1 and spec.device == "cuda" else ""


def train(spec: Spec) -> Outcome:
    """Train the side that `spec` names, here or as one of several ranks, which all return the outcome of all."""
    if spec.ranks == 1:
        return train_alpha(spec) if spec.side == "Alpha" else train_torch(spec)
    if spec.side == "Alpha":
        join_ranks(spec.device)
        return of_all_ranks(train_alpha(spec), gather_alpha)
    join_torch(spec.device, spec.meeting)
    result = of_all_ranks(train_torch(spec), gather_torch)
    leave_torch()
    return result
