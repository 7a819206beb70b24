"""Images resampled and cut into windows, channels last."""
