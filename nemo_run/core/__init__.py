"""What a job is made of: executors, packagers, serialisers, runners."""
