"""The copy pod on a Kubernetes on localhost: there when it is needed, and gone afterwards whatever happened."""

from __future__ import annotations

import logging
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

import pytest
from fakes.clock import FakeClock
from fakes.trees import normal, plant, seen

from nemo_run._kube.api import KubeApi, connect
from nemo_run._kube.exec import run_exec
from nemo_run._kube.layout import WorkdirLayout
from nemo_run._kube.manifests.mover import mover_pod
from nemo_run._kube.mover import check_rights, data_mover, sweep
from nemo_run._kube.resources import POD
from nemo_run._kube.transfer import fetch_tree, send_tree
from nemo_run._kube.waiting import SystemClock
from nemo_run.exceptions import NotAuthorized, Rejected, TransferError, WaitTimeout
from nemo_run.testing import Cut, LocalKube, Respond
from nemo_run.testing import Pod as PodFault

LABELS = {"nemo-run/role": "data-mover"}
CODE = PurePosixPath("/nemo_run/alice/code")


class Impatient(SystemClock):
    """A clock by which an hour passes while a pod starts: sleeps are short, and count as long as they were asked."""

    def __init__(self, factor: float = 100.0) -> None:
        self._factor = factor

    def now(self) -> float:
        return super().now() * self._factor

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds / self._factor)


def layout(**mount: Any) -> WorkdirLayout:
    found = WorkdirLayout.resolve(
        volumes=[{"name": "work", "persistentVolumeClaim": {"claimName": "shared"}}],
        volume_mounts=[],
        workdir_volume_mount={"name": "work", "mountPath": "/nemo_run", "subPath": "team-a", **mount},
        code_subpath="{user}/code",
        default_subpath="code",
        values={"user": "alice"},
    )
    assert found is not None
    return found


def pod(*, restricted: bool = False, **overrides: Any) -> dict[str, Any]:
    return mover_pod(
        "copy",
        namespace="default",
        image="alpine:3.19",
        layout=layout(),
        labels=LABELS,
        overrides=overrides,
        restricted=restricted,
    )


@pytest.fixture
def api(kube: LocalKube) -> KubeApi:
    return connect(kubeconfig=str(kube.kubeconfig))


def readonly_pod() -> dict[str, Any]:
    """Give a copy pod that has the volume a second time, where it may not write."""
    found = pod()
    mounts = found["spec"]["containers"][0]["volumeMounts"]
    mounts.append({"name": "work", "mountPath": "/readonly", "subPath": "team-a", "readOnly": True})
    return found


def lost(api: KubeApi, manifest: dict[str, Any], **keywords: Any) -> None:
    """Run a copy pod that must not become ready."""
    with data_mover(api, manifest, **{"restricted": None, **keywords}):
        pytest.fail("it became ready")


def pods(api: KubeApi) -> list[str]:
    return [found["metadata"]["name"] for found in api.list(POD, "default")]


def test_is_ready_inside_the_block_and_gone_after_it(api):
    states: list[str] = []
    with data_mover(api, pod(), restricted=None, probe=CODE, on_state=states.append) as ref:
        assert pods(api) == [ref.name]
        assert ref.name.startswith("copy-")
        assert run_exec(api, ref, ["sh", "-c", "echo $0", "hello"]).stdout == b"hello\n"
    assert pods(api) == []
    assert states[-1] == "ready"


def test_a_tree_is_the_same_on_the_volume_and_back(kube, api, tmp_path):
    source = plant(tmp_path / "source", many=2000)
    with data_mover(api, pod(), restricted=None, probe=CODE) as ref:
        send_tree(api, ref, source, CODE, spool_dir=tmp_path / "spool")
        there = seen(kube.claim("shared") / "team-a/alice/code")
        fetch_tree(api, ref, CODE, tmp_path / "back", spool_dir=tmp_path / "spool")
    assert there == normal(seen(source))
    assert seen(tmp_path / "back") == there


