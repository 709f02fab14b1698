"""The kinds of objects that nemo_run speaks to, each with its place in the API, once."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True)
class Resource:
    """A kind of Kubernetes object: where it lives and what it is called."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """Give what stands in a manifest's ``apiVersion``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", sub: str = "") -> str:
        """Give the URL path of the collection, of one object, or of its subresource."""
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts += [self.plural, name, sub]
        return "/" + "/".join(quote(part, safe="") for part in parts if part)


POD = Resource("", "v1", "pods", "Pod")
EVENT = Resource("", "v1", "events", "Event")
SECRET = Resource("", "v1", "secrets", "Secret")
CONFIG_MAP = Resource("", "v1", "configmaps", "ConfigMap")
CLAIM = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
ACCESS_REVIEW = Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False)
TRAINJOB = Resource("trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob")
TRAINING_RUNTIME = Resource("trainer.kubeflow.org", "v1alpha1", "trainingruntimes", "TrainingRuntime")
CLUSTER_TRAINING_RUNTIME = Resource(
    "trainer.kubeflow.org", "v1alpha1", "clustertrainingruntimes", "ClusterTrainingRuntime", False
)
RAYCLUSTER = Resource("ray.io", "v1", "rayclusters", "RayCluster")
RAYJOB = Resource("ray.io", "v1", "rayjobs", "RayJob")
