"""What the launch script's bash hands to the process, with a real bash and an empty environment."""

from __future__ import annotations

import subprocess
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_run.core.execution._env import Export
from nemo_run.core.execution._script import (
    ARGUMENT_MAX,
    START_MAX,
    Workdir,
    check_start,
    launch_script,
    quoted,
    with_parents,
)
from nemo_run.exceptions import ConfigError

SHOW = ["bash", "-c", 'printf "%s\\0" "$@"; env -0 >&2', "show"]
"""A program that writes its arguments to stdout and its environment to stderr, each ended by NUL."""


def ran(script: str, env: dict[str, str] | None = None) -> tuple[list[str], dict[str, str]]:
    """Run *script* and give the arguments and the environment that SHOW saw."""
    done = subprocess.run(
        ["env", "-i", "PATH=/usr/bin:/bin", *(f"{k}={v}" for k, v in (env or {}).items()), "/bin/bash", "-c", script],
        capture_output=True,
        check=True,
        timeout=30,
    )
    arguments = [part.decode("utf-8", "surrogateescape") for part in done.stdout.split(b"\0")[:-1]]
    variables = [part.decode("utf-8", "surrogateescape") for part in done.stderr.split(b"\0")[:-1]]
    return arguments, dict(variable.split("=", 1) for variable in variables)


def arguments_of(*arguments: str, env: dict[str, str] | None = None, workdir: Workdir | None = None) -> list[str]:
    return ran(launch_script([*SHOW, *arguments], exports=(), workdir=workdir), env)[0]


@pytest.mark.parametrize(
    "argument",
    [
        "",
        "a b",
        " both ends ",
        "it's",
        '"q"',
        "$X",
        "${X}",
        "$$",
        "$$X",
        "$(X)",
        "$(id)",
        "`id`",
        "line 1\nline 2\n",
        "tab\there",
        "é ü 漢字 🚀",
        "back\\slash \\$X \\\\",
        "{}[]*?~!#;&|<>()",
        "~/x",
        "-n",
        "--",
        "${X:-default} ${X#a} ${!X} ${#X}",
        "$1 $@ $? $! $- $_ $0",
        "$",
        "a=$X}b",
        "'$X'\"$X\"",
        '{"a": [1, "b c"], "d": {}}',
    ],
)
def test_an_argument_reaches_the_process_as_written(argument):
    assert arguments_of(argument, "end") == [argument, "end"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.sampled_from("$$${}()X\"'\\`\n !*-=é"), max_size=12), min_size=1, max_size=4))
def test_any_argument_reaches_the_process_as_written(arguments):
    assert arguments_of(*arguments) == arguments


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("$PET_NODE_RANK", "1"),
        ("${PET_NODE_RANK}", "1"),
        ("--rank=$PET_NODE_RANK/${PET_NNODES}x", "--rank=1/2x"),
        ("$PET_NODE_RANK $UNSET ${UNSET}", "1 $UNSET ${UNSET}"),
        ("$PET_NODE_RANKS", "$PET_NODE_RANKS"),
        ("$$PET_NODE_RANK", "$$PET_NODE_RANK"),
        ("'$PET_NODE_RANK'", "'1'"),
        ("$EMPTY|", "|"),
        ("$ODD", "a  b*`id`$PET_NODE_RANK\"'\n"),
    ],
)
def test_a_variable_that_is_set_expands_once_and_stays_one_word(argument, expected):
    env = {"PET_NODE_RANK": "1", "PET_NNODES": "2", "EMPTY": "", "ODD": "a  b*`id`$PET_NODE_RANK\"'\n"}
    assert arguments_of(argument, env=env) == [expected]


def test_a_plain_argument_is_easy_to_read():
    assert quoted("--steps=10") == "--steps=10"
    assert quoted("$X a") == '"${X-\\$X} a"'


