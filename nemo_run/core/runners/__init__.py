"""Programs that run inside a job."""