def test_a_stream_that_is_cut_is_tried_again(kube, api, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "noise").write_bytes(os.urandom(4 << 20))
    with data_mover(api, pod(), restricted=None) as ref, kube.fault(Cut("exec", after_bytes=1_000_000)):
        send_tree(api, ref, source, CODE, spool_dir=tmp_path, clock=FakeClock())
    assert seen(kube.claim("shared") / "team-a/alice/code") == normal(seen(source))


def test_a_far_side_that_may_not_write_gives_its_words(api, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "noise").write_bytes(os.urandom(4 << 20))
    with (
        data_mover(api, readonly_pod(), restricted=None) as ref,
        pytest.raises(TransferError, match="Read-only file system") as caught,
    ):
        send_tree(api, ref, source, PurePosixPath("/readonly/code"), spool_dir=tmp_path)
    assert caught.value.exit_code == 1


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs to mount a small file system")
def test_a_full_volume_gives_the_words_of_tar(tmp_path):
    small, source = tmp_path / "small", tmp_path / "source"
    small.mkdir()
    source.mkdir()
    (source / "noise").write_bytes(os.urandom(8 << 20))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "small", str(small)], check=True)
    try:
        with LocalKube(images={"alpine*": "busybox"}, claims={"shared": small}) as kube:
            api = connect(kubeconfig=str(kube.kubeconfig))
            with (
                data_mover(api, pod(), restricted=None) as ref,
                pytest.raises(TransferError, match="No space left on device") as caught,
            ):
                send_tree(api, ref, source, CODE, spool_dir=tmp_path)
    finally:
        subprocess.run(["umount", str(small)], check=True)
    assert caught.value.exit_code == 1


class Boom(Exception):
    pass


@pytest.mark.parametrize("error", [Boom, KeyboardInterrupt, SystemExit])
def test_is_gone_after_an_error_in_the_block(api, error):
    with pytest.raises(error), data_mover(api, pod(), restricted=None):
        raise error
    assert pods(api) == []


class Interrupting:
    """A door that lets Ctrl-C come in the middle of a request, once: before it is sent or after its answer."""

    def __init__(self, api: KubeApi, verb: str, *, sent: bool) -> None:
        self._api = api
        self._verb = verb
        self._sent = sent

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._api, name)
        if name != self._verb:
            return real

        def interrupted(*arguments: Any, **keywords: Any) -> Any:
            self._verb = ""
            if self._sent:
                real(*arguments, **keywords)
            raise KeyboardInterrupt

        return interrupted