def test_the_environment_passes_through_untouched():
    values = {
        "A": "a b",
        "B": "it's",
        "C": '"q"',
        "D": "${LIB}",
        "E": "`id`",
        "F": "l1\nl2",
        "G": "",
        "H": "é",
        "I": "$$",
    }
    _, seen = ran(launch_script(SHOW, exports=()), values)
    assert {name: seen[name] for name in values} == values


@pytest.mark.parametrize(
    ("value", "before", "after"),
    [
        ("/x:$PYTHONPATH", "/image", "/x:/image"),
        ("/x y:${PYTHONPATH}:/z", "/im age", "/x y:/im age:/z"),
        ("/x:$PYTHONPATH", None, "/x:"),
        ('$PYTHONPATH:$HOME:`id`:"q":$(id):$$', "/i", '/i:$HOME:`id`:"q":$(id):$$'),
        ("$PYTHONPATH_X:$PYTHONPATH", "/i", "$PYTHONPATH_X:/i"),
        ("$$PYTHONPATH:$PYTHONPATH", "/i", "$$PYTHONPATH:/i"),
    ],
)
def test_a_value_extends_the_variable_that_the_image_has(value, before, after):
    env = {"HOME": "/root"} | ({} if before is None else {"PYTHONPATH": before})
    _, seen = ran(launch_script(SHOW, exports=[Export("PYTHONPATH", value)]), env)
    assert seen["PYTHONPATH"] == after


def test_arguments_see_the_extended_value():
    script = launch_script([*SHOW, "$PYTHONPATH"], exports=[Export("PYTHONPATH", "/x:$PYTHONPATH")])
    assert ran(script, {"PYTHONPATH": "/i"})[0] == ["/x:/i"]


def test_an_export_refers_to_variables_by_kubernetes_references():
    """Those that are set, and in the order of the exports; a pair of dollars is text."""
    exports = [
        Export("P", "$(BASE)/x:$P:$(NO):$$(BASE)", frozenset({"BASE"})),
        Export("C", "$(P)/y:$(my-var)", frozenset({"BASE", "P", "my-var"})),
    ]
    _, seen = ran(launch_script(SHOW, exports=exports), {"BASE": "/b c", "P": "/image", "my-var": "m", "NO": "set"})
    assert (seen["P"], seen["C"]) == ("/b c/x:/image:$(NO):$$(BASE)", "/b c/x:/image:$(NO):$$(BASE)/y:m")


def test_python_does_not_buffer_and_knows_the_retries_unless_told_otherwise():
    script = launch_script(SHOW, exports=(), max_retries=3)
    _, seen = ran(script)
    assert (seen["PYTHONUNBUFFERED"], seen["TORCHX_MAX_RETRIES"]) == ("1", "3")
    _, seen = ran(script, {"PYTHONUNBUFFERED": ""})
    assert seen["PYTHONUNBUFFERED"] == ""


def test_the_process_takes_the_shells_place_so_that_signals_reach_it():
    text = launch_script(["bash", "-c", "echo $$ >&2; ps -o pid= -p $$ >&2; kill -TERM $$"], exports=())
    done = subprocess.run(["/bin/bash", "-c", text], capture_output=True, timeout=30)
    assert done.returncode == -15


@pytest.mark.parametrize("code", [0, 1, 3, 137])
def test_the_exit_code_is_the_programs(code):
    assert subprocess.run(["bash", "-c", launch_script(["bash", "-c", f"exit {code}"], exports=())]).returncode == code


def test_a_program_that_is_not_there_is_named():
    done = subprocess.run(["bash", "-c", launch_script(["no-such"], exports=()), "launch.sh"], capture_output=True)
    assert done.returncode == 127
    assert b"launch.sh" in done.stderr
    assert b"no-such: not found" in done.stderr


