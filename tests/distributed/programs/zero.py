"""Steps of ZeroRedundancyOptimizer beside those of one process; states, refusals, gradients of several passes."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import ref

import numpy as np
from ranks import joined, tell

import alpha
from alpha import distributed as dist
from alpha import nn
from alpha.autograd import shares
from alpha.distributed import data_parallel, optim
from alpha.distributed.optim import ZeroRedundancyOptimizer
from alpha.distributed.process_group import joined_engine
from alpha.nn import functional as F

BATCH, STEPS = 4, 6

device = joined()
rank, world = dist.rank(), dist.world_size()
dtype = "float64" if device == "cpu" else "float32"
data_parallel.PACKED = optim.PACKED = 1000  # bytes, so that some parameters are packed and some are not

CASES: dict[str, tuple[Any, dict[str, Any], Any]] = {  # class, arguments, and p and the limit of the norm
    "Adam": (alpha.optim.Adam, {"lr": 1e-2}, None),
    "SGD": (alpha.optim.SGD, {"lr": 0.1, "momentum": 0.9}, (2.0, 0.3)),
    "NAdam": (alpha.optim.NAdam, {"lr": 1e-2}, (math.inf, 0.05)),
}


def network() -> Any:
    alpha.manual_seed(0)
    layers = [nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(96, 6), nn.Tanh()]
    layers += [nn.Linear(6, 96), nn.Tanh(), nn.Linear(96, 6), nn.Tanh(), nn.Linear(6, 4)]
    return nn.Sequential(*layers).to(dtype).to(device)


def batches(steps: int) -> list[Any]:
    rng = np.random.default_rng(5)
    return [
        (rng.standard_normal((BATCH * world, 4, 4, 3)).astype(dtype), rng.integers(0, 4, BATCH * world))
        for _ in range(steps)
    ]


def tensors(x: Any, y: Any, part: bool) -> Any:
    if part:
        x, y = (values[rank * BATCH : (rank + 1) * BATCH] for values in (x, y))
    return alpha.tensor(x, device=device), alpha.tensor(y.astype(np.int32), device=device)


def weights(model: Any) -> list[Any]:
    return [parameter.numpy().copy() for parameter in model.parameters()]


def difference(one: list[Any], other: list[Any]) -> float:
    return max(float(np.abs(a - b).max()) for a, b in zip(one, other, strict=True))


def state_difference(one: Any, other: Any) -> float:
    """The largest difference of the states of optimizers of one form; inf if they have other forms."""

    def form(state: Any) -> Any:
        slots = {
            i: {k: (type(v), np.shape(v), np.asarray(v).dtype) for k, v in s.items()} for i, s in state["state"].items()
        }
        return state["optimizer"], list(slots), slots, state["param_groups"]

    if form(one) != form(other):
        return math.inf
    pairs = [(v, other["state"][i][k]) for i, s in one["state"].items() for k, v in s.items()]
    return max(float(np.abs(np.asarray(a, float) - np.asarray(b, float)).max()) for a, b in pairs)


def groups_of(model: Any) -> list[Any]:
    first, *rest = model.parameters()
    return [{"params": [first], "lr": 3e-2}, {"params": rest}]


def trained(name: str, share: bool, captured: bool = False, **options: Any) -> tuple[Any, Any, list[float], Any]:
    """Model, optimizer, norms and a function that makes more steps, after some steps."""
    kind, arguments, limit = CASES[name]
    model = network()
    if name == "SGD":  # before and after the optimizer
        parallel = alpha.DataParallel(model, bucket_cap_mb=1e-3, **options) if share else model
    optimizer = (
        ZeroRedundancyOptimizer(groups_of(model), kind, **arguments) if share else kind(groups_of(model), **arguments)
    )
    if name != "SGD":
        parallel = alpha.DataParallel(model, bucket_cap_mb=1e-3, **options) if share else model
    schedule = alpha.optim.StepLR(optimizer, 2)
    half = (BATCH if share else BATCH * world) // 2
    parts = (slice(None, half), slice(half, None)) if name == "NAdam" else (slice(None),)  # each of which is reduced

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        for part in parts:
            F.cross_entropy(parallel(x[part]), y[part]).backward()
        norm = (0 * x).sum()
        if limit is not None:
            norm = nn.utils.clip_grad_norm_(parallel.parameters(), limit[1], norm_type=limit[0])
        optimizer.step()
        return norm

    function = alpha.capture(strict=True)(step) if captured else step
    norms: list[float] = []

    def steps(count: int) -> None:
        for x, y in batches(count):
            norms.append(function(*tensors(x, y, share)).item())
            schedule.step()

    steps(STEPS)
    if captured and device == "cuda":
        assert len(function.graphs) == 1, (name, function.describe())
    return model, optimizer, norms, steps


def beside_one_process(name: str) -> dict[str, Any]:
    alone, plain, wanted, _ = trained(name, False)
    model, optimizer, norms, steps = trained(name, True)
    found: dict[str, Any] = {
        "weights": difference(weights(alone), weights(model)),
        "norms": float(np.abs(np.subtract(wanted, norms)).max()),
        "held": sum(v.nbytes for slots in optimizer.state.values() for v in slots.values() if hasattr(v, "nbytes")),
        "all": sum(v.nbytes for slots in plain.state.values() for v in slots.values() if hasattr(v, "nbytes")),
    }
    optimizer.consolidate_state_dict(to=1)
    if rank == 1:
        state = optimizer.state_dict()
        found["state"] = state_difference(state, plain.state_dict())
        other = CASES[name][0](groups_of(alone))
        other.load_state_dict(state)  # without sharing
        found["loaded"] = state_difference(state, other.state_dict())
    else:
        found["refused"] = refused(optimizer.state_dict)
    optimizer.consolidate_state_dict(to=None)
    state = optimizer.state_dict()
    copied, twin = copy.deepcopy((model, optimizer))  # whose states are its own
    again = ZeroRedundancyOptimizer(groups_of(model), CASES[name][0], lr=1.0)
    again.load_state_dict(state)
    found["shares"] = len(again.state) == len(optimizer.state) == len(twin.state)
    again.consolidate_state_dict(to=None)
    found["reloaded"] = state_difference(state, again.state_dict())
    found["replaced"] = refused(lambda: steps(1))
    found["copied"] = difference(weights(model), weights(copied))
    return found


def equal_runs(name: str, **options: Any) -> bool:
    """True if runs, on emulated GPUs one of them captured, agree bit for bit."""
    runs = []
    for captured in (False, device == "cuda"):
        model, _, norms, _ = trained(name, True, captured, **options)
        runs.append((norms, [values.tolist() for values in weights(model)]))
    return runs[0] == runs[1]


def mixed(captured: bool) -> list[Any]:
    """Weights after steps, each of two passes of a rank alone and of one that is reduced, in functions of their own."""
    model = network()
    optimizer = ZeroRedundancyOptimizer(model.parameters(), alpha.optim.Adam, lr=1e-2)
    parallel = alpha.DataParallel(model)

    def add(x: Any, y: Any) -> None:
        with parallel.no_sync():
            F.cross_entropy(parallel(x), y).backward()

    def step(x: Any, y: Any) -> None:
        F.cross_entropy(parallel(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    functions = [alpha.capture(strict=True)(function) if captured else function for function in (add, add, step)]
    for number, batch in enumerate(batches(21)):
        functions[number % 3](*tensors(*batch, True))
    return [values.tolist() for values in weights(model)]


def passes(number: int, share: bool) -> list[Any]:
    """Weights after a step with gradients of several passes, in some of the ways in which they may come together."""
    model = network()
    optimizer: Any = alpha.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    parallel = model
    if share:
        parallel = alpha.DataParallel(model)
        optimizer = ZeroRedundancyOptimizer(model.parameters(), alpha.optim.SGD, lr=0.1, momentum=0.9)
        if number == 3:
            parallel.skip_unused()

    def backward(batch: Any, layers: int | None = None) -> None:
        x, y = tensors(*batch, share)
        output = parallel(x) if layers is None else model[layers:](model[:layers](x).detach())
        F.cross_entropy(output, y).backward()

    def alone(batch: Any) -> None:
        if not share:
            backward(batch)
            return
        with parallel.no_sync():
            backward(batch)

    first, second, third = batches(3)
    if number == 0:  # the first ones under no_sync
        alone(first)
        alone(second)
        backward(third)
    elif number == 1:  # each reduced
        backward(first)
        backward(second)
        backward(third)
    elif number == 2:  # reduced, then not, then reduced
        backward(first)
        alone(second)
        backward(third)
    elif number == 3:  # passes that do not reach all parameters
        backward(first)
        backward(second, 3)
    elif number == 4:  # zeros in place of no gradient
        backward(first)
        optimizer.zero_grad(set_to_none=False)
        alone(second)
        backward(third)
    optimizer.step()
    return weights(model)


def held() -> list[Any]:
    """Gradients that a rank has after a pass, the norm of those given by themselves, and the ranks that update them."""
    model = network()
    optimizer = ZeroRedundancyOptimizer(model.parameters(), alpha.optim.Adam)
    parallel = alpha.DataParallel(model)
    x, y = tensors(*batches(1)[0], True)
    F.cross_entropy(parallel(x), y).backward()
    grads = [parameter.grad for parameter in model.parameters()]
    norm = nn.utils.get_total_norm([grad for grad in grads if grad is not None])
    wanted = nn.utils.clip_grad_norm_(model.parameters(), math.inf)
    few = nn.utils.clip_grad_norm_(list(model.parameters())[:1], math.inf)  # of which one rank has the gradient
    return [[grad is not None for grad in grads], optimizer._owners, norm.item() - wanted.item(), few.item()]


def refused(function: Callable[[], Any]) -> str:
    try:
        function()
    except (ValueError, TypeError, alpha.errors.AlphaError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def refusals() -> dict[str, str]:
    model = network()
    found = {}
    optimizer = ZeroRedundancyOptimizer(model.parameters(), alpha.optim.Adam)
    x, y = tensors(*batches(1)[0], True)
    F.cross_entropy(model(x), y).backward()
    found["not reduced"] = refused(optimizer.step)
    found["norm"] = refused(lambda: nn.utils.clip_grad_norm_(model.parameters(), 1.0))
    found["total"] = refused(lambda: nn.utils.get_total_norm([p.grad for p in model.parameters()]))
    found["plain"] = refused(alpha.optim.Adam(model.parameters()).step)
    parallel = alpha.DataParallel(model)
    parallel.zero_grad()
    with parallel.no_sync():
        F.cross_entropy(parallel(x), y).backward()
    found["no_sync"] = refused(optimizer.step)
    parallel.zero_grad()
    F.cross_entropy(parallel(x), y).backward()
    optimizer.step()
    optimizer.consolidate_state_dict(to=None)
    found["to"] = refused(partial(optimizer.consolidate_state_dict, world))
    optimizer.zero_grad()
    F.cross_entropy(parallel(x), y).backward()
    optimizer.step()
    found["old state"] = refused(optimizer.state_dict)
    found["together"] = refused(lambda: ZeroRedundancyOptimizer(model.parameters(), alpha.optim.LBFGS))
    found["twice"] = refused(lambda: ZeroRedundancyOptimizer(model.parameters(), ZeroRedundancyOptimizer))
    wrong: Any = nn.Linear
    found["no class"] = refused(lambda: ZeroRedundancyOptimizer(model.parameters(), wrong))
    other = [parameter for number, parameter in enumerate(model.parameters()) if number != rank]
    found["other parameters"] = refused(lambda: ZeroRedundancyOptimizer(other, alpha.optim.Adam))
    found["frozen"] = frozen(model, parallel, optimizer)
    gone = ref(optimizer)
    del optimizer
    assert gone() is None
    parallel.zero_grad()
    F.cross_entropy(parallel(x), y).backward()  # for all ranks again
    found["dropped"] = refused(alpha.optim.Adam(model.parameters()).step)
    found["gone"] = str(len(shares._shares) + sum(p.grad is None for p in model.parameters()))
    return found


def frozen(model: Any, parallel: Any, optimizer: Any) -> str:
    """The refusal of a gradient that a parameter has kept when it was frozen, by the rank that owns it."""
    x, y = tensors(*batches(1)[0], True)
    parallel.zero_grad()
    F.cross_entropy(parallel(x), y).backward()
    kept = [parameter for parameter in model.parameters() if parameter.grad is not None]
    kept[0].requires_grad_(False)  # each rank has another one
    text = refused(optimizer.step)
    kept[0].requires_grad_(True)
    return text


def norm_of_lists() -> list[float]:
    """The norm of gradients of which some are shared out and on one rank alone, beside that of one process."""
    norms = []
    for share in (False, True):
        shared, other = network(), network()
        optimizer: Any = ZeroRedundancyOptimizer([shared[9].bias], alpha.optim.SGD, lr=0.1) if share else None
        models = [alpha.DataParallel(model) if share else model for model in (shared, other)]
        x, y = tensors(*batches(1)[0], share)
        for model in models:
            F.cross_entropy(model(x), y).backward()
        grads = [p.grad for p in (shared[9].bias, *other.parameters()) if p.grad is not None]
        norms.append(nn.utils.get_total_norm(grads).item())
        del optimizer
    return norms


def dry() -> bool:
    """True if a step can be dry-run, whatever its last launch is, and no exchange is counted."""
    model = network().to(device)
    parallel = alpha.DataParallel(model)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), alpha.optim.SGD, lr=0.1)
    x, y = tensors(*batches(1)[0], True)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(parallel(x), y).backward()
        optimizer.step()

    engine: Any = joined_engine("a test")
    before, counted = engine.begin, []
    engine.begin = counted.append
    try:
        return len(alpha.dry_run(step).launches) > 10 and not counted
    finally:
        engine.begin = before


def added() -> float:
    """The difference to one process when a layer is thawed later."""
    results = []
    for share in (False, True):
        model = network()
        last, rest = [*model[9].parameters()], [*model[:9].parameters()]
        for parameter in rest:
            parameter.requires_grad_(False)
        optimizer: Any = ZeroRedundancyOptimizer(last, alpha.optim.Adam) if share else alpha.optim.Adam(last)
        for thawed in (False, True):
            if thawed:
                for parameter in rest:
                    parameter.requires_grad_(True)
                optimizer.add_param_group({"params": rest, "lr": 0.01})
            parallel = alpha.DataParallel(model) if share else model
            for batch in batches(3):
                x, y = tensors(*batch, share)
                optimizer.zero_grad()
                F.cross_entropy(parallel(x), y).backward()
                optimizer.step()
        results.append(weights(model))
    return difference(*results)


found: dict[str, Any] = {"held": held(), "passes": [0.0], "added": 0.0}
if device == "cpu":
    found["refusals"] = refusals()
    found["added"] = added()
    found["norm of lists"] = norm_of_lists()
    found["passes"] = [difference(passes(number, False), passes(number, True)) for number in range(5)]
found["beside"] = {name: beside_one_process(name) for name in (CASES if device == "cpu" else ["SGD"])}
found["dry"] = device == "cpu" or dry()
found["mixed"] = mixed(False) == mixed(device == "cuda")
found["equal"] = [equal_runs("SGD"), equal_runs("NAdam"), equal_runs("SGD", compression="bf16")]
tell(found)
