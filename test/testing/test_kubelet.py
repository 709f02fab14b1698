"""Pods as the kubelet runs them: files, environment, logs, exec, ends, restarts, faults."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from nodes import Working, working

from nemo_run._kube.resources import CONFIG_MAP, POD, SECRET
from nemo_run.testing import _containerrun
from nemo_run.testing._errors import ApiError
from nemo_run.testing._faults import Pod as PodFault

Json = dict[str, Any]

ROOT = os.geteuid() == 0
needs_root = pytest.mark.skipif(not ROOT, reason="about uids, of which only root can give several")

AT_TEAM_A = {"volumeMounts": [{"name": "work", "mountPath": "/nemo_run", "subPath": "team-a/alice"}]}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Working]:
    with working(tmp_path) as node:
        yield node


def env(**values: str) -> Json:
    return {"env": [{"name": name, "value": value} for name, value in values.items()]}


def test_files_reach_the_claim_below_the_sub_path(node):
    """Which the kubelet makes, open to root alone, where it is missing."""
    node.output("a", "echo one > /nemo_run/file", container=AT_TEAM_A)
    assert (node.claim / "team-a" / "alice" / "file").read_text() == "one\n"
    assert [oct((node.claim / path).stat().st_mode) for path in ("team-a", "team-a/alice")] == ["0o40755", "0o40755"]
    assert {(node.claim / "team-a").stat().st_uid} == {os.geteuid()}


def test_two_pods_share_a_claim(node):
    whole = {"volumeMounts": [{"name": "work", "mountPath": "/data"}]}
    node.run_pod("reader", "until cat /data/team-a/alice/file 2>/dev/null; do sleep 0.05; done", container=whole)
    node.run_pod("writer", "echo shared > /nemo_run/.f && mv /nemo_run/.f /nemo_run/file", container=AT_TEAM_A)
    assert node.finished("reader")["status"]["phase"] == "Succeeded"
    assert node.log("reader") == b"shared\n"


def test_a_read_only_mount_cannot_be_written(node):
    mount = {"volumeMounts": [{"name": "work", "mountPath": "/data", "readOnly": True}]}
    assert node.output("a", "touch /data/x 2>&1 || true", container=mount) == (
        "touch: cannot touch '/data/x': Read-only file system\n"
    )


def test_a_sub_path_that_leads_out_of_its_volume_is_no_mount(node, tmp_path):
    (node.claim / "out").symlink_to("/etc")
    mount = {"volumeMounts": [{"name": "work", "mountPath": "/data", "subPath": "out"}]}
    node.run_pod("a", "true", container=mount)
    waiting = node.until(lambda: _waiting(node, "a"), lambda state: state.get("message"))
    assert waiting == {
        "reason": "CreateContainerConfigError",
        "message": "failed to prepare subPath for volumeMount \"work\": subpath 'out' not within volume path",
    }


def _waiting(node: Working, name: str) -> Json:
    statuses = node.get(name)["status"].get("containerStatuses", [])
    found: Json = statuses[0]["state"].get("waiting", {}) if statuses else {}
    return found


VALUES = {
    "SPACES": "  two  spaces ",
    "QUOTES": 'it\'s "quoted" `and` \\ so',
    "LINES": "first\nsecond\n",
    "LETTERS": "é 日本",
    "DOLLAR": "$HOME ${HOME} $(",
    "EMPTY": "",
}


def test_environment_values_arrive_byte_for_byte(node):
    """But for ``$$`` and ``$(NAME)``, which the kubelet rewrites."""
    script = "for name in SPACES QUOTES LINES LETTERS DOLLAR EMPTY; do printenv $name > /nemo_run/$name; done; true"
    node.output("a", script, container={**AT_TEAM_A, **env(**VALUES)})
    found = {name: (node.claim / "team-a/alice" / name).read_bytes() for name in VALUES}
    assert found == {name: f"{value}\n".encode() for name, value in VALUES.items()}


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("$$HOME", "$HOME"),
        ("$$$$", "$$"),
        ("$(A)/x", "one/x"),
        ("$$(A)", "$(A)"),
        ("$(LATER)", "$(LATER)"),
        ("$(NONE) $x $", "$(NONE) $x $"),
        ("$(A)$(A)$$(B)", "oneone$(B)"),
    ],
)
def test_dollars_are_rewritten_as_the_kubelet_does(tmp_path, written, seen):
    """In command, args and env values alike; a value sees only those before it."""
    from nemo_run.testing._environment import environment, expand

    assert expand(written, {"A": "one"}) == seen
    entries = [{"name": "A", "value": "one"}, {"name": "B", "value": written}, {"name": "LATER", "value": "l"}]
    pod = {"metadata": {"name": "p", "namespace": "default"}, "spec": {}}

    def nothing(*_: object) -> Json:
        raise AssertionError

    assert environment(pod, {"env": entries}, nothing)["B"] == seen


def test_arguments_are_rewritten_too(node):
    """So that a script's own dollars have to be doubled."""
    text = node.output("a", 'printf \'%s|\' "$$1" "$(A)" "$$(echo sub)"', "$(A) $$A", container=env(A="one"))
    assert text == "one $A|one|sub|\n"


