"""What Trainer's admission webhook does to TrainJobs before they are stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from nemo_run._kube.resources import CLUSTER_TRAINING_RUNTIME, TRAINING_RUNTIME, TRAINJOB, Resource
from nemo_run.testing._errors import ApiError, FieldError, denied, not_found, unanswered
from nemo_run.testing._faults import Faults
from nemo_run.testing._metadata import dns_1035_faults, subdomain_faults, wrong
from nemo_run.testing._store import Review, Store, copied, now

Json = dict[str, Any]

WEBHOOK = "validator.trainjob.trainer.kubeflow.org"
_SERVICE = "kubeflow-trainer-controller-manager"
PATCHES = {"2.0": "podSpecOverrides", "2.1": "podTemplateOverrides"}
RESERVED = ("PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_NNODES", "PET_NODE_RANK", "PET_NPROC_PER_NODE")

_OWN_ENV = ("dataset-initializer", "model-initializer", "node")
_RUNTIMES = {kind.kind: kind for kind in (CLUSTER_TRAINING_RUNTIME, TRAINING_RUNTIME)}


class TrainJobAdmission:
    """The webhook of one release of Trainer: a check for the store."""

    def __init__(self, store: Store, trainer: str, faults: Faults | None = None) -> None:
        self._store = store
        self._faults = faults or Faults()
        self._trainer = trainer
        self._patches = PATCHES.get(trainer, "runtimePatches")

    def __call__(self, kind: Resource, obj: Json, old: Json | None, review: Review) -> Json:
        """
        Give a TrainJob with its patches stamped; other kinds pass.

        Raises:
            ApiError: the webhook denies it (403), or is away (500).
        """
        if kind != TRAINJOB:
            return obj
        if self._faults.down():
            raise unanswered(WEBHOOK, _SERVICE)
        problems = list(self._problems(obj, old, review))
        if problems:
            text = ", ".join(map(str, problems))
            raise denied(WEBHOOK, text if len(problems) == 1 else f"[{text}]")
        return self._stamped(obj, old)

    def _stamped(self, obj: Json, old: Json | None) -> Json:
        if self._patches != "runtimePatches":
            return obj
        obj = copied(obj)
        before = {patch["manager"]: patch for patch in (old or {}).get("spec", {}).get("runtimePatches", [])}
        for patch in obj["spec"].get("runtimePatches", []):
            patch.setdefault("time", before.get(patch["manager"], {}).get("time", now()))
        return obj

    def _problems(self, obj: Json, old: Json | None, review: Review) -> Iterator[FieldError | str]:
        spec, ref = obj["spec"], obj["spec"]["runtimeRef"]
        if self._trainer == "2.0":
            for fault in dns_1035_faults(obj["metadata"]["name"]):
                yield wrong("metadata.name", obj["metadata"]["name"], fault)
        runtime_kind = _RUNTIMES.get(ref["kind"])
        if runtime_kind is None or ref["apiGroup"] != runtime_kind.group:
            yield f"unsupported runtime: {ref['kind']}.{ref['apiGroup']}"
            return
        try:
            runtime = self._store.get(runtime_kind, obj["metadata"]["namespace"], ref["name"])
        except ApiError:
            word = runtime_kind.kind[0].lower() + runtime_kind.kind[1:]
            missing = str(not_found(runtime_kind, ref["name"])).replace(runtime_kind.plural, runtime_kind.kind, 1)
            why = f"{missing}: specified {word} must be created before the TrainJob is created"
            shown = {"name": ref["name"], "apiGroup": ref["apiGroup"], "kind": ref["kind"]}
            yield wrong("spec.runtimeRef", shown, why)
            return
        if (runtime["metadata"].get("labels") or {}).get("trainer.kubeflow.org/support") == "deprecated":
            review.warnings.append(f'Referenced {ref["kind"]} "{ref["name"]}" is deprecated')
        yield from self._env_problems(spec, runtime)
        yield from self._patch_problems(spec, (old or {}).get("spec"), runtime)

    def _env_problems(self, spec: Json, runtime: Json) -> Iterator[FieldError]:
        trainer = spec.get("trainer", {})
        late = self._trainer in ("2.0", "2.1") and "numProcPerNode" not in trainer
        if late or "torch" not in runtime["spec"].get("mlPolicy", {}):
            return
        if trainer.get("command") == ["tune", "run"]:
            return
        reserved = sorted({env["name"] for env in trainer.get("env", [])} & set(RESERVED))
        if reserved:
            why = f"must not have reserved envs, invalid envs configured: [{' '.join(reserved)}]"
            yield wrong("spec.trainer.env", trainer["env"], why)

    def _patch_problems(self, spec: Json, before: Json | None, runtime: Json) -> Iterator[FieldError]:
        patches = spec.get(self._patches, [])
        path = f"spec.{self._patches}"
        running = before is not None and not before.get("suspend") and not spec.get("suspend")
        if before is not None and running and _unstamped(before.get(self._patches, [])) != _unstamped(patches):
            word = self._patches[0].upper() + self._patches[1:]
            message = f"Forbidden: {word} can only be modified when the TrainJob is suspended"
            yield FieldError(path, message, "FieldValueForbidden")
        known = [job["name"] for job in runtime["spec"]["template"]["spec"].get("replicatedJobs", [])]
        for patch in patches:
            if "manager" in patch:
                yield from _manager_problems(patch["manager"], f"{path}.manager")
            for name, pod in _patched(patch, self._patches):
                if self._trainer != "2.3" and name not in known:
                    yield wrong(path, patches, "must not have targetJob that doesn't exist in the runtime job template")
                for container in pod.get("containers", []):
                    if container.get("env") and container["name"] in _OWN_ENV:
                        why = f"must not have envs for the {', '.join(_OWN_ENV)} containers"
                        yield wrong(path, patches, why)


def _patched(patch: Json, dialect: str) -> Iterator[tuple[str, Json]]:
    """Give the name and the pod spec of each job that a patch changes."""
    if dialect == "runtimePatches":
        template = patch.get("trainingRuntimeSpec", {}).get("template", {}).get("spec", {})
        for job in template.get("replicatedJobs", []):
            below = job.get("template", {}).get("spec", {}).get("template", {})
            yield job["name"], below.get("spec", {})
    else:
        pod = patch if dialect == "podSpecOverrides" else patch.get("spec", {})
        for target in patch.get("targetJobs", []):
            yield target["name"], pod


def _manager_problems(manager: str, path: str) -> Iterator[FieldError]:
    host, _, rest = manager.partition("/")
    if not host or not rest:
        yield wrong(path, manager, 'must be a domain-prefixed path (such as "acme.io/foo")')
        return
    for fault in subdomain_faults(host):
        yield wrong(path, host, fault)


def _unstamped(patches: list[Json]) -> str:
    return json.dumps(
        [{key: value for key, value in patch.items() if key != "time"} for patch in patches], sort_keys=True
    )