WORKDIR = Workdir(
    code_dir=PurePosixPath("/data/al ice/code"),
    mount_paths=[PurePosixPath("/nemo_run")],
    sent=with_parents(map(PurePosixPath, ["code/conf/a b.yaml", "scripts/s.sh", "configs/c", "train.py"])),
    local=["/home/me/src", "src"],
)


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("/nemo_run/code/conf/a b.yaml", "/data/al ice/code/code/conf/a b.yaml"),
        ("/nemo_run/code/conf", "/data/al ice/code/code/conf"),
        ("/nemo_run/scripts/s.sh", "/data/al ice/code/scripts/s.sh"),
        ("--config=/nemo_run/configs/c", "--config=/data/al ice/code/configs/c"),
        ("/nemo_run/code/not-sent.yaml", "/nemo_run/code/not-sent.yaml"),
        ("/nemo_run/code", "/nemo_run/code"),
        ("/nemo_run/train.py", "/nemo_run/train.py"),
        ("/nemo_run/checkpoints/x", "/nemo_run/checkpoints/x"),
        ("cat /nemo_run/scripts/s.sh", "cat /nemo_run/scripts/s.sh"),
        ("import x; open('/nemo_run/configs/c')", "import x; open('/nemo_run/configs/c')"),
        ("/home/me/src/train.py", "/data/al ice/code/train.py"),
        ("--script=src/train.py", "--script=/data/al ice/code/train.py"),
        ("/home/me/src2/train.py", "/home/me/src2/train.py"),
        ("/home/me/src/other.py", "/home/me/src/other.py"),
    ],
)
def test_only_the_paths_of_what_is_sent_are_rewritten(argument, expected):
    text = launch_script(["show", argument], exports=(), workdir=WORKDIR)
    command = text.splitlines()[-1].removeprefix("exec show ")
    done = subprocess.run(["bash", "-c", f"printf %s {command}"], capture_output=True, check=True)
    assert done.stdout.decode() == expected


def test_no_program_is_refused():
    with pytest.raises(ConfigError, match="give the program to run"):
        launch_script([], exports=())


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        (3, "must be a string"),
        ("a\0b", "NUL"),
        ("x" * (ARGUMENT_MAX + 1), f"Linux takes {ARGUMENT_MAX}"),
        ("\udcc3" * (ARGUMENT_MAX + 1), f"Linux takes {ARGUMENT_MAX}"),
        ("a\ud800", "half a surrogate pair"),
    ],
    ids=["number", "NUL", "too long", "too many bytes", "no text"],
)
def test_an_argument_that_no_process_can_be_given_is_refused(argument, text):
    with pytest.raises(ConfigError, match=text):
        launch_script(["python", argument], exports=())


def test_the_longest_argument_is_taken(tmp_path: Path):
    script = tmp_path / "launch.sh"
    script.write_text(launch_script(["bash", "-c", "echo ${#1}", "x", "y" * ARGUMENT_MAX], exports=()))
    done = subprocess.run(["bash", script], capture_output=True, check=True)
    assert done.stdout == b"%d\n" % ARGUMENT_MAX


def test_what_linux_takes_in_all_is_taken_and_more_is_refused():
    """Counted as the kernel counts: each argument and variable with its NUL and a pointer."""
    kilobyte = "x" * (1024 - 9)
    command = ["/bin/true", *[kilobyte] * (START_MAX // 1024 - 2)]
    env = {"A": "y" * 500}
    check_start(command, env)
    subprocess.run(command, env=env, check=True)
    with pytest.raises(ConfigError, match=f"in all, and Linux takes {START_MAX}"):
        check_start([*command, kilobyte, kilobyte], env)


def test_a_variable_that_is_too_long_is_named():
    check_start([], {"A": "x" * (ARGUMENT_MAX - 2)})
    with pytest.raises(ConfigError, match=f"Linux takes {ARGUMENT_MAX}") as caught:
        check_start([], {"A": "x" * (ARGUMENT_MAX - 1)})
    assert caught.value.value == "A"
