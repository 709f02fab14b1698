"""What a request asks for beside its target: query parameters and bodies, read as the API server reads them."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

import yaml
from aiohttp import web

from nemo_run._kube.resources import Resource
from nemo_run.testing._errors import ApiError, bad_request
from nemo_run.testing._store import Review

Json = dict[str, Any]

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

_TRUE = frozenset(("1", "t", "T", "true", "TRUE", "True"))


def flag(query: Mapping[str, str], name: str) -> bool:
    """Tell whether a query parameter is set to one of Go's words for true."""
    return query.get(name, "") in _TRUE


def number(query: Mapping[str, str], name: str) -> int | None:
    """
    Give a query parameter as a number, None if it is absent.

    Raises:
        ApiError: it is something else (400).
    """
    text = query.get(name, "")
    if not text:
        return None
    if not text.isascii() or not text.isdigit():
        raise bad_request(f'{name}: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax')
    return int(text)


def dry_run(query: Mapping[str, str]) -> bool:
    """
    Tell whether nothing is to be kept.

    Raises:
        ApiError: ``dryRun`` is neither absent nor All (422).
    """
    asked = query.get("dryRun")
    if asked not in (None, "", "All"):
        message = f'dryRun: Unsupported value: "{asked}": supported values: "All"'
        raise ApiError(422, "Invalid", f'CreateOptions.meta.k8s.io "" is invalid: {message}')
    return asked == "All"


def review(query: Mapping[str, str]) -> Review:
    """Give the review that ``fieldValidation`` asks for; Warn is what stands for nothing."""
    asked = query.get("fieldValidation", "")
    return Review(strict=asked == "Strict", silent=asked == "Ignore")


async def object_of(request: web.Request, kind: Resource) -> Json:
    """
    Give the object in the body.

    Raises:
        ApiError: there is none, or it is of another kind (400).
    """
    if "protobuf" in request.content_type:
        accepted = "application/json, application/yaml"
        message = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
        raise ApiError(415, "UnsupportedMediaType", message)
    text = await request.text()
    unknown = f"the object provided is unrecognized (must be of type {kind.kind}): couldn't get version/kind"
    try:
        body = yaml.safe_load(text) if "yaml" in request.content_type else json.loads(text)
    except (ValueError, yaml.YAMLError) as error:
        what = "unexpected end of JSON input (<empty>)" if not text else str(error)
        raise bad_request(f"{unknown}; json parse error: {what}") from error
    if not isinstance(body, dict):
        raise bad_request(f"{unknown}; json parse error: json: cannot unmarshal into Go value of type struct")
    given = (body.get("apiVersion", kind.api_version), body.get("kind", kind.kind))
    if given != (kind.api_version, kind.kind):
        raise bad_request(
            f"{given[1]} in version {json.dumps(given[0].rpartition('/')[2])} cannot be handled as a {kind.kind}: "
            f"converting ({given[0]}.{given[1]}) to ({kind.api_version}.{kind.kind}): unknown conversion"
        )
    body.update(apiVersion=kind.api_version, kind=kind.kind)
    if not isinstance(body.setdefault("metadata", {}), dict):
        raise bad_request(f"{kind.kind} in version {json.dumps(kind.version)} cannot be handled as a {kind.kind}")
    return body


async def patch_of(request: web.Request, kind: Resource) -> Any:
    """
    Give the merge patch, or the list of JSON patch operations, in the body.

    Raises:
        ApiError: its type is not one that *kind* takes (415), or it cannot be read (400).
    """
    core = "." not in kind.group
    accepted = [JSON_PATCH, MERGE_PATCH, *([STRATEGIC_PATCH] if core else []), APPLY_PATCH]
    if request.content_type not in accepted:
        message = (
            f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
        )
        raise ApiError(415, "UnsupportedMediaType", message)
    text = await request.text()
    try:
        patch = yaml.safe_load(text) if request.content_type == APPLY_PATCH else json.loads(text)
    except (ValueError, yaml.YAMLError) as error:
        raise bad_request(f"error decoding patch: {error}") from error
    if not isinstance(patch, list if request.content_type == JSON_PATCH else dict):
        raise bad_request("error decoding patch: json: cannot unmarshal into Go value of this type")
    return patch


async def delete_options(request: web.Request) -> Json:
    """Give the DeleteOptions of the body, overlaid with those of the query."""
    text = await request.text()
    options: Json = json.loads(text) if text.strip() else {}
    query = request.query
    if (grace := number(query, "gracePeriodSeconds")) is not None:
        options["gracePeriodSeconds"] = grace
    if "propagationPolicy" in query:
        options["propagationPolicy"] = query["propagationPolicy"]
    if "dryRun" in query:
        options["dryRun"] = [query["dryRun"]]
    return options


def continue_token(version: int, start: str) -> str:
    """Give the token from which a list goes on after *start*."""
    text = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": f"{start}\0"}, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def continue_from(token: str) -> tuple[int, str]:
    """
    Give the version and the start of a token.

    Raises:
        ApiError: it is none of ours (400).
    """
    raw = b""
    try:
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        content = json.loads(raw)
        return int(content["rv"]), str(content["start"]).rstrip("\0")
    except (binascii.Error, ValueError, KeyError, TypeError) as error:
        first = raw[:1].decode("latin-1")
        message = f"continue key is not valid: invalid character '{first}' looking for beginning of value"
        raise bad_request(f"invalid continue token: {message}") from error
