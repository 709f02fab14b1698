"""Field names of pod specs and containers, for what users pass through by name."""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Mapping
from typing import Any

from nemo_run._kube.mounts import Json
from nemo_run.exceptions import ConfigError

POD_SPEC = frozenset(
    {
        "activeDeadlineSeconds",
        "affinity",
        "automountServiceAccountToken",
        "containers",
        "dnsConfig",
        "dnsPolicy",
        "enableServiceLinks",
        "ephemeralContainers",
        "hostAliases",
        "hostIPC",
        "hostNetwork",
        "hostPID",
        "hostUsers",
        "hostname",
        "hostnameOverride",
        "imagePullSecrets",
        "initContainers",
        "nodeName",
        "nodeSelector",
        "os",
        "overhead",
        "preemptionPolicy",
        "priority",
        "priorityClassName",
        "readinessGates",
        "resourceClaims",
        "resources",
        "restartPolicy",
        "runtimeClassName",
        "schedulerName",
        "schedulingGates",
        "schedulingGroup",
        "securityContext",
        "serviceAccount",
        "serviceAccountName",
        "setHostnameAsFQDN",
        "shareProcessNamespace",
        "subdomain",
        "terminationGracePeriodSeconds",
        "tolerations",
        "topologySpreadConstraints",
        "volumes",
    }
)
"""Fields of a PodSpec, as the RayCluster CRD of KubeRay 1.7.0 has them."""

CONTAINER = frozenset(
    {
        "args",
        "command",
        "env",
        "envFrom",
        "image",
        "imagePullPolicy",
        "lifecycle",
        "livenessProbe",
        "name",
        "ports",
        "readinessProbe",
        "resizePolicy",
        "resources",
        "restartPolicy",
        "restartPolicyRules",
        "securityContext",
        "startupProbe",
        "stdin",
        "stdinOnce",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "tty",
        "volumeDevices",
        "volumeMounts",
        "workingDir",
    }
)
"""Fields of a Container, from the same place."""

_UNDERSCORE = re.compile(r"_([a-z])")


def known_fields(
    fields: Mapping[str, Any], known: Collection[str], *, argument: str, strict: bool = False
) -> tuple[Json, list[str]]:
    """
    Give the *fields* that are *known*, snake_case turned into camelCase, and what a user should be told about it.

    Raises:
        ConfigError: *strict*, and a field is not known as it is written.
    """
    kept: Json = {}
    notes: list[str] = []
    for name, value in fields.items():
        home = name if name in known else _UNDERSCORE.sub(lambda match: match.group(1).upper(), name)
        if home == name and home in known:
            kept[home] = copy.deepcopy(value)
            continue
        hint = f"write {home!r}" if home in known else "Kubernetes has no such field here; remove it"
        if strict:
            raise ConfigError(argument, name, hint)
        if home in known:
            kept.setdefault(home, copy.deepcopy(value))
            notes.append(f"{argument}: {name!r} is taken as {home!r}")
        else:
            notes.append(f"{argument}: {name!r} is left out, since Kubernetes has no such field here")
    return kept, notes
