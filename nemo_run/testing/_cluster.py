"""A cluster without a node: an API server, its checks, and what is there before anyone has created anything."""

from __future__ import annotations

import secrets
from pathlib import Path

from nemo_run._kube.resources import CLAIM, CLUSTER_TRAINING_RUNTIME, CONFIG_MAP, POD, Resource
from nemo_run.testing import _seeds
from nemo_run.testing._admission import TrainJobAdmission
from nemo_run.testing._checks import Validation
from nemo_run.testing._claims import Claims
from nemo_run.testing._errors import ApiError, Json
from nemo_run.testing._faults import Faults
from nemo_run.testing._kinds import NAMESPACE, served
from nemo_run.testing._schemas import schemas
from nemo_run.testing._server import Server
from nemo_run.testing._store import Review, Store


class Cluster:
    """The objects of one LocalKube and the server that hands them out; all is called on one event loop."""

    def __init__(
        self,
        *,
        trainer: str = "2.3",
        kuberay: str | None = None,
        claims: Claims | None = None,
        any_namespace: bool = False,
        any_claim: bool = False,
    ) -> None:
        """
        Take what is to be served; nothing listens yet.

        Args:
            any_namespace: make a namespace when something is created in it.
            any_claim: make a claim when a pod names it.

        Raises:
            ValueError: there is no such release of Trainer or KubeRay here.
        """
        known = schemas(trainer, kuberay)
        self.claims = claims or Claims(Path(), None)
        self.token = secrets.token_urlsafe(24)
        self.faults = Faults()
        self.store = Store([Validation(known)])
        self.store.checks.append(TrainJobAdmission(self.store, trainer, self.faults))
        if any_namespace:
            self.store.missing_namespace = self.make_namespace
        if any_claim:
            self.store.checks.append(self._with_claims)
        kinds = served(trainer=True, kuberay=kuberay is not None)
        self.server = Server(self.store, kinds, token=self.token, faults=self.faults, schemas=known)
        for name in (*_seeds.NAMESPACES, *sorted(self.claims.namespaces())):
            self.make_namespace(name)
        self._ensure(CLUSTER_TRAINING_RUNTIME, "", _seeds.torch_runtime(trainer))
        if trainer not in ("2.0", "2.1"):
            self._ensure(CONFIG_MAP, "kubeflow-system", _seeds.trainer_version(trainer))

    def make_namespace(self, name: str) -> None:
        """Have a namespace of this name, with the claims that are there in every one."""
        self._ensure(NAMESPACE, "", _seeds.namespace(name))
        for claim in self.claims.names(name):
            self._ensure(CLAIM, name, _seeds.claim(claim))

    def make_claim(self, namespace: str, name: str) -> Path:
        """Have a claim of this name, and give its directory."""
        self.make_namespace(namespace)
        self._ensure(CLAIM, namespace, _seeds.claim(name))
        return self.claims(namespace, name)

    def _with_claims(self, kind: Resource, obj: Json, old: Json | None, review: Review | None) -> Json:
        """Have every claim that a pod names."""
        for volume in obj["spec"].get("volumes") or [] if kind == POD else []:
            if name := (volume.get("persistentVolumeClaim") or {}).get("claimName"):
                self.make_claim(obj["metadata"]["namespace"], name)
        return obj

    def kubeconfig(self) -> Json:
        """Give the kubeconfig of a client that may do everything."""
        context = {"cluster": "localkube", "user": "localkube", "namespace": "default"}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "localkube",
            "clusters": [{"name": "localkube", "cluster": {"server": self.server.url}}],
            "users": [{"name": "localkube", "user": {"token": self.token}}],
            "contexts": [{"name": "localkube", "context": context}],
        }

    def _ensure(self, kind: Resource, namespace: str, obj: Json) -> None:
        """Create *obj* unless there is one of its name."""
        try:
            self.store.get(kind, namespace, obj["metadata"]["name"])
        except ApiError:
            self.store.create(kind, namespace, obj)
