"""Image files: how they are opened and decoded, and folders of them as datasets."""
