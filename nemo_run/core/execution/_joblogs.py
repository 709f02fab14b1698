"""The logs of a TrainJob's nodes: followed until the job ends, or read once."""
