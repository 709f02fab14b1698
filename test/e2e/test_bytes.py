"""Arguments and environment values reach the process byte for byte."""

from __future__ import annotations

import os

import nemo_run as run

ODD = {
    "blank": "a b  c",
    "single quote": "it's",
    "double quote": '"q"',
    "dollar": "$X_NOT_SET",
    "braces": "${LIB_NOT_SET}",
    "two dollars": "$$",
    "reference": "$(X)",
    "backticks": "`id`",
    "newline": "line1\nline2",
    "accent": "é",
    "empty": "",
    "backslash": "a\\b",
    "star": "*",
    "semicolon": "a;b&&c|d>e",
    "dash": "-n",
    "json": "{}",
    "brackets": "[]",
    "bang": "a!b",
    "tab": "a\tb",
    "home": "~",
    "trailing newline": "x\n",
}


def test_arguments(cluster, every_dialect):
    outcome = cluster.run(cluster.executor(), run.Script(path="probe.py", entrypoint="python", args=list(ODD.values())))
    assert outcome.status == "SUCCEEDED", outcome.log
    assert outcome.probe["argv"] == list(ODD.values())


def test_environment(cluster):
    def named(prefix):
        return {f"{prefix}_{name.upper().replace(' ', '_')}": value for name, value in ODD.items()}

    executor = cluster.executor(
        env_vars=named("V"), env_list=[{"name": name, "value": value} for name, value in named("L").items()]
    )
    outcome = cluster.run(executor, run.Script(path="probe.py", entrypoint="python", env=named("S")))
    assert outcome.status == "SUCCEEDED", outcome.log
    expected = {**named("V"), **named("L"), **named("S")}
    assert {name: outcome.probe["env"].get(name) for name in expected} == expected


def test_without_a_workdir_too(cluster):
    executor = cluster.executor(
        volumes=[], workdir_volume_mount=None, packager=run.Packager(), env_vars={"V": "$$ `x`"}
    )
    code = "import json, os, sys; print('PROBE', json.dumps({'argv': sys.argv[1:], 'env': dict(os.environ)}))"
    outcome = cluster.run(executor, run.Script(path="-c", entrypoint="python", args=[code, *ODD.values()]))
    assert outcome.status == "SUCCEEDED", outcome.log
    assert outcome.probe["argv"] == list(ODD.values())
    assert outcome.probe["env"]["V"] == "$$ `x`"


def test_a_variable_that_is_set_expands_in_arguments_and_others_stay(cluster):
    script = run.Script(path="probe.py", entrypoint="python", args=["r=$PET_NODE_RANK of ${PET_NNODES}", "$NOT_SET"])
    outcome = cluster.run(cluster.executor(), script)
    assert outcome.probe["argv"] == ["r=0 of 1", "$NOT_SET"]


def test_a_value_that_refers_to_itself_extends_the_image_s(cluster):
    script = run.Script(path="probe.py", entrypoint="python", env={"PATH": "/x:$PATH", "PYTHONPATH": "/x:$PYTHONPATH"})
    outcome = cluster.run(cluster.executor(), script)
    assert outcome.probe["env"]["PATH"].startswith("/x:/")
    assert outcome.probe["env"]["PYTHONPATH"].startswith("/x:")
    assert "$" not in outcome.probe["env"]["PYTHONPATH"]


def test_no_secret_is_shown_or_written(local, capfd):
    secret = "hf_" + "s3cret" * 4
    executor = local.executor(env_vars={"HF_TOKEN": secret})
    script = run.Script(inline="test ${#HF_TOKEN} = 27 && test ${#API_KEY} = 27", env={"API_KEY": secret})
    run.run(script, executor=executor, name="dry", dryrun=True)
    outcome = local.run(executor, script)
    assert outcome.status == "SUCCEEDED", outcome.log
    said = capfd.readouterr()
    assert secret not in said.out + said.err
    assert secret not in outcome.log
    on_volume = [path for path in local.claim.rglob("*") if path.is_file() and secret in path.read_text()]
    assert on_volume == []
    home = outcome.directory.parents[3]
    holders = [path for path in home.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert all(os.stat(path).st_mode & 0o077 == 0 for path in holders)
