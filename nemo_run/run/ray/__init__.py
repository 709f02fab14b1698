"""Ray clusters and jobs on Kubernetes: ``cluster.RayCluster`` and ``job.RayJob``."""
