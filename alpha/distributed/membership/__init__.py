"""Who belongs to a training: the place of each process, how they find each other, and whether each still lives."""
