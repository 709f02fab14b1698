"""Commands before Ray starts, run the way KubeRay and the kubelet run them."""

import re
import subprocess

import pytest

from nemo_run.core.execution.kuberay import KubeRayExecutor, KubeRayWorkerGroup
from nemo_run.exceptions import ConfigError


def commands(*lines, **fields):
    """Give the Ray containers' commands."""
    executor = KubeRayExecutor(worker_groups=[KubeRayWorkerGroup("a")], **fields)
    spec = executor.get_cluster_body("mine", pre_ray_start_commands=lines)["spec"]
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    return [group["template"]["spec"]["containers"][0].get("command") for group in groups]


def run(*lines, then="echo started", environment=None, **fields):
    """Run the command as KubeRay 1.7 pod.go joins it, behind the kubelet's rewriting."""
    (head, worker) = commands(*lines, **fields)
    assert head == worker
    text = re.sub(r"\$\$", "$", " ".join(head))
    script = f"{text} && ulimit -n 100; {then}"
    env = {"PATH": "/usr/bin:/bin", **(environment or {})}
    done = subprocess.run(["/bin/bash", "-c", "--", script], capture_output=True, text=True, timeout=60, env=env)
    return done.returncode, done.stdout


def test_exports_reach_ray():
    assert run("export A='x  y'", 'export B="$A z"', then='printf "%s|" "$A" "$B"') == (0, "x  y|x  y z|")


def test_a_command_that_fails_keeps_ray_from_starting():
    assert run("echo one", "false", "echo two") == (1, "one\n")


@pytest.mark.parametrize(
    "text",
    ["it's", 'a "b" c', "$HOME", "$$", "$(A)", "`id`", "line\nbreak", "a & b; c | d", "é", "--", "\\n"],
)
def test_text_stays_text(text):
    quoted = "'" + text.replace("'", "'\\''") + "'"
    assert run(f"X={quoted}", then='printf %s "$X"') == (0, text)


def test_several_lines_are_one_command():
    assert run("if true\nthen\n  export A=1\nfi", then="echo $A") == (0, "1\n")


def test_a_variable_may_extend_its_former_value():
    assert run(
        env_vars={"PYTHONPATH": "/x:$PYTHONPATH"}, environment={"PYTHONPATH": "/image"}, then="echo $PYTHONPATH"
    ) == (0, "/x:/image\n")


def test_variables_come_before_commands():
    assert run('echo "$P"', env_vars={"P": "/x:$P"}, environment={"P": "/image"}, then="true") == (0, "/x:/image\n")


def test_none_at_all_leave_the_command_to_the_image():
    assert commands() == [None, None]


@pytest.mark.parametrize("command", ["ray start --head", "x && ray  start", "ray\tstart"])
def test_ray_start_is_kuberays(command):
    with pytest.raises(ConfigError, match="leave 'ray start' out"):
        commands(command)


@pytest.mark.parametrize("command", ["ray status", "array started", "echo ray-start"])
def test_what_only_looks_like_it_is_not(command):
    assert commands(command)[0] == [f"eval '{command}' || exit 1"]


@pytest.mark.parametrize("key", ["command", "args"])
def test_a_command_of_the_users_own_is_not_overwritten(key):
    assert commands(container_kwargs={"command": ["x"]}) == [["x"], ["x"]]
    with pytest.raises(ConfigError, match="write it into pre_ray_start_commands"):
        commands("true", container_kwargs={key: ["x"]})


@pytest.mark.parametrize("given", ["export A=5", [1], ["true", None]], ids=["text", "number", "nothing"])
def test_what_is_no_list_of_commands_is_refused(given):
    with pytest.raises(ConfigError, match="write a list of shell commands"):
        KubeRayExecutor().get_cluster_body("mine", pre_ray_start_commands=given)
