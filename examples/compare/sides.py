"""Training of one side: Alpha, PyTorch as its users get it, and PyTorch at its best."""

from __future__ import annotations

import time
from typing import Any

import alpha
from alpha.data import DataLoader
from alpha.train import Trainer
from compare.networks import network, twin
from compare.spec import Outcome, Spec, batches, load, process_bytes


def initial_model(spec: Spec, classes: int) -> Any:
    """Alpha's network with the weights that both sides begin with."""
    alpha.manual_seed(spec.seed)
    return network(spec.model, classes, spec.image_size)


def train_alpha(spec: Spec) -> Outcome:
    """Train with Alpha's Trainer."""
    train_set, test_set, data = load(spec.data, spec.image_size)
    device: Any = alpha.get_device(spec.device)
    model = initial_model(spec, len(train_set.classes))
    result = Outcome(data=data, version=alpha.__version__, images=len(train_set))
    result.weights = sum(value.nbytes for value in model.state_dict().values())
    model.to(device)
    optimizer = alpha.optim.Adam(model.parameters(), lr=spec.lr)
    trainer = Trainer(model, optimizer, device, precision=spec.precision)
    loader = DataLoader(train_set, spec.batch_size, shuffle=True, seed=spec.seed)
    for _ in range(spec.epochs):
        epoch = trainer.train_epoch(loader, spec.steps)
        result.seconds.append(epoch.seconds)
        result.losses.append(epoch.loss)
    result.gpu = device.properties.name if device.name == "cuda" else ""
    stats = device.memory_stats()
    result.live, result.reserved, result.process = stats.peak, stats.reserved, process_bytes(device.name == "cuda")
    if spec.steps is None:
        result.train_accuracy = trainer.evaluate(DataLoader(train_set, spec.batch_size)).accuracy
        result.test_accuracy = trainer.evaluate(DataLoader(test_set, spec.batch_size)).accuracy
    return result


def train_torch(spec: Spec) -> Outcome:
    """Train with PyTorch; "PyTorch best" is channels_last, compiled with CUDA graphs, and a fused Adam."""
    import torch

    from compare.twins import copy_weights

    train_set, test_set, data = load(spec.data, spec.image_size)
    source = initial_model(spec, len(train_set.classes))
    result = Outcome(data=data, version=torch.__version__, images=len(train_set))
    model: Any = copy_weights(source, twin(spec.model, len(train_set.classes), spec.image_size))
    result.weights = sum(value.numel() * value.element_size() for value in model.state_dict().values())
    gpu, best = spec.device == "cuda", spec.side == "PyTorch best"
    layout = torch.channels_last if best else torch.contiguous_format
    model = model.to(spec.device, memory_format=layout)
    torch.manual_seed(spec.seed)
    torch.backends.cudnn.benchmark = best
    tf32 = spec.precision != "float32"
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32
    optimizer = torch.optim.Adam(model.parameters(), lr=spec.lr, fused=True if best and gpu else None)
    run: Any = torch.compile(model, mode="reduce-overhead") if best and gpu else model
    images, labels = (torch.from_numpy(v).to(spec.device) for v in (train_set.images, train_set.labels.astype("int64")))
    tests, test_labels = (torch.from_numpy(v).to(spec.device) for v in (test_set.images, test_set.labels))

    def pixels(pool: Any, rows: Any) -> Any:
        return (pool[rows].float() * (2 / 255) - 1).permute(0, 3, 1, 2).contiguous(memory_format=layout)

    def step(rows: Any) -> Any:
        target = labels[rows]
        with torch.autocast(spec.device, torch.bfloat16, enabled=spec.precision == "bf16"):
            logits = run(pixels(images, rows))
            loss = torch.nn.functional.cross_entropy(logits, target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach() * len(rows)

    @torch.no_grad()
    def accuracy(pool: Any, truth: Any) -> float:
        model.eval()
        hits = 0
        for begin in range(0, len(pool), spec.batch_size):
            rows = torch.arange(begin, min(begin + spec.batch_size, len(pool)), device=spec.device)
            with torch.autocast(spec.device, torch.bfloat16, enabled=spec.precision == "bf16"):
                hits += int((model(pixels(pool, rows)).argmax(1) == truth[rows]).sum())
        return hits / len(pool)

    loader = DataLoader(train_set, spec.batch_size, shuffle=True, seed=spec.seed)
    model.train()
    for epoch in range(spec.epochs):
        while True:
            try:
                start, seen = time.perf_counter(), 0
                total: Any = torch.zeros((), device=spec.device)
                order, parts = batches(loader, epoch, spec.steps)
                there = torch.from_numpy(order).to(spec.device)
                for part in parts:
                    total = total + step(there[part])
                    seen += len(order[part])
                loss = float(total) / seen  # waits for the device
                break
            except Exception as error:
                if run is model:
                    raise
                result.note = f"torch.compile failed ({type(error).__name__}): eager"
                run = model
                optimizer.zero_grad()
        result.seconds.append(time.perf_counter() - start)
        result.losses.append(loss)
    if gpu:
        result.gpu = torch.cuda.get_device_name()
        result.live, result.reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    result.process = process_bytes(gpu)
    if spec.steps is None:
        result.train_accuracy = accuracy(images, labels)
        result.test_accuracy = accuracy(tests, test_labels)
    return result


def train(spec: Spec) -> Outcome:
    """Train the side that `spec` names."""
    return train_alpha(spec) if spec.side == "Alpha" else train_torch(spec)
