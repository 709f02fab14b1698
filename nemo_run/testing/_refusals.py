"""What those say who stand between a request and the store: RBAC, quotas, PodSecurity, a webhook of the owner's."""

from __future__ import annotations

from typing import Literal

from nemo_run._kube.resources import POD
from nemo_run.testing import _access
from nemo_run.testing._errors import ApiError, about, denied, qualified
from nemo_run.testing._paths import Target

By = Literal["rights", "quota", "PodSecurity", "webhook"]
"""Who refuses. Each of them answers 403."""

_POLICY = "validate.policies.example.com"


def refusal(by: By, method: str, target: Target, name: str, *, watch: bool) -> ApiError:
    """Give what *by* answers to a request about the object *name* at *target*."""
    if by == "rights":
        return _access.attempt(method, target, watch=watch).refused(_access.USER)
    if by == "webhook":
        return denied(_POLICY, 'you must provide labels: {"cost-center"}')
    why = _quota(target) if by == "quota" else _security(name)
    return ApiError(
        403, "Forbidden", f'{qualified(target.kind)} "{name}" is forbidden: {why}', details=about(target.kind, name)
    )


def _quota(target: Target) -> str:
    what = "pods" if target.kind == POD else f"count/{qualified(target.kind)}"
    return f"exceeded quota: team, requested: {what}=1, used: {what}=10, limited: {what}=10"


def _security(pod: str) -> str:
    container = f'container "{pod}"'
    return (
        'violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false'
        f" ({container} must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities"
        f' ({container} must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true'
        f" (pod or {container} must set securityContext.runAsNonRoot=true), seccompProfile"
        f' (pod or {container} must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")'
    )
