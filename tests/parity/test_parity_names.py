"""Nothing that Alpha offers is left out of the comparison without a reason."""

from __future__ import annotations

import json
from collections.abc import Callable

import parity_names as names

import alpha


def test_every_public_name_is_matched(databases: None, record_property: Callable[[str, str], None]) -> None:
    """An operator, layer, optimizer or schedule has a twin in PyTorch's lists, or stands with its reason among ours.

    A few layers of PyTorch's are not in its list of samples.
    """
    import torch
    from test_parity_optimizers import SCHEDULES
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.common_modules import module_db
    from torch.testing._internal.common_optimizers import optim_db

    operators = names.operators()
    found = {key: names.entries(key) for key in operators}
    modules = {info.module_cls.__name__ for info in module_db}
    optimizers = {info.optim_cls.__name__ for info in optim_db}
    unmatched = [f"{key} ({operators[key][0].name})" for key, entries in found.items() if not entries]
    unmatched += [f"nn.{name}" for name in names.layers() if name not in modules and not hasattr(torch.nn, name)]
    unmatched += [f"optim.{name}" for name in names.optimizers() if name not in optimizers]
    unmatched += [
        f"optim.{name}"
        for name in names.schedules()
        if name not in SCHEDULES or not hasattr(torch.optim.lr_scheduler, name)
    ]
    offered = {entry.name for entries in found.values() for entry in entries}
    missing = {
        "operators": sorted({entry.name for entry in op_db} - offered),
        "layers": sorted(modules - set(alpha.nn.__all__)),
        "optimizers": sorted(optimizers - set(alpha.optim.__all__)),
    }
    record_property("not offered", json.dumps(missing))
    assert not unmatched, f"neither in PyTorch's lists nor in parity_names.OWN_*: {', '.join(unmatched)}"
