"""Configure, launch and follow jobs on Kubernetes from Python."""
