"""Files: `alpha.save`, `alpha.load`, safetensors and PyTorch's files, read within stated bounds."""