def test_environment_from_fields_secrets_and_config_maps(node):
    node.create(SECRET, _holder("Secret", "keys", data={"token": "c2VjcmV0"}))
    node.create(CONFIG_MAP, _holder("ConfigMap", "settings", data={"mode": "fast", "level": "3"}))
    entries = [
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['team']"}}},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}},
        {"name": "MODE", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "mode"}}},
        {"name": "ABSENT", "valueFrom": {"secretKeyRef": {"name": "none", "key": "k", "optional": True}}},
    ]
    container = {"env": entries, "envFrom": [{"configMapRef": {"name": "settings"}, "prefix": "S_"}]}
    pod = {"restartPolicy": "Never", "containers": [_main("env | sort", **container)]}
    meta = {"name": "a", "labels": {"team": "blue"}}
    node.create(POD, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod})
    node.finished("a")
    found = dict(line.split("=", 1) for line in node.log("a").decode().splitlines())
    own = {name: found.pop(name) for name in ("PATH", "HOME", "HOSTNAME", "PWD")}
    assert own["HOSTNAME"] == "a"
    assert found == {
        "NAME": "a",
        "LABEL": "blue",
        "TOKEN": "secret",
        "MODE": "fast",
        "S_mode": "fast",
        "S_level": "3",
        **{key: value for key, value in found.items() if key in ("SHLVL", "_", "OLDPWD")},
    }


def _holder(kind: str, name: str, **fields: Any) -> Json:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **fields}


def _main(script: str, **fields: Any) -> Json:
    return {"name": "main", "image": "any", "command": ["sh", "-c", script.replace("$", "$$")], **fields}


def test_a_container_waits_for_its_secret(node):
    entry = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "late", "key": "token"}}}
    node.run_pod("a", "echo $$TOKEN", container={"env": [entry]})
    waiting = node.until(lambda: _waiting(node, "a"), lambda state: state.get("message"))
    assert waiting == {"reason": "CreateContainerConfigError", "message": 'secret "late" not found'}
    node.create(SECRET, _holder("Secret", "late", stringData={"token": "t"}))
    node.finished("a")
    assert node.log("a") == b"t\n"


def test_volumes_of_config_maps_secrets_and_empty_directories(node):
    node.create(CONFIG_MAP, _holder("ConfigMap", "settings", data={"a.ini": "a\n", "b.ini": "b\n"}))
    node.create(SECRET, _holder("Secret", "keys", data={"key": "c2VjcmV0"}))
    volumes = [
        {"name": "settings", "configMap": {"name": "settings", "items": [{"key": "a.ini", "path": "x/y.ini"}]}},
        {"name": "keys", "secret": {"secretName": "keys", "defaultMode": 0o400}},
        {"name": "scratch", "emptyDir": {}},
    ]
    mounts = [{"name": volume["name"], "mountPath": f"/v/{volume['name']}"} for volume in volumes]
    script = "cd /v; find settings keys -type f | sort; cat settings/x/y.ini keys/key; stat -c %a keys/key scratch"
    text = node.output("a", script, container={"volumeMounts": mounts}, volumes=volumes)
    assert text.splitlines() == ["keys/key", "settings/x/y.ini", "a", "secret400", "777"]


