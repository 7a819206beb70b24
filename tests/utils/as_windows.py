"""Program that trains, saves and predicts while Alpha sees Windows: no names of POSIX in os and signal, no fcntl.

Only modules of Alpha see it, since the libraries below them are those of this system.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.abc
import os
import pkgutil
import signal
import sys
import types
from pathlib import Path
from typing import Any

MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "termios"}
OF_OS = """
    O_CLOEXEC O_DIRECTORY O_DSYNC O_NOFOLLOW O_NONBLOCK O_SYNC WNOHANG chown chroot confstr fchmod fchown fdatasync
    fork forkpty fpathconf fstatvfs getegid geteuid getgid getgroups getloadavg getpgid getpgrp getuid killpg lchown
    lockf memfd_create mkfifo mknod nice openpty pathconf pidfd_open posix_fadvise posix_fallocate posix_spawn pread
    pwrite readv register_at_fork sched_getaffinity sched_setaffinity sendfile setpgid setsid statvfs sync sysconf
    tcgetpgrp ttyname uname wait wait3 wait4 writev
"""
OF_SIGNAL = """
    SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGUSR1 SIGUSR2 SIG_BLOCK SIG_SETMASK
    SIG_UNBLOCK alarm pthread_kill pthread_sigmask setitimer sigwait
"""


def without(module: types.ModuleType, names: str, **others: Any) -> types.ModuleType:
    """A module without some of its names, and with other values of some."""
    made = types.ModuleType(module.__name__)
    vars(made).update({name: value for name, value in vars(module).items() if name not in names.split()} | others)
    return made


SEEN = {
    "os": without(os, OF_OS, name="nt"),
    "signal": without(signal, OF_SIGNAL),
    "sys": without(sys, "", platform="win32"),
}
usual = builtins.__import__


def importing(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
    if globals is not None and str(globals.get("__name__")).partition(".")[0] == "alpha" and level == 0:
        if name in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}")
        if name in SEEN:
            return SEEN[name]
    return usual(name, globals, locals, fromlist, level)


def main(folder: Path) -> None:
    builtins.__import__ = importing
    import numpy as np
    from PIL import Image

    import alpha
    from alpha import nn
    from alpha.data import ArrayDataset, DataLoader
    from alpha.errors import DeviceError
    from alpha.train import Run, Trainer
    from alpha.train.commands import bench, predict, train_photos
    from alpha.utils import doctor

    for module in pkgutil.walk_packages(alpha.__path__, "alpha."):
        try:
            importlib.import_module(module.name)
        except ImportError:
            continue  # a package that an extra brings
        except DeviceError:
            assert module.name.endswith("driver_pycuda"), module.name
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (32, 8, 8, 3), dtype=np.uint8)
    data = ArrayDataset(images, (np.arange(32) % 3).astype(np.int32), ["a", "b", "c"])
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    trainer = Trainer(model, alpha.optim.Adam(model.parameters()), "cpu")
    trainer.fit(DataLoader(data, 16, shuffle=True), DataLoader(data, 16), epochs=2, run=Run.start({}, folder / "run"))
    assert (folder / "run" / "checkpoint.safetensors").exists()
    alpha.save(model.state_dict(), folder / "w.safetensors")
    model.load_state_dict(alpha.load(folder / "w.safetensors"))
    for name in "abc":
        (folder / "photos" / name).mkdir(parents=True)
        for number in range(6):
            pixels = rng.integers(0, 255, (40, 40, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "photos" / name / f"{number}.jpg")
    options = ["--epochs", "1", "--image-size", "32", "--output", str(folder / "photos-run")]
    assert train_photos.main([str(folder / "photos"), "--model", "torchvision.mobilenet_v2", *options]) == 0
    assert predict.main([str(folder / "photos-run"), str(folder / "photos" / "a" / "0.jpg")]) == 0
    assert bench.main(["torchvision.mobilenet_v2", "--batch-size", "2", "--seconds", "0.01", "--device", "cpu"]) == 0
    assert doctor.main(["--device", "cpu"]) == 0


if __name__ == "__main__":
    main(Path(sys.argv[1]))
