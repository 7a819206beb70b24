"""`torch.backends.mps`, of which Alpha has nothing."""


def is_available() -> bool:
    """False: the devices are "cpu" and "cuda"."""
    return False


def is_built() -> bool:
    """False."""
    return False
