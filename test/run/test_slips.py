"""What a user gets wrong in a launch script: told at once, with what to write instead."""

from __future__ import annotations

import functools
import logging

import pytest
from local_runs import states

import nemo_run as run
from nemo_run.core.execution.kuberay import KubeRayExecutor, KubeRayWorkerGroup
from nemo_run.exceptions import ConfigError, ExperimentError, ExperimentNotFound


def train(steps, lr, *, seed=0):
    """Stand for a user's task."""


class Tokenizer:
    def __init__(self, size):
        self.size = size


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def dryrun(task, executor=None, **options):
    with run.Experiment("slips", executor=executor or run.LocalExecutor()) as exp:
        exp.add(task, name="t", **options)
        return exp.dryrun(log=False)["t"]


SCRIPT = run.Script(inline="true")


@pytest.mark.parametrize(
    ("executor", "wrong", "right"),
    [
        (run.KubeflowExecutor(image="x"), "gpus_per_nod", "gpus_per_node"),
        (run.KubeflowExecutor(image="x"), "toleration", "tolerations"),
        (run.LocalExecutor(), "env_var", "env_vars"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_misspelt_attribute_of_an_executor_is_told_once(caplog, executor, wrong, right):
    executor = executor.clone()
    setattr(executor, wrong, {})
    dryrun(SCRIPT, executor)
    assert warnings(caplog) == [
        f"t: {type(executor).__name__} has no field {wrong!r}; did you mean {right!r}?",
    ]


def test_a_misspelt_attribute_of_a_script_is_told(caplog):
    script = run.Script("a.sh")
    script.arg = ["x"]
    dryrun(script)
    assert warnings(caplog) == ["t: Script has no field 'arg'; did you mean 'args'?"]


def test_a_misspelt_attribute_is_told_where_a_script_runs_in_this_process_too(caplog):
    script = run.Script(inline="true")
    script.entry_point = "sh"
    run.run(script)
    assert warnings(caplog) == ["Script has no field 'entry_point'; did you mean 'entrypoint'?"]


def test_a_misspelt_attribute_of_a_ray_cluster_or_its_workers_is_told(caplog):
    group = KubeRayWorkerGroup(group_name="w")
    executor = KubeRayExecutor(image="ray", worker_groups=[group])
    executor.head_cpus, group.replica = "1", 2
    executor.get_cluster_body("c")
    assert warnings(caplog) == [
        "KubeRayExecutor has no field 'head_cpus'; did you mean 'head_cpu'?",
        "KubeRayWorkerGroup has no field 'replica'; did you mean 'replicas'?",
    ]


@pytest.mark.parametrize("name", ["job_details", "container_image", "ntasks_per_node", "partition", "torchrun_nproc"])
def test_attributes_that_are_a_program_s_own_are_its_own_matter(caplog, name):
    executor = run.KubeflowExecutor(image="x")
    setattr(executor, name, "y")
    dryrun(SCRIPT, executor)
    assert warnings(caplog) == []


@pytest.mark.parametrize(
    ("script", "warning"),
    [
        (run.Script(inline="echo", args=["a"]), "t: args are for a file, not for inline text, and are left out;"),
        (run.Script("train.py"), 't: train.py is run by bash; for Python write entrypoint="python"'),
    ],
    ids=["arguments of a text", "Python in bash"],
)
def test_a_script_that_says_what_it_hardly_means(caplog, script, warning):
    dryrun(script)
    (told,) = warnings(caplog)
    assert told.startswith(warning)


def filled_in(function):
    @functools.wraps(function)
    def with_lr(*args, **values):
        return function(*args, lr=0.1, **values)

    return with_lr


@filled_in
def decorated(steps, lr):
    """Stand for a task that a decorator completes."""


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (run.Partial(train, steps=3), r"task t: test_slips.train needs a value for 'lr'; write run.Partial\(train, lr"),
        (run.Partial(train, 3), "needs a value for 'lr'"),
        (
            run.Partial(train, 3, lr=[run.Config(Tokenizer)]),
            r"task t: lr\[0\]: test_slips.Tokenizer needs a value for 'size'; write run.Config\(Tokenizer, size=…\)",
        ),
    ],
    ids=["by name", "by place", "of a part"],
)
def test_an_argument_that_the_job_would_miss_is_named(task, message):
    with run.Experiment("slips") as exp, pytest.raises(ExperimentError, match=message):
        exp.add(task, name="t")
    assert exp.jobs == []


class Complete(run.Plugin):
    def setup(self, task, executor):
        task.lr = 0.1


def test_arguments_may_come_from_plugins_decorators_and_the_user_s_own_calls():
    with run.Experiment("slips") as exp:
        exp.add(run.Partial(train, 3), name="plugin", plugins=[Complete()])
        exp.add(run.Partial(decorated, 3), name="decorator")
        exp.add(run.Partial(train, 3, lr=run.Partial(Tokenizer)), name="part")
        exp.dryrun(log=False)


@pytest.mark.parametrize(
    ("options", "argument", "hint"),
    [
        ({"executor": "local"}, "executor", "run.LocalExecutor()"),
        ({"executor": run.LocalExecutor(packager="git")}, "packager", "run.GitArchivePackager()"),
        ({"plugins": object()}, "plugins", "a list of run.Plugin"),
        ({"plugins": ["debug"]}, "plugins", "a list of run.Plugin"),
        ({"dependencies": "prep"}, "dependencies", "dependencies=['prep']"),
    ],
    ids=["executor", "packager", "plugins", "a plugin", "dependencies"],
)
def test_what_a_task_cannot_be_added_with_is_named(options, argument, hint):
    with run.Experiment("slips") as exp, pytest.raises(ConfigError) as caught:
        exp.add(SCRIPT, name="t", **options)
    assert caught.value.argument == argument
    assert hint in caught.value.hint


def test_arguments_are_a_list():
    with pytest.raises(ConfigError) as caught:
        run.Script("train.sh", args="--steps 3")
    assert (caught.value.argument, caught.value.hint) == ("args", "write a list: args=['--steps', '3']")


@pytest.mark.parametrize(
    ("fields", "argument", "hint"),
    [
        ({"env_vars": {"X": True}}, "env_vars['X']", "'1' or 'true'"),
        ({"ntasks_per_node": "2"}, "ntasks_per_node", "without quotes: ntasks_per_node=2"),
        ({"nodes": "2"}, "nodes", "without quotes: nodes=2"),
    ],
)
def test_what_this_machine_cannot_run_is_named(fields, argument, hint):
    with pytest.raises(ConfigError) as caught:
        dryrun(SCRIPT, run.LocalExecutor(**fields))
    assert caught.value.argument == argument
    assert hint in caught.value.hint


def test_torchrun_takes_words_for_a_number_of_processes():
    command = dryrun(SCRIPT, run.LocalExecutor(ntasks_per_node="gpu", launcher="torchrun"))["command"]
    assert command[3:5] == ["--nproc-per-node", "gpu"]


def test_environment_values_of_this_machine(tmp_path):
    env = dryrun(SCRIPT, run.LocalExecutor(env_vars={"N": 1, "NONE": None, "PATH_LIKE": tmp_path}))["env"]
    assert env == {"N": "1", "PATH_LIKE": str(tmp_path)}


def test_a_launcher_that_is_not_there_is_named(tmp_path):
    executor = run.LocalExecutor(launcher="torchrun", env_vars={"PATH": str(tmp_path)})
    with run.Experiment("slips", executor=executor) as exp:
        exp.add(SCRIPT, name="t")
        with pytest.raises(ConfigError, match=r"launcher='torchrun': there is no torchrun on the PATH .*PyTorch"):
            exp.run()


@pytest.mark.parametrize("verb", ["none", "dryrun"])
def test_tasks_that_were_added_and_never_launched_are_told(caplog, verb):
    with run.Experiment("slips") as exp:
        exp.add(SCRIPT, name="t")
        if verb == "dryrun":
            exp.dryrun(log=False)
    assert warnings(caplog) == ([] if verb == "dryrun" else ["1 task(s) added, none launched: call run()"])
    exp.logs("t")


def test_what_was_not_launched_has_no_logs_and_what_was_found_is_reset_first(capsys):
    with run.Experiment("slips") as exp:
        exp.add(SCRIPT, name="t")
        exp.dryrun(log=False, delete_exp_dir=False)
    with run.Experiment.from_title("slips") as found:
        found.add(SCRIPT, name="u")
        found.run()
        found.logs("u")
    printed = capsys.readouterr().out
    assert "Experiment in inspection mode...\n" in printed
    assert "Call reset() first to launch it again." in printed
    assert "It was not launched: UNSUBMITTED" in printed
    with found.reset() as again:
        again.run()
    assert states(again) == {"t": "SUCCEEDED", "u": "SUCCEEDED"}


def test_an_unknown_id_is_answered_with_those_that_are_there():
    with run.Experiment("slips", id="slips_1796093396852475541") as exp:
        exp.add(SCRIPT, name="t")
        exp.dryrun(log=False, delete_exp_dir=False)
    with pytest.raises(ExperimentNotFound, match=r"Of that title there are: slips_1796093396852475541\.$"):
        run.Experiment.from_id("slips_179609339685247554")
    with pytest.raises(ExperimentNotFound, match=r"Of titles there are: slips\.$"):
        run.Experiment.from_id("slip_1796093396852475541")


def test_a_file_of_executors_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"write executors into it, or give file_path=: '.*mine\.py'"):
        run.import_executor("x", file_path=str(tmp_path / "mine.py"))


def several(*values, **names):
    """Stand for a task of any arguments."""


def test_a_dry_run_shows_arguments_without_a_name(capsys):
    run.dryrun_fn(run.Partial(several, 1, 2, a=3))
    run.dryrun_fn(run.Partial(print, "x"))
    shown = capsys.readouterr().out.splitlines()
    assert shown[:4] == ["Dry run for task test_slips:several", "  0 = 1", "  1 = 2", "  a = 3"]
    assert "  0 = 'x'" in shown