def test_a_missing_config_map_keeps_the_pod_from_starting(node):
    volumes = [{"name": "settings", "configMap": {"name": "late"}}]
    mounts = {"volumeMounts": [{"name": "settings", "mountPath": "/s"}]}
    node.run_pod("a", "cat /s/k", container=mounts, volumes=volumes)
    message = 'MountVolume.SetUp failed for volume "settings" : configmap "late" not found'
    node.until(lambda: ("FailedMount", message) in node.events("a"))
    node.create(CONFIG_MAP, _holder("ConfigMap", "late", data={"k": "v"}))
    node.finished("a")
    assert node.log("a") == b"v"[:1] + b"\n"


def test_the_containers_of_a_pod_run_together(node):
    """They share volumes, network and name; each has its own log."""
    mounts = {"volumeMounts": [{"name": "scratch", "mountPath": "/s"}]}
    writer = {**_main("hostname > /s/.f; mv /s/.f /s/f; echo wrote"), "name": "writer", **mounts}
    reader = {**_main("until cat /s/f 2>/dev/null; do sleep 0.05; done"), "name": "reader", **mounts}
    spec = {"restartPolicy": "Never", "volumes": [{"name": "scratch", "emptyDir": {}}], "containers": [writer, reader]}
    node.create(POD, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pair"}, "spec": spec})
    assert node.finished("pair")["status"]["phase"] == "Succeeded"
    assert (node.log("pair", "writer"), node.log("pair", "reader")) == (b"wrote\n", b"pair\n")
    with pytest.raises(ApiError, match=r"a container name must be specified for pod pair, choose one of: \[.*\]"):
        node.log("pair")
    with pytest.raises(ApiError, match="container other is not valid for pod pair"):
        node.log("pair", "other")


def test_init_containers_come_first_and_sidecars_stay(node):
    mounts = {"volumeMounts": [{"name": "work", "mountPath": "/w"}]}
    sidecar = {
        **_main("trap 'echo side ends >> /w/order; exit 0' TERM; echo side >> /w/order; sleep 600 & wait"),
        **mounts,
    }
    early = [
        {**sidecar, "name": "side", "restartPolicy": "Always"},
        {**_main("until [ -s /w/order ]; do sleep 0.02; done; echo first >> /w/order"), "name": "first", **mounts},
        {**_main("echo second >> /w/order"), "name": "second", **mounts},
    ]
    node.run_pod("a", "echo main >> /w/order", container=mounts, initContainers=early)
    pod = node.finished("a")
    assert pod["status"]["phase"] == "Succeeded"
    assert (node.claim / "order").read_text().split("\n") == ["side", "first", "second", "main", "side ends", ""]
    assert [status["name"] for status in pod["status"]["initContainerStatuses"]] == ["side", "first", "second"]


def test_a_failed_init_container_fails_the_pod(node):
    node.run_pod("a", "true", initContainers=[{**_main("exit 2"), "name": "early"}])
    status = node.finished("a")["status"]
    assert status["phase"] == "Failed"
    assert status["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 2
    assert status["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}


def test_the_status_tells_how_a_pod_ended(node):
    node.run_pod("a", "exit 3")
    status = node.finished("a")["status"]
    ended = status["containerStatuses"][0]
    times = {"startedAt", "finishedAt", "containerID"}
    assert {key: value for key, value in ended["state"]["terminated"].items() if key not in times} == {
        "exitCode": 3,
        "reason": "Error",
    }
    assert times < set(ended["state"]["terminated"])
    assert {key: ended[key] for key in ("name", "image", "ready", "started", "restartCount", "lastState")} == {
        "name": "main",
        "image": "any",
        "ready": False,
        "started": False,
        "restartCount": 0,
        "lastState": {},
    }
    conditions = {each["type"]: (each["status"], each.get("reason")) for each in status["conditions"]}
    assert conditions == {
        "PodScheduled": ("True", None),
        "PodReadyToStartContainers": ("True", None),
        "Initialized": ("True", None),
        "ContainersReady": ("False", "PodCompleted"),
        "Ready": ("False", "PodCompleted"),
    }
    assert node.get("a")["spec"]["nodeName"] == "local-kube"
    assert [reason for reason, _ in sorted(node.events("a"))] == ["Created", "Pulled", "Scheduled", "Started"]


def test_a_running_pod_is_ready(node):
    node.run_pod("a", "sleep 600")
    status = node.phase("a", "Running")["status"]
    assert {each["type"] for each in status["conditions"] if each["status"] == "True"} >= {"Ready", "ContainersReady"}
    assert status["containerStatuses"][0]["ready"] is True
    assert list(status["containerStatuses"][0]["state"]) == ["running"]


def test_a_command_that_is_not_in_the_image_cannot_start(node):
    node.run_pod("a", "", container={"command": ["no-such-command"]})
    ended = node.finished("a")["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (128, "StartError")
    assert 'exec: "no-such-command": executable file not found in $PATH' in ended["message"]


def test_a_failing_container_is_restarted_in_place(node):
    """With OnFailure, until it succeeds; the last run's end and log stay to be read."""
    script = 'echo "run $$(cat /w/n 2>/dev/null)"; [ -e /w/n ] && exit 0; echo again > /w/n; exit 5'
    mounts = {"volumeMounts": [{"name": "work", "mountPath": "/w"}]}
    node.run_pod("a", script, container=mounts, restartPolicy="OnFailure")
    status = node.phase("a", "Succeeded")["status"]["containerStatuses"][0]
    assert (status["restartCount"], status["lastState"]["terminated"]["exitCode"]) == (1, 5)
    assert node.log("a") == b"run again\n"
    assert node.log("a", previous=True) == b"run \n"


def test_what_a_container_wrote_last_can_be_read_while_its_pod_is_deleted(node, monkeypatch):
    """The kubelet looks once a second, and lets no pod go before it knows of its container's end."""
    monkeypatch.setattr(_containerrun, "RELIST", 2.0)
    node.run_pod("a", "echo last; exit 5", restartPolicy="OnFailure")
    node.until(lambda: node.get("a")["status"], lambda status: "terminated" in _state(status))
    node.delete("a")
    assert node.log("a") == b"last\n"
    node.until(lambda: [pod["metadata"]["name"] for pod in node.list()], lambda names: "a" not in names)


def _state(status: dict) -> dict:
    (container,) = status.get("containerStatuses") or [{}]
    return container.get("state") or {}


def test_a_container_that_keeps_failing_is_backed_off(node):
    node.run_pod("a", "echo once; exit 1", restartPolicy="Always")
    waiting = node.until(lambda: _waiting(node, "a"), lambda state: state.get("reason") == "CrashLoopBackOff")
    assert waiting["message"].startswith("back-off ")
    assert node.get("a")["status"]["phase"] == "Running"
    assert "BackOff" in dict(node.events("a"))


def test_logs_can_be_asked_for_in_parts(node):
    node.output("a", "echo one; echo two >&2; printf 'three'")
    assert node.log("a") == b"one\ntwo\nthree\n"
    assert node.log("a", tail_lines=2) == b"two\nthree\n"
    assert node.log("a", tail_lines=0) == b""
    assert node.log("a", limit_bytes=5) == b"one\nt"
    stamped = [line.split(b" ", 1) for line in node.log("a", timestamps=True).splitlines()]
    assert [text for _, text in stamped] == [b"one", b"two", b"three"]
    stamps = [stamp.decode() for stamp, _ in stamped]
    assert stamps == sorted(set(stamps))
    assert {(len(stamp), stamp[-1]) for stamp in stamps} == {(30, "Z")}
    now = datetime.now(timezone.utc)
    assert node.log("a", since_time=now + timedelta(hours=1)) == b""
    assert node.log("a", since_time=now - timedelta(hours=1)) == b"one\ntwo\nthree\n"
    with pytest.raises(ApiError, match='previous terminated container "main" in pod "a" not found'):
        node.log("a", previous=True)


def test_long_lines_and_odd_bytes_stay_whole(node):
    script = "import sys; o = sys.stdout.buffer; o.write(b'x' * 100000 + b'\\n\\xff\\0\\r\\n' + b'y' * 40000)"
    node.run_pod("a", "", container={"command": ["python", "-c", script]})
    node.finished("a")
    assert node.log("a") == b"x" * 100000 + b"\n\xff\0\r\n" + b"y" * 40000 + b"\n"
    assert node.log("a", tail_lines=1) == b"y" * 40000 + b"\n"
    stamped = node.log("a", timestamps=True)
    assert len(stamped) == len(node.log("a")) + 3 * len("2024-05-06T07:08:09.123456789Z ")


def test_following_a_log_ends_with_the_container(node):
    node.run_pod(
        "a",
        "echo one; until [ -e /w/go ]; do sleep 0.02; done; echo two",
        container={"volumeMounts": [{"name": "work", "mountPath": "/w"}]},
    )
    node.phase("a", "Running")

    async def follow() -> list[bytes]:
        parts = []
        async for part in node.kubelet.log("default", "a", None, follow=True):
            parts.append(part)
            (node.claim / "go").touch()
        return parts

    assert node.loop.run(follow()) == [b"one\n", b"two\n"]


def test_a_container_that_has_not_started_has_no_log(node):
    with node.cluster.faults.active(PodFault("a", "ImagePullBackOff")):
        node.run_pod("a", "true")
        node.until(lambda: _waiting(node, "a").get("reason") in ("ErrImagePull", "ImagePullBackOff"))
        with pytest.raises(ApiError, match=r'container "main" in pod "a" is waiting to start: (ErrI|I)magePull'):
            node.log("a")
    with pytest.raises(ApiError, match='pods "b" not found'):
        node.log("b")


def test_commands_run_in_a_pod(node):
    node.run_pod("a", "sleep 600", container={"image": "alpine:3.19", **AT_TEAM_A, "workingDir": "/nemo_run"})
    node.phase("a", "Running")
    script = "head -c 5 > in; echo out; echo err >&2; pwd; exit 3"
    assert node.exec("a", "sh", "-c", script, stdin=b"12345") == (3, b"out\n/nemo_run\n", b"err\n")
    assert (node.claim / "team-a/alice/in").read_bytes() == b"12345"
    with pytest.raises(ApiError, match="executable file not found") as refused:
        node.exec("a", "no-such-command")
    assert refused.value.status == 500


def test_a_megabyte_goes_through_a_command(node):
    node.run_pod("a", "sleep 600", container={"image": "alpine:3.19"})
    node.phase("a", "Running")
    data = os.urandom(1 << 20)
    assert node.exec("a", "head", "-c", str(len(data)), stdin=data) == (0, data, b"")


def test_no_command_runs_in_a_pod_that_is_not_there_or_has_ended(node):
    node.output("a", "true")
    with pytest.raises(ApiError, match="cannot exec into a container in a completed pod; current phase is Succeeded"):
        node.exec("a", "true")
    with pytest.raises(ApiError, match='pods "b" not found'):
        node.exec("b", "true")


def test_a_pod_that_handles_term_goes_at_once(node):
    script = "trap 'exit 0' TERM; echo ready; sleep 600 & wait"
    node.run_pod("a", script, terminationGracePeriodSeconds=30)
    node.until(lambda: _log_of(node, "a") == b"ready\n")
    start = time.monotonic()
    node.delete("a")
    assert "deletionTimestamp" in node.get("a")["metadata"]
    node.until(lambda: node.list() == [])
    assert time.monotonic() - start < 20
    assert not list((node.home / "pods").iterdir())


def _log_of(node: Working, name: str) -> bytes:
    try:
        return node.log(name)
    except ApiError:
        return b""


@pytest.mark.parametrize("grace", [None, 0])
def test_a_pod_that_ignores_term_is_killed_after_its_grace_period(node, grace):
    node.run_pod("a", "trap '' TERM; echo ready; while :; do sleep 0.05; done", terminationGracePeriodSeconds=1)
    node.until(lambda: _log_of(node, "a") == b"ready\n")
    start = time.monotonic()
    node.delete("a", grace=grace)
    node.until(lambda: node.list() == [])
    assert (time.monotonic() - start >= 1) is (grace is None)


def test_a_deadline_ends_a_pod(node):
    node.run_pod("a", "trap 'exit 0' TERM; sleep 600 & wait", activeDeadlineSeconds=1)
    status = node.phase("a", "Failed")["status"]
    assert (status["reason"], status["message"]) == (
        "DeadlineExceeded",
        "Pod was active on the node longer than the specified deadline",
    )


def test_a_pod_waits_for_its_claim(tmp_path):
    with working(tmp_path, claims=["other"]) as node:
        node.run_pod("a", "true")
        pod = node.until(lambda: node.get("a"), lambda pod: pod["status"].get("conditions"))
        condition = pod["status"]["conditions"][0]
        assert (condition["type"], condition["status"], condition["reason"]) == (
            *("PodScheduled", "False"),
            "Unschedulable",
        )
        assert condition["message"].startswith(
            '0/1 nodes are available: persistentvolumeclaim "shared" not found. preemption: '
        )
        assert "FailedScheduling" in dict(node.events("a"))
        node.do(lambda store: node.cluster.make_claim("default", "shared"))
        assert node.finished("a")["status"]["phase"] == "Succeeded"


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("ImagePullBackOff", "Failed"), ("Unschedulable", "FailedScheduling"), ("FailedMount", "FailedMount")],
)
def test_a_fault_holds_a_pod_up_while_it_lasts(node, kind, reason):
    with node.cluster.faults.active(PodFault("a", kind)):
        node.run_pod("a", "true")
        node.until(lambda: reason in dict(node.events("a")))
        assert node.get("a")["status"].get("phase") == "Pending"
    assert node.finished("a")["status"]["phase"] == "Succeeded"


def test_a_container_can_run_out_of_memory(node):
    with node.cluster.faults.active(PodFault("a", "OOMKilled", after=0.1, times=1)):
        node.run_pod(
            "a",
            "[ -e /w/n ] || { touch /w/n; sleep 600; }",
            restartPolicy="OnFailure",
            container={"volumeMounts": [{"name": "work", "mountPath": "/w"}]},
        )
        status = node.phase("a", "Succeeded")["status"]["containerStatuses"][0]
    last = status["lastState"]["terminated"]
    assert (last["exitCode"], last["reason"], status["restartCount"]) == (137, "OOMKilled", 1)


def test_a_pod_can_run_without_getting_ready(node):
    with node.cluster.faults.active(PodFault("a", "never-ready")):
        node.run_pod("a", "sleep 600")
        status = node.phase("a", "Running")["status"]
    ready = next(each for each in status["conditions"] if each["type"] == "Ready")
    assert (ready["status"], ready["reason"], ready["message"]) == (
        *("False", "ContainersNotReady"),
        "containers with unready status: [main]",
    )


def test_a_container_must_not_be_root_if_it_says_so(node):
    node.run_pod("a", "true", securityContext={"runAsNonRoot": True})
    waiting = node.until(lambda: _waiting(node, "a"), lambda state: state.get("message"))
    assert waiting["reason"] == "CreateContainerConfigError"
    assert waiting["message"].startswith("container has runAsNonRoot and image will run as root")


def test_one_uid_is_all_that_others_than_root_can_give(tmp_path):
    with working(tmp_path, isolation="user") as node:
        node.run_pod("a", "true", securityContext={"runAsUser": 1000})
        waiting = node.until(lambda: _waiting(node, "a"), lambda state: state.get("message"))
        assert "a LocalKube that is not run by root has one uid only, 0" in waiting["message"]


@needs_root
@pytest.mark.root
def test_another_user_writes_only_where_it_may(node):
    """The directory that the kubelet makes for a subPath is root's."""
    script = "id -u; touch /nemo_run/f 2>&1; touch /open/f && echo written; touch /usr/f 2>&1; true"
    mounts = [*AT_TEAM_A["volumeMounts"], {"name": "work", "mountPath": "/open"}]
    context = {"runAsUser": 1000, "runAsGroup": 1000}
    text = node.output("a", script, container={"volumeMounts": mounts}, securityContext=context)
    assert text.splitlines() == [
        *("1000", "touch: cannot touch '/nemo_run/f': Permission denied", "written"),
        "touch: cannot touch '/usr/f': Read-only file system",
    ]
    assert ((node.claim / "f").stat().st_uid, (node.claim / "f").stat().st_gid) == (1000, 1000)


@needs_root
@pytest.mark.root
def test_fs_group_opens_a_volume_to_its_group(node):
    node.claim.chmod(0o755)
    context = {"runAsUser": 1000, "fsGroup": 2000}
    mounts = {"volumeMounts": [{"name": "work", "mountPath": "/w"}]}
    node.output("a", "touch /w/f", container=mounts, securityContext=context)
    assert ((node.claim / "f").stat().st_uid, (node.claim / "f").stat().st_gid) == (1000, 2000)


@needs_root
@pytest.mark.root
def test_fs_group_opens_new_sub_path_directories_too(node):
    """They get the volume's own mode and, by setgid, its group."""
    node.claim.chmod(0o755)
    mounts = {"volumeMounts": [{"name": "work", "mountPath": "/w", "subPath": "team/a"}]}
    node.output("a", "touch /w/f", container=mounts, securityContext={"runAsUser": 1000, "fsGroup": 2000})
    facts = [(node.claim / path).stat() for path in ("team", "team/a", "team/a/f")]
    assert [(each.st_uid, each.st_gid) for each in facts] == [(0, 2000), (0, 2000), (1000, 2000)]
    assert [oct(each.st_mode & 0o7777) for each in facts[:2]] == ["0o2775", "0o2775"]
    node.output("b", "true", container={"volumeMounts": [{**mounts["volumeMounts"][0], "subPath": "plain"}]})
    plain = (node.claim / "plain").stat()
    assert (plain.st_uid, oct(plain.st_mode & 0o777)) == (0, "0o755")


def test_a_claim_that_is_declared_read_only_is(node):
    volume = {"name": "work", "persistentVolumeClaim": {"claimName": "shared", "readOnly": True}}
    mounts = {"volumeMounts": [{"name": "work", "mountPath": "/w"}]}
    assert "Read-only" in node.output("a", "touch /w/f 2>&1 || true", container=mounts, volumes=[volume])


def test_pods_end_with_their_kubelet(tmp_path):
    marker = f"600.{time.time_ns()}"
    with working(tmp_path) as node:
        node.run_pod("a", f"sleep {marker} & wait")
        node.until(lambda: _processes(marker))
    assert _processes(marker) == []
    assert not list((tmp_path / "pods").iterdir())


def _processes(marker: str) -> list[str]:
    """Give the ids of the processes with *marker* in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if marker in (entry / "cmdline").read_text():
                found.append(entry.name)
        except OSError:
            continue
    return found
