"""The refusals of an API server, worded as a real one words them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nemo_run._kube.resources import Resource

Json = dict[str, Any]


class ApiError(Exception):
    """A request that the server refuses: what it becomes on the wire is :meth:`body`."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        details: Json | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(status, reason, message)
        self.status = status
        self.reason = reason
        self.message = message
        self.details = details
        self.retry_after = retry_after

    def __str__(self) -> str:
        return self.message

    def body(self) -> Json:
        """Give the Status object that tells of this refusal."""
        body: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        return {**body, "code": self.status}


@dataclass(frozen=True)
class FieldError:
    """One thing that is wrong with one field of an object."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def about(kind: Resource, name: str = "", *, by_kind: bool = False) -> Json:
    """Give the ``details`` that say which object an answer is about."""
    details = {"name": name, "group": kind.group, "kind": kind.kind if by_kind else kind.plural}
    return {key: value for key, value in details.items() if value}


def qualified(kind: Resource, *, by_kind: bool = False) -> str:
    """Give ``pods`` or ``rayclusters.ray.io``, as messages name a kind."""
    name = kind.kind if by_kind else kind.plural
    return f"{name}.{kind.group}" if kind.group else name


def not_found(kind: Resource, name: str) -> ApiError:
    """Tell that there is no such object."""
    return ApiError(404, "NotFound", f'{qualified(kind)} "{name}" not found', details=about(kind, name))


def already_exists(kind: Resource, name: str, *, deleting: bool = False) -> ApiError:
    """Tell that the name is taken, perhaps by an object on its way out."""
    message = f'{qualified(kind)} "{name}" already exists'
    if deleting:
        message = f"object is being deleted: {message}"
    return ApiError(409, "AlreadyExists", message, details=about(kind, name))


def modified(kind: Resource, name: str) -> ApiError:
    """Tell that an update was made from an old copy."""
    message = (
        f'Operation cannot be fulfilled on {qualified(kind)} "{name}": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    return ApiError(409, "Conflict", message, details=about(kind, name))


def precondition(kind: Resource, name: str, wanted: str, found: str) -> ApiError:
    """Tell that the object is not the one that was meant."""
    message = (
        f'Operation cannot be fulfilled on {qualified(kind, by_kind=True)} "{name}": the UID in the precondition '
        f"({wanted}) does not match the UID in record ({found}). The object might have been deleted and then recreated"
    )
    return ApiError(409, "Conflict", message, details=about(kind, name, by_kind=True))


def bad_request(message: str) -> ApiError:
    """Tell that the request itself cannot be understood."""
    return ApiError(400, "BadRequest", message)


def cannot_handle(kind: Resource, why: str) -> ApiError:
    """Tell that the body cannot be decoded as an object of *kind*."""
    return bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}')


def invalid(kind: Resource, name: str, errors: Sequence[FieldError]) -> ApiError:
    """Tell everything that is wrong with an object's fields."""
    text = str(errors[0]) if len(errors) == 1 else f"[{', '.join(map(str, errors))}]"
    details = about(kind, name, by_kind=True)
    details["causes"] = [{"reason": error.reason, "message": error.message, "field": error.field} for error in errors]
    return ApiError(422, "Invalid", f'{qualified(kind, by_kind=True)} "{name}" is invalid: {text}', details=details)


def denied(webhook: str, why: str) -> ApiError:
    """Tell that an admission webhook said no: a 403 that is not about rights."""
    return ApiError(403, "Forbidden", f'admission webhook "{webhook}" denied the request: {why}')


def unanswered(webhook: str, service: str) -> ApiError:
    """Tell that nobody runs an admission webhook that has to agree."""
    url = f"https://{service}.kubeflow-system.svc:443/validate?timeout=10s"
    why = f'failed to call webhook: Post "{url}": no endpoints available for service "{service}"'
    return ApiError(500, "InternalError", f'Internal error occurred: failed calling webhook "{webhook}": {why}')
