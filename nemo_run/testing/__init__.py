"""A Kubernetes on localhost, to try and to test launches without a cluster."""
