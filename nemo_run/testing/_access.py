"""Who may do what: everyone with the token everything, unless rules as a Role has them are set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nemo_run.testing._errors import ApiError
from nemo_run.testing._paths import Target

Json = dict[str, Any]

USER = "localkube"
ANONYMOUS = "system:anonymous"

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


@dataclass(frozen=True)
class Attempt:
    """What a request tries, in the terms of RBAC."""

    verb: str
    group: str
    resource: str
    sub: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def full_resource(self) -> str:
        """Give the resource as a rule names it: ``pods/exec``."""
        return f"{self.resource}/{self.sub}" if self.sub else self.resource

    def allowed_by(self, rules: Sequence[Json]) -> bool:
        """Tell whether one of *rules* grants this."""
        return any(self._granted(rule) for rule in rules)

    def refused(self, user: str) -> ApiError:
        """Give the refusal that *user* gets."""
        about = f'{self.resource} "{self.name}"' if self.name else self.resource
        if self.group:
            about = about.replace(self.resource, f"{self.resource}.{self.group}", 1)
        message = (
            f'{about} is forbidden: User "{user}" cannot {self.verb} resource "{self.full_resource}" '
            f'in API group "{self.group}"'
        )
        message += f' in the namespace "{self.namespace}"' if self.namespace else " at the cluster scope"
        details = {"name": self.name, "group": self.group, "kind": self.resource}
        details = {key: value for key, value in details.items() if value}
        return ApiError(403, "Forbidden", message, details=details)

    def _granted(self, rule: Json) -> bool:
        names = rule.get("resourceNames") or []
        return (
            bool({self.verb, "*"} & set(rule.get("verbs", [])))
            and bool({self.group, "*"} & set(rule.get("apiGroups", [])))
            and bool({self.full_resource, "*", f"*/{self.sub}"} & set(rule.get("resources", [])))
            and (not names or self.name in names)
        )


def attempt(method: str, target: Target, *, watch: bool) -> Attempt:
    """Give what a request of *method* tries to do to *target*."""
    if method == "GET":
        verb = "get" if target.name else "watch" if watch else "list"
    elif method == "DELETE":
        verb = "delete" if target.name else "deletecollection"
    else:
        verb = _VERBS.get(method, method.lower())
    kind = target.kind
    return Attempt(verb, kind.group, kind.plural, target.sub, target.namespace, target.name)


def review(spec: Json, rules: Sequence[Json] | None) -> Json:
    """Give the status of a SelfSubjectAccessReview."""
    if rules is None:
        return {"allowed": True, "reason": "LocalKube allows everything"}
    wanted = spec.get("resourceAttributes")
    if wanted is None:
        return {"allowed": False}
    asked = Attempt(
        wanted.get("verb", ""),
        wanted.get("group", ""),
        wanted.get("resource", ""),
        wanted.get("subresource", ""),
        wanted.get("namespace", ""),
        wanted.get("name", ""),
    )
    allowed = asked.allowed_by(rules)
    return (
        {"allowed": allowed, "reason": "RBAC: allowed by the rules set on LocalKube"} if allowed else {"allowed": False}
    )
