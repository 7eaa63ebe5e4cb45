"""Preview of training batches before a run is started."""
