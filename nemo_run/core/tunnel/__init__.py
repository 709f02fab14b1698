"""Ways to a Slurm login node, as values only; Kubernetes needs none."""
