"""Worker processes of a loader, which make batches and hand them over in shared memory."""
