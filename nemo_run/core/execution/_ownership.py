"""How objects in a cluster say whose they are and which launch made them; no I/O."""

from __future__ import annotations

from nemo_run._kube.names import label_value
from nemo_run.core.execution.base import current_user

EXPERIMENT_LABEL = "nemo-run/experiment-id"
JOB_LABEL = "nemo-run/job-name"
USER_LABEL = "nemo-run/user"
ROLE_LABEL = "nemo-run/role"
LAUNCH_ANNOTATION = "nemo-run/launch-id"
"""Random for each launch and there before the first try: it tells our own object from another of that name."""

MOVER_ROLE = "data-mover"
"""What `ROLE_LABEL` says of a copy pod."""


def own_labels(experiment_id: str | None, job_name: str | None) -> dict[str, str]:
    """Give the labels that find this user's objects again, and this job's among them."""
    labels = {EXPERIMENT_LABEL: experiment_id, JOB_LABEL: job_name, USER_LABEL: current_user()}
    return {label: label_value(text) for label, text in labels.items() if text}
