"""The command on its way to the head: through the submitter's bash, and put together again by ``ray job submit``."""

import shlex
import subprocess

import pytest

from nemo_run.core.execution._rayjob import RayJobSpec, entrypoint, runner_path, runner_text, shell_text
from nemo_run.core.execution.kuberay import KubeRayExecutor

COMMANDS = {
    "shell": """echo a && python3 -c 'print("$HOME `id` (1)")' | cat; echo $(( 1 + 1 )); exit 3""",
    "lines": "X='é'\necho \"$X\"\nfor i in 1 2; do\n  echo $i\ndone",
    "here-document": "cat <<'END'\n$HOME \\ \" ' `x`\nEND",
    "input": "cat; echo end",
    "exit": "exit 7",
    "backslash": r"printf '%s\n' 'a\b' \\ \"",
    "last-backslash": "echo a\\\\",
    "bytes": "printf '\udcff'",
}
JOINERS = {"2.43": subprocess.list2cmdline, "2.60": shlex.join}


def on_the_head(text, join, cwd):
    """Run an entrypoint as KubeRay and Ray do: its words come out of one bash and go into another."""
    words = (
        subprocess.run(
            ["bash", "-ce", f"printf '%s\\0' {text}"], capture_output=True, check=True, stdin=subprocess.DEVNULL
        )
        .stdout.decode("utf-8", "surrogateescape")
        .split("\0")[:-1]
    )
    return outcome(["bash", "-c", join(words)], cwd)


def outcome(command, cwd):
    done = subprocess.run(command, capture_output=True, cwd=cwd, stdin=subprocess.DEVNULL, check=False)
    return done.returncode, done.stdout


@pytest.mark.parametrize("ray", JOINERS)
@pytest.mark.parametrize("name", COMMANDS)
def test_in_the_manifest_it_runs_as_in_a_shell(name, ray, tmp_path):
    job = RayJobSpec(name="x", command=COMMANDS[name])
    expected = outcome(["bash", "-c", COMMANDS[name]], tmp_path)
    assert on_the_head(entrypoint(job), JOINERS[ray], tmp_path) == expected


@pytest.mark.parametrize("subpath", ["code", "a b/$c'd\"e"], ids=["plain", "odd"])
@pytest.mark.parametrize("ray", JOINERS)
@pytest.mark.parametrize("name", COMMANDS)
def test_in_a_file_it_runs_as_in_a_shell(name, ray, subpath, tmp_path):
    executor = KubeRayExecutor(
        volumes=[{"name": "w", "persistentVolumeClaim": {"claimName": "c"}}],
        workdir_volume_mount={"name": "w", "mountPath": str(tmp_path)},
        code_subpath=subpath,
    )
    job = RayJobSpec(name="x", command=COMMANDS[name], layout=executor.workdir(), synced=True)
    file = tmp_path / subpath / runner_path(job)
    file.parent.mkdir(parents=True)
    file.write_bytes(runner_text(job).encode("utf-8", "surrogateescape"))
    expected = outcome(["bash", "-c", COMMANDS[name]], tmp_path)
    assert on_the_head(entrypoint(job), JOINERS[ray], tmp_path) == expected


@pytest.mark.parametrize("ray", JOINERS)
def test_an_argv_list_arrives_as_it_is(ray, tmp_path):
    words = ["a b", "$HOME", "`id`", "", "it's", '"q"', "\\", "é", "*", "x\ny"]
    job = RayJobSpec(name="x", command=shell_text(["printf", "%s\\0", *words]))
    assert on_the_head(entrypoint(job), JOINERS[ray], tmp_path) == (0, "".join(f"{word}\0" for word in words).encode())
