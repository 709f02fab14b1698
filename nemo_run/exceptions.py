"""
Every error that nemo_run raises on purpose.

* NemoRunError
  + ConfigError (ValueError)       the configuration is wrong; nothing was sent
    - InvalidName                  a name that Kubernetes would refuse
    - SetValueError                a key that leads nowhere in a config
  + KubeError (RuntimeError)       the Kubernetes API refused, or did not answer
    - Unreachable                  no answer: network, TLS, broken kubeconfig
    - NotAuthorized                401, 403: credentials or rights
    - NotFound                     404
    - Conflict                     409
    - Rejected                     400, 422, 403 by admission: the object we sent is wrong or not allowed
    - ServerError                  429, 5xx: worth another try
  + TransferError (RuntimeError)   files could not be copied to or from a pod
  + PackagingError (RuntimeError)  the code to run could not be packed
    - NoRepository                 there is no git repository to pack
  + JobFailed (RuntimeError)       a job ended in a state other than success
  + ExperimentError (RuntimeError, AssertionError)    this call does not fit the experiment as it stands
    - ExperimentNotFound (FileNotFoundError)          no such experiment on this disk
  + WaitTimeout (TimeoutError, RuntimeError)  a wait ran out before the state was reached

Where NeMo-Run raised ValueError, RuntimeError, TimeoutError, AssertionError or
FileNotFoundError these are that too, so an ``except`` written for it goes on working.
"""

from __future__ import annotations

from typing import Any


class NemoRunError(Exception):
    """Anything that nemo_run raises on purpose."""


class ConfigError(NemoRunError, ValueError):
    """The configuration is wrong; nothing was sent."""

    def __init__(self, argument: str, value: Any, hint: str) -> None:
        super().__init__(argument, value, hint)
        self.argument = argument
        self.value = value
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.argument}={self.value!r}: {self.hint}"


class InvalidName(ConfigError):
    """A name that Kubernetes would refuse."""


class SetValueError(ConfigError):
    """A key leads nowhere in a config, or what it leads to does not take the value."""


class KubeError(NemoRunError, RuntimeError):
    """The Kubernetes API refused, or did not answer."""

    def __init__(
        self,
        what: str,
        message: str,
        *,
        status: int | None = None,
        reason: str = "",
        server: str = "",
        context: str = "",
        namespace: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(what, message)
        self.what = what
        self.message = message
        self.status = status
        self.reason = reason
        self.server = server
        self.context = context
        self.namespace = namespace
        self.retry_after = retry_after

    def __str__(self) -> str:
        code = " ".join(str(part) for part in (self.status, self.reason) if part)
        facts = (("server", self.server), ("context", self.context), ("namespace", self.namespace))
        where = ", ".join(f"{name} {value}" for name, value in facts if value)
        text = f"{self.what}: {self.message}"
        if code:
            text += f" [{code}]"
        return f"{text} ({where})" if where else text


class Unreachable(KubeError):
    """No answer: network, TLS, or a kubeconfig that cannot be used."""


class NotAuthorized(KubeError):
    """The server knows us and says no (403), or does not know us (401)."""


class NotFound(KubeError):
    """The object is not there (404)."""


class Conflict(KubeError):
    """The object exists already, or changed meanwhile (409)."""


class Rejected(KubeError):
    """The object we sent is wrong (400, 422) or refused by admission (403)."""


class ServerError(KubeError):
    """The server is overloaded or broken (429, 5xx): worth another try."""


class TransferError(NemoRunError, RuntimeError):
    """Files could not be copied to or from a pod."""

    def __init__(self, message: str, *, exit_code: int | None = None, stderr: str = "") -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.stderr = stderr


class PackagingError(NemoRunError, RuntimeError):
    """The code to run could not be packed."""


class NoRepository(PackagingError):
    """A git packager found no git repository at all."""


class JobFailed(NemoRunError, RuntimeError):
    """A job ended in a state other than success."""

    def __init__(self, message: str, *, job: str, state: str) -> None:
        super().__init__(message)
        self.job = job
        self.state = state


class ExperimentError(NemoRunError, RuntimeError, AssertionError):
    """This call does not fit the experiment as it stands."""


class ExperimentNotFound(ExperimentError, FileNotFoundError):
    """No experiment of that title or id is on this disk."""


class WaitTimeout(NemoRunError, TimeoutError, RuntimeError):
    """A wait ran out before the state was reached."""

    def __init__(self, what: str, timeout: float, last: Any) -> None:
        super().__init__(what, timeout, last)
        self.what = what
        self.timeout = timeout
        self.last = last

    def __str__(self) -> str:
        return f"{self.what} did not happen within {self.timeout:g} s; last seen: {self.last}"