@pytest.mark.parametrize("sent", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("verb", ["create", "get", "delete"])
def test_ctrl_c_at_any_request_leaves_no_pod(kube, api, verb, sent):
    """While it is created, while it starts, while it is removed."""
    interrupting: Any = Interrupting(api, verb, sent=sent)
    with pytest.raises(KeyboardInterrupt), data_mover(interrupting, pod(), restricted=None, clock=Impatient(50)):
        pass
    _soon(lambda: pods(api) == [])


def _soon(holds: Callable[[], bool]) -> None:
    """Wait for what a kubelet does a moment later."""
    clock = SystemClock()
    deadline = clock.now() + 30
    while not holds():
        assert clock.now() < deadline
        clock.sleep(0.05)


def test_an_image_that_cannot_be_pulled_ends_the_wait_after_a_minute(kube, api):
    states: list[str] = []
    refused = pytest.raises(TransferError, match=r"has not started for 60 s: .*ImagePull.* for image 'alpine:3.19'")
    with kube.fault(PodFault("copy-*", "ImagePullBackOff")), refused:
        lost(api, pod(), on_state=states.append, clock=Impatient())
    _soon(lambda: pods(api) == [])
    assert any("ImagePull" in state for state in states)


@pytest.mark.parametrize("kind", ["Unschedulable", "FailedMount"])
def test_what_may_pass_is_shown_and_waited_for_until_the_deadline(kube, api, kind):
    states: list[str] = []
    with (
        kube.fault(PodFault("copy-*", kind)),
        pytest.raises(WaitTimeout, match=f"the start of copy pod default/copy-.* within 600 s; last seen: .*{kind}"),
        data_mover(api, pod(), restricted=None, on_state=states.append, clock=Impatient()),
    ):
        pytest.fail("it never starts")
    _soon(lambda: pods(api) == [])
    assert any(kind in state for state in states)


def test_a_pod_that_ends_before_it_is_used_is_lost(kube, api):
    ending = pod()
    ending["spec"]["containers"][0]["command"] = ["sh", "-c", "exit 3"]
    with pytest.raises(TransferError, match=r"ended before it was ready: container mover ended: Error, exit code 3"):
        lost(api, ending)
    assert pods(api) == []


REFUSED = Respond(
    403,
    on="POST */pods",
    times=1,
    reason="Forbidden",
    message='pods "copy" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false',
)


def test_a_pod_that_pod_security_refuses_is_created_as_an_ordinary_user(kube, api):
    with kube.fault(REFUSED), data_mover(api, pod(), restricted=pod(restricted=True)) as ref:
        spec = api.get(POD, "default", ref.name)["spec"]
    assert (spec["securityContext"]["runAsNonRoot"], spec["securityContext"]["runAsUser"]) == (True, 1000)
    assert pods(api) == []


def test_a_refusal_without_another_way_shows_the_words_of_kubernetes(kube, api):
    with kube.fault(REFUSED), pytest.raises(Rejected, match='violates PodSecurity "restricted:latest"'):
        lost(api, pod())


def test_another_refusal_is_not_tried_again(kube, api):
    full = Respond(403, on="POST */pods", reason="Forbidden", message="exceeded quota: pods=0")
    with kube.fault(full), pytest.raises(Rejected, match="exceeded quota"):
        lost(api, pod(), restricted=pod(restricted=True))
    created = [request for request in kube.requests if request.method == "POST"]
    assert len(created) == 1


def test_a_create_whose_answer_got_lost_is_not_repeated_under_another_name(kube, api):
    unanswered = Respond(503, on="POST */pods", times=1, carried_out=True)
    with kube.fault(unanswered), data_mover(api, pod(), restricted=None) as ref:
        assert pods(api) == [ref.name]
    assert pods(api) == []


def test_a_pod_that_someone_deletes_while_it_starts_is_lost(kube, api):
    def delete(state: str) -> None:
        for name in pods(api):
            api.delete(POD, "default", name, grace_seconds=0)

    with kube.fault(PodFault("copy-*", "never-ready")), pytest.raises(TransferError, match=r"deleted|ended before"):
        lost(api, pod(), on_state=delete, clock=Impatient())


def test_events_that_may_not_be_read_are_no_error(kube, api, caplog):
    kube.rules = ROLE
    late = pytest.raises(WaitTimeout, match="the start of copy pod")
    with caplog.at_level(logging.INFO, "nemo_run"), kube.fault(PodFault("copy-*", "Unschedulable")), late:
        lost(api, pod(), clock=Impatient())
    assert caplog.text.count("cannot read the events of copy pod") == 1


def test_a_pod_that_cannot_be_removed_does_not_hide_the_first_error(kube, api, caplog):
    kube.rules = [ROLE[1], {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "get"]}]
    with pytest.raises(Boom), data_mover(api, pod(), restricted=None):
        raise Boom
    assert "may be left over" in caplog.text
    kube.rules = None


STUBBORN = {
    "containers": [{"name": "mover", "command": ["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"]}],
}


def test_one_that_takes_its_time_to_end_is_waited_for(api):
    with data_mover(api, pod(**STUBBORN, terminationGracePeriodSeconds=1), restricted=None):
        began = time.monotonic()
    assert pods(api) == []
    assert time.monotonic() - began >= 1


