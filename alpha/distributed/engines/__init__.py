"""Engines that move arrays between the processes of a training: NCCL for arrays of a GPU, MPI for those of numpy."""
