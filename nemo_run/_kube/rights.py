"""What we may do, asked of the server before anything is created."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nemo_run.exceptions import NotAuthorized

if TYPE_CHECKING:
    from nemo_run._kube.api import KubeApi

logger = logging.getLogger("nemo_run")


@dataclass(frozen=True)
class Right:
    """A verb on a resource, as a rule of a Role has them."""

    verb: str
    resource: str
    """With its subresource: ``pods/exec``."""
    group: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}" + (f".{self.group}" if self.group else "")

    def granted(self, api: KubeApi, namespace: str) -> bool:
        """Tell whether we have it."""
        resource, _, sub = self.resource.partition("/")
        return api.can(self.verb, resource, namespace=namespace, subresource=sub, group=self.group)


def missing(api: KubeApi, namespace: str, wanted: Sequence[Right]) -> list[Right]:
    """Give those of the rights that we do not have; none where the server does not say."""
    try:
        return [right for right in wanted if not right.granted(api, namespace)]
    except NotAuthorized as error:
        logger.info("cannot ask for our rights, so going on without: %s", error)
        return []


def require(api: KubeApi, namespace: str, what: str, needed: Sequence[Right]) -> None:
    """
    Make sure that we have all rights that *what* needs; where the server does not say, go on.

    Raises:
        NotAuthorized: names every right that is missing.
    """
    if lacking := missing(api, namespace, needed):
        raise NotAuthorized(
            what,
            f"these rights are missing: {', '.join(map(str, lacking))}; ask for a Role that has them",
            status=403,
            server=api.server,
            context=api.context,
            namespace=namespace,
        )