def test_one_that_does_not_end_is_an_error_that_says_where_it_is(api):
    """The workload could not mount a claim that it still holds."""
    held = pytest.raises(
        WaitTimeout, match=r"the end of copy pod .* within 180 s; last seen: Running on .*, deleted at 2"
    )
    with held, data_mover(api, pod(**STUBBORN, terminationGracePeriodSeconds=600), restricted=None, clock=Impatient()):
        pass
    for name in pods(api):
        api.delete(POD, "default", name, grace_seconds=0)


def test_a_volume_that_cannot_be_written_says_who_may_and_what_helps(kube, api):
    with pytest.raises(TransferError) as caught:
        lost(api, readonly_pod(), probe=PurePosixPath("/readonly/alice/code"))
    text = str(caught.value)
    assert "the copy pod cannot write to /readonly/alice/code: " in text
    assert "Read-only file system. /readonly has mode drwxr-xr-x, owner " in text
    assert "fsGroup" in text
    assert 'data_mover={"securityContext": {"runAsUser": ' in text
    assert (caught.value.exit_code, pods(api)) == (73, [])


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="a pod of another user needs root here")
def test_an_ordinary_user_is_told_the_owner_of_the_volume(kube, api):
    (kube.claim("shared") / "team-a").mkdir(mode=0o755)
    with pytest.raises(TransferError, match="Permission denied") as caught:
        lost(api, pod(restricted=True), probe=CODE)
    text = str(caught.value)
    assert "/nemo_run has mode drwxr-xr-x, owner 0, group 0; the pod runs as uid 1000, groups" in text
    assert 'data_mover={"securityContext": {"runAsUser": 0, "runAsGroup": 0}}' in text


def test_the_probe_leaves_nothing_behind(kube, api):
    with data_mover(api, pod(), restricted=None, probe=CODE):
        assert seen(kube.claim("shared") / "team-a") == {}


def test_finished_leftovers_are_swept_and_running_ones_are_left(kube, api):
    ended = pod()
    ended["spec"]["containers"][0]["command"] = ["sh", "-c", "exit 0"]
    api.create(POD, "default", {**ended, "metadata": {**ended["metadata"], "name": "ended"}})
    api.create(POD, "default", {**ended, "metadata": {"name": "of-another", "namespace": "default"}})
    _soon(lambda: {found["status"]["phase"] for found in api.list(POD, "default")} == {"Succeeded"})
    with data_mover(api, pod(), restricted=None) as ref:
        assert sweep(api, "default", LABELS) == ["ended"]
        _soon(lambda: sorted(pods(api)) == sorted([ref.name, "of-another"]))


def test_a_sweep_without_the_right_to_list_is_no_error(kube, api, caplog):
    kube.rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    with caplog.at_level(logging.INFO, "nemo_run"):
        assert sweep(api, "default", LABELS) == []
    assert "could not look for leftover copy pods" in caplog.text


ROLE = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "get", "delete"]},
    {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"]},
]


def test_the_rights_that_are_checked_are_enough(kube, api, tmp_path):
    kube.rules = ROLE
    check_rights(api, "default")
    with data_mover(api, pod(), restricted=None, probe=CODE) as ref:
        send_tree(api, ref, plant(tmp_path / "source"), CODE, spool_dir=tmp_path)


def test_rights_that_cannot_be_asked_for_are_no_error(kube, api, caplog):
    refused = Respond(403, on="POST */selfsubjectaccessreviews", reason="Forbidden", message="no")
    with caplog.at_level(logging.INFO, "nemo_run"), kube.fault(refused):
        check_rights(api, "default")
    assert "cannot ask for our rights" in caplog.text


def test_every_missing_right_is_named(kube, api):
    kube.rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "create"]}]
    with pytest.raises(NotAuthorized, match=r"missing: delete pods, get pods/exec, create pods/exec"):
        check_rights(api, "default")
