"""Memory that Alpha and another library use together: DLPack, the CUDA array interface, and who keeps it alive."""
