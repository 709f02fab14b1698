"""Pure builders of Kubernetes objects: values in, new dicts out."""
