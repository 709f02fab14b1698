"""Development spaces on a Slurm cluster, as values only."""
