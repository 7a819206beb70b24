"""Files of a run: its folder, its state, its history and its pictures."""
