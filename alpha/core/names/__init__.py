"""Names that packages offer, those of PyTorch that change nothing, and advice on those that Alpha does not have."""
