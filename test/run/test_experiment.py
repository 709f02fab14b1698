"""An experiment's life on this machine: added, launched, followed, found again."""

from __future__ import annotations

import contextlib
import json
import logging
import signal
import stat
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import fiddle as fdl
import pytest
from children import PATIENCE, python, wait_for
from local_runs import in_another_process, lives, states

import nemo_run as run
from nemo_run.exceptions import ConfigError, ExperimentError, ExperimentNotFound, JobFailed
from nemo_run.run.job import AppState

HELLO = "echo hello; echo to stderr >&2"


def launch(title="demo", **scripts):
    with run.Experiment(title) as exp:
        for name, inline in scripts.items():
            exp.add(run.Script(inline=inline), name=name, tail_logs=True)
        exp.run()
    return exp


def test_states_have_torchx_names_and_numbers():
    assert [(str(state), int(state)) for state in AppState] == [
        ("UNSUBMITTED", 0),
        ("SUBMITTED", 1),
        ("PENDING", 2),
        ("RUNNING", 3),
        ("SUCCEEDED", 4),
        ("FAILED", 5),
        ("CANCELLED", 6),
        ("UNKNOWN", 7),
    ]


def test_a_script_runs_and_its_output_is_shown_once_and_kept(capsys):
    exp = launch(train=HELLO)
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("train/0")] == ["train/0 hello", "train/0 to stderr"]
    assert Path(exp.jobs[0].executor.job_dir, "log-allranks_0.out").read_text() == "hello\nto stderr\n"


def test_the_directory_is_laid_out_as_ever(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import nemo_run as run\n"
        'if __name__ == "__main__":\n'
        '    run.run(run.Script(inline="true"), executor=run.LocalExecutor(), name="train")\n'
    )
    subprocess.run([sys.executable, str(script)], check=True, capture_output=True, timeout=60)
    (directory,) = (tmp_path / "nemorun" / "experiments" / "train").iterdir()
    assert {path.name for path in directory.iterdir()} == {
        "_CONFIG",
        "_DONE",
        "_TASKS",
        "_TUNNELS",
        "_VERSION",
        "__main__.py",
        "train",
    }
    assert (directory / "_TUNNELS").read_text() == "{}"
    assert (directory / "__main__.py").read_text() == script.read_text()
    assert {str(path.relative_to(directory / "train")) for path in (directory / "train").rglob("*.[sy]*")} == {
        "configs/train_config.yaml",
        "configs/train_executor.yaml",
        "scripts/train.sh",
    }


def test_files_that_may_hold_env_values_are_the_owners_alone(tmp_path):
    with run.Experiment("demo", executor=run.LocalExecutor(env_vars={"HF_TOKEN": "hf_abc"})) as exp:
        exp.add(run.Script(inline="true", env={"WANDB_API_KEY": "k123"}), name="t")
        exp.run()
    for path in (tmp_path / "nemorun").rglob("*"):
        if path.is_file() and stat.S_IMODE(path.stat().st_mode) & 0o077:
            assert not {"hf_abc", "k123"} & set(path.read_text().split()), path
    assert stat.S_IMODE(Path(exp._exp_dir, "t", "configs", "t_executor.yaml").stat().st_mode) == 0o600


def test_the_environment_is_the_executors_then_the_scripts():
    executor = run.LocalExecutor(env_vars={"A": "a b", "B": "executor", "NONE": None})
    with run.Experiment("env", executor=executor) as exp:
        exp.add(run.Script(inline='echo "$A|$B|${NONE-unset}"', env={"B": "it's $HOME"}), name="t")
        exp.run()
    assert Path(exp.jobs[0].executor.job_dir, "log-allranks_0.out").read_text() == "a b|it's $HOME|unset\n"


def test_another_process_finds_the_state_by_title_and_by_id():
    exp = launch(good="true", bad="exit 3")
    code = """
        import sys, nemo_run as run
        for exp in (run.Experiment.from_title("demo"), run.Experiment.from_id(sys.argv[1])):
            found = exp.status(return_dict=True)
            print([(task, str(facts["status"]), facts["local_dir"]) for task, facts in found.items()])
    """
    seen = in_another_process(code, exp._id)
    assert seen.stderr == ""
    expected = [("good", "SUCCEEDED", f"{exp._exp_dir}/good"), ("bad", "FAILED", f"{exp._exp_dir}/bad")]
    assert seen.stdout.splitlines() == [str(expected)] * 2


def test_the_status_dict_has_the_keys_that_programs_use():
    exp = launch(train="true")
    handle = exp.jobs[0].handle
    assert handle.startswith("local_persistent://nemo_run/train-")
    assert exp.status(return_dict=True) == {
        "train": {
            "name": "train",
            "status": AppState.SUCCEEDED,
            "executor": "LocalExecutor",
            "job_id": handle.rpartition("/")[2],
            "handle": handle,
            "local_dir": f"{exp._exp_dir}/train",
        }
    }


def test_a_failed_task_says_its_exit_code(capsys):
    launch(train="exit 7")
    assert "train: FAILED (exit code 7)" in capsys.readouterr().out


def test_failure_raises_only_where_asked_for():
    script = run.Script(inline="exit 7")
    with pytest.raises(JobFailed, match=r"train of experiment train_\d+: FAILED \(exit code 7\)") as error:
        run.run(script, executor=run.LocalExecutor(), name="train", raise_on_failure=True)
    assert (error.value.job, error.value.state) == ("train", "FAILED")


def test_a_dependent_never_starts_after_a_failed_dependency(tmp_path, capsys):
    ran = tmp_path / "ran"
    with run.Experiment("dag") as exp:
        first = exp.add(run.Script(inline="exit 1"), name="first")
        second = exp.add(run.Script(inline=f"touch {ran}"), name="second", dependencies=[first])
        exp.add(run.Script(inline=f"touch {ran}"), name="third", dependencies=[second])
        exp.add(run.Script(inline="true"), name="alone")
        exp.run()
    assert not ran.exists()
    assert states(exp) == {"first": "FAILED", "second": "CANCELLED", "third": "CANCELLED", "alone": "SUCCEEDED"}
    text = capsys.readouterr().out
    assert "second: CANCELLED (not started: first FAILED)" in text
    assert "third: CANCELLED (not started: second CANCELLED)" in text
    assert states(run.Experiment.from_title("dag")) == states(exp)


def test_a_dependent_never_starts_after_a_cancelled_dependency(tmp_path):
    ran = tmp_path / "ran"
    with run.Experiment("dag") as exp:
        first = exp.add(run.Script(inline=f"touch {tmp_path}/first; sleep 60"), name="first")
        exp.add(run.Script(inline=f"touch {ran}"), name="second", dependencies=[first])

        def cancel():
            wait_for((tmp_path / "first").exists)
            exp.cancel("first")

        thread = threading.Thread(target=cancel)
        thread.start()
        exp.run()
        thread.join()
    assert not ran.exists()
    assert states(run.Experiment.from_title("dag")) == {"first": "CANCELLED", "second": "CANCELLED"}


def test_sequential_tasks_run_in_the_order_of_adding(tmp_path):
    out = tmp_path / "out"
    with run.Experiment("seq") as exp:
        exp.add(run.Script(inline=f"sleep 0.3; echo a >> {out}"), name="z")
        exp.add(run.Script(inline=f"echo b >> {out}"), name="a")
        exp.run(sequential=True)
    assert out.read_text() == "a\nb\n"


def test_an_unknown_dependency_is_an_assertion_error_as_ever():
    with run.Experiment("demo") as exp:
        exp.add(run.Script(inline="true"), name="a")
        with pytest.raises(AssertionError, match="Dependency nobody not found; there are: a"):
            exp.add(run.Script(inline="true"), name="b", dependencies=["nobody"])


@pytest.mark.parametrize("kind", [ExperimentNotFound, FileNotFoundError, AssertionError])
def test_what_is_not_there_raises_what_programs_catch(kind):
    launch(train="true")
    with pytest.raises(kind, match=r"no experiment with the title 'nothing'.*there are: demo"):
        run.Experiment.from_title("nothing")
    with pytest.raises(kind, match="Experiment demo_1 not found"):
        run.Experiment.from_id("demo_1")


def test_the_newest_of_a_title_is_found_whatever_was_touched_last(tmp_path):
    first, second = launch(t="true"), launch(t="false")
    Path(first._exp_dir, "later").mkdir()
    assert run.Experiment.from_title("demo")._id == second._id
    assert run.Experiment.catalog("demo") == [first._id, second._id]
    assert run.Experiment.catalog() == ["demo"]


@dataclass(kw_only=True)
class AddPlace(run.Plugin):
    def setup(self, task, executor):
        task.args.append(f"--id={self.experiment_id}")
        task.env["PLACE"] = "clone"
        executor.env_vars["PLUGIN"] = executor.job_dir
        executor.packager.debug = True


def test_a_plugin_changes_the_assigned_clone_and_nothing_of_the_callers():
    executor, script = run.LocalExecutor(env_vars={"A": "1"}), run.Script("echo", entrypoint="env", args=["x"])
    with run.Experiment("demo", executor=executor) as exp:
        exp.add(script, name="t", plugins=[AddPlace()])
        exp.run()
    assert executor == run.LocalExecutor(env_vars={"A": "1"})
    assert script == run.Script("echo", entrypoint="env", args=["x"])
    assert exp.jobs[0].executor.env_vars == {"A": "1", "PLUGIN": f"{exp._exp_dir}/t"}
    assert Path(exp._exp_dir, "t", "log-allranks_0.out").read_text() == f"x --id={exp._id}\n"


def test_each_run_takes_a_fresh_snapshot_of_the_executor(capfd):
    executor = run.LocalExecutor(env_vars={"TRY": "1"})
    script = run.Script(inline="echo try $TRY")
    for attempt in ("1", "2"):
        run.run(script, executor=executor, name="retry")
        executor.env_vars.update({"TRY": str(int(attempt) + 1)})
    assert [line for line in capfd.readouterr().out.splitlines() if line.startswith("retry/0")] == [
        "retry/0 try 1",
        "retry/0 try 2",
    ]


def test_a_dry_run_shows_the_command_masked_and_leaves_nothing(tmp_path, capsys):
    executor = run.LocalExecutor(env_vars={"HF_TOKEN": "hf_abc"})
    with run.Experiment("demo", executor=executor) as exp:
        exp.add(run.Script("train.py", entrypoint="python", args=["--token", "hf_abc", "a b"]), name="t")
        request = exp.dryrun()
    text = capsys.readouterr().out
    assert "train.py" in text
    assert "hf_abc" not in text
    assert request == {
        "t": {"command": ["python", "train.py", "--token", "hf_abc", "a b"], "env": {"HF_TOKEN": "hf_abc"}}
    }
    assert list((tmp_path / "nemorun").iterdir()) == []


@pytest.mark.parametrize("exist_ok", [False, True])
def test_a_dry_run_of_what_ran_removes_nothing(tmp_path, exist_ok):
    with run.Experiment("demo", executor=run.LocalExecutor()) as exp:
        exp.add(run.Script(inline="echo done"), name="t")
        exp.run()
        with contextlib.suppress(FileExistsError):
            exp.dryrun(exist_ok=exist_ok)
    (kept,) = (tmp_path / "nemorun" / "experiments" / "demo").iterdir()
    assert list(kept.glob("t/**/*.log"))


def test_add_and_run_need_the_block():
    exp = run.Experiment("demo")
    for use in (lambda: exp.add(run.Script(inline="true")), exp.run):
        with pytest.raises(AssertionError, match="context manager"):
            use()


@pytest.mark.parametrize("title", ["", "..", "a/b"], ids=["empty", "up", "nested"])
def test_a_title_that_names_no_directory_is_refused_up_front(title):
    with pytest.raises(ConfigError, match="a title names a directory"):
        run.Experiment(title)


def test_two_tasks_of_one_name_get_ids_of_their_own():
    with run.Experiment("demo") as exp:
        assert [exp.add(run.Script(inline="true")) for _ in range(3)] == ["true", "true_1", "true_2"]


def test_a_group_runs_its_tasks_side_by_side(tmp_path):
    meet = f"touch {tmp_path}/$0; until test -e {tmp_path}/a && test -e {tmp_path}/b; do sleep 0.05; done"
    scripts = [run.Script(inline=meet.replace("$0", name)) for name in "ab"]
    with run.Experiment("group") as exp:
        exp.add(scripts, executor=[run.LocalExecutor(), run.LocalExecutor()], name="pair")
        exp.run()
    assert states(exp) == {"pair": "SUCCEEDED"}
    assert states(run.Experiment.from_title("group")) == {"pair": "SUCCEEDED"}
    assert len(exp.jobs[0].handles) == 2


def test_each_task_of_a_group_keeps_its_output_under_its_number():
    with run.Experiment("group") as exp:
        exp.add([run.Script(inline=f"echo {name}") for name in "ab"], name="pair")
        exp.run()
    assert [Path(exp._exp_dir, "pair", f"log-allranks_{number}.out").read_text() for number in range(2)] == [
        "a\n",
        "b\n",
    ]


def test_logs_are_printed_again_later_and_filtered(capsys):
    launch(train="for i in 1 2 3; do echo step $i; done; printf 'no newline'")
    capsys.readouterr()
    run.Experiment.from_title("demo").logs("train", regex="step [23]|new")
    assert capsys.readouterr().out.splitlines()[1:] == ["step 2", "step 3", "no newline"]


def test_bytes_that_are_no_text_end_nothing(capsys):
    launch(train=r"printf 'ok\n\344\n\377\376\n'; echo end")
    shown = [line for line in capsys.readouterr().out.splitlines() if line.startswith("train/0")]
    assert shown == ["train/0 ok", "train/0 \ufffd", "train/0 \ufffd\ufffd", "train/0 end"]


def test_cancel_ends_the_whole_process_group_and_is_remembered(tmp_path):
    pid_file = tmp_path / "pid"
    with run.Experiment("long") as exp:
        exp.add(run.Script(inline=f"sleep 600 & echo $! > {pid_file}; wait"), name="t")
        exp.run()
        wait_for(lambda: pid_file.exists() and pid_file.read_text())
        exp.cancel("t")
        exp.cancel("t")
    assert states(run.Experiment.from_title("long")) == {"t": "CANCELLED"}
    wait_for(lambda: not lives(int(pid_file.read_text())))


def test_a_job_killed_outright_is_failed():
    with run.Experiment("killed") as exp:
        exp.add(run.Script(inline="kill -9 0"), name="t")
        exp.run()
    assert states(exp) == {"t": "FAILED"}


SLEEPER = """
    import sys, nemo_run as run
    run.run(run.Script(inline="echo up; sleep 600"), executor=run.LocalExecutor(), name="sleeper")
    print("not reached")
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_a_local_job_and_the_process(start_child, number):
    child = start_child(*python(SLEEPER), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for line in child.stdout:
        if line == "sleeper/0 up\n":
            break
    child.send_signal(number)
    out, err = child.communicate(timeout=PATIENCE)
    assert (child.returncode, err) == (128 + number, "")
    assert "Interrupted: sleeper was ended." in out
    assert "not reached" not in out
    assert states(run.Experiment.from_title("sleeper")) == {"sleeper": "CANCELLED"}


def test_a_task_can_be_cancelled_from_another_process_while_it_is_followed():
    with run.Experiment("long") as exp:
        exp.add(run.Script(inline="sleep 600"), name="t")
        exp.run()
        code = 'import nemo_run as run; run.Experiment.from_title("long").cancel("t")'
        assert in_another_process(code).returncode == 0
    assert states(exp) == {"t": "CANCELLED"}


def test_a_launch_that_was_never_written_down_is_found_by_the_backends_record():
    """The process died between the launch and the end of run()."""
    exp = launch(train="true")
    tasks = Path(exp._exp_dir, "_TASKS")
    with run.Experiment("other") as before:
        before.add(run.Script(inline="true"), name="train")
        before._id, before._exp_dir = exp._id, exp._exp_dir
        before._prepare(exist_ok=True)
    assert json.loads(tasks.read_text())
    assert states(run.Experiment.from_id(exp._id)) == {"train": "SUCCEEDED"}


def test_a_broken_file_is_reported_and_left_as_it_is():
    exp = launch(train="true")
    tasks = Path(exp._exp_dir, "_TASKS")
    tasks.write_text("[[1")
    with pytest.raises(ExperimentError, match="_TASKS cannot be read; it was left as it is"):
        run.Experiment.from_id(exp._id)
    assert tasks.read_text() == "[[1"


def test_a_value_that_cannot_be_saved_is_refused_when_it_is_added():
    task = run.Partial(sorted, [3, 1], key=object())
    with run.Experiment("demo") as exp, pytest.raises((ExperimentError, ConfigError), match="key"):
        exp.add(task, name="t")


def test_reset_makes_it_ready_again_with_equal_tasks():
    exp = launch(train="echo again")
    again = run.Experiment.from_id(exp._id).reset()
    assert again._id != exp._id
    with again:
        again.run()
    assert states(again) == {"train": "SUCCEEDED"}
    assert run.Experiment.catalog("demo") == [exp._id, again._id]


def test_tasks_and_jobs_can_be_looked_at_later():
    launch(train="echo a")
    exp = run.Experiment.from_title("demo")
    assert exp.tasks == [run.Script(inline="echo a")]
    assert exp.jobs[-1].executor.job_dir == f"{exp._exp_dir}/train"


def test_run_without_an_executor_runs_here():
    with pytest.raises(JobFailed, match="exit code 4"):
        run.run(run.Script(inline="exit 4"))


def test_run_refuses_what_is_not_configured():
    with pytest.raises(TypeError, match=r"run\.Partial or a run\.Script"):
        run.run(print, executor=run.LocalExecutor())


def test_the_root_logger_is_never_touched():
    root = logging.getLogger()
    before = (root.level, root.handlers[:])
    launch(train="true")
    assert (root.level, root.handlers) == before


def test_torchrun_is_told_nodes_processes_and_the_program(capsys):
    executor = run.LocalExecutor(ntasks_per_node=2, launcher="torchrun")
    with run.Experiment("torch", executor=executor) as exp:
        exp.add(run.Script("train.py", entrypoint="python", args=["--x", "a b"]), name="python")
        exp.add(run.Script("pkg.train", entrypoint="python", m=True), name="module")
        exp.add(run.Script("train.sh", args=["y"]), name="bash")
        requests = exp.dryrun(log=False)
    nodes = ["--nnodes", "1", "--nproc-per-node", "2", "--node-rank", "0"]
    common = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "--rdzv-id"]
    for request in requests.values():
        command = request["command"]
        assert [*command[:12], *command[13:15]] == ["torchrun", *nodes, *common, "--tee", "3"]
    assert {task: request["command"][15:] for task, request in requests.items()} == {
        "python": ["train.py", "--x", "a b"],
        "module": ["-m", "pkg.train"],
        "bash": ["--no-python", "bash", "train.sh", "y"],
    }


def test_an_experiments_config_builds_its_equal():
    exp = run.Experiment("demo", executor=run.LocalExecutor(env_vars={"A": "1"}), clean_mode=True)
    again = fdl.build(exp.to_config())
    assert (again._id, again.executor, again.clean_mode) == (exp._id, exp.executor, True)


def test_a_second_interrupt_stops_at_once_and_still_leaves_no_job(start_child, tmp_path):
    """The job ignores SIGTERM, so the first Ctrl-C waits for it; the second does not."""
    pid_file = tmp_path / "pid"
    code = f"""
        import nemo_run as run
        from nemo_run.run.backends import BACKENDS
        BACKENDS[run.LocalExecutor].grace = 3600.0
        script = run.Script(
            inline="trap 'touch {tmp_path}/told' TERM; echo $$ > {pid_file}; while true; do sleep 0.1; done"
        )
        run.run(script, executor=run.LocalExecutor(), name="stubborn")
    """
    child = start_child(*python(code), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: pid_file.exists() and pid_file.read_text(), child)
    child.send_signal(signal.SIGINT)
    wait_for((tmp_path / "told").exists, child)
    child.send_signal(signal.SIGINT)
    assert child.wait(PATIENCE) != 0
    wait_for(lambda: not lives(int(pid_file.read_text())))


def test_an_interrupt_that_comes_while_a_job_starts_leaves_none(start_child, tmp_path):
    """The job itself sends it as soon as it runs: its launcher has hardly noticed that it does."""
    pid_file = tmp_path / "pid"
    code = f"""
        import os, nemo_run as run
        script = run.Script(inline=f"kill -INT {{os.getpid()}}; echo $$ > {pid_file}; exec sleep 600")
        run.run(script, executor=run.LocalExecutor(), name="early")
    """
    child = start_child(*python(code), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = child.communicate(timeout=PATIENCE)
    assert (child.returncode, err) == (130, "")
    assert "Interrupted: early was ended." in out
    assert not pid_file.exists() or not lives(int(pid_file.read_text()))
    assert states(run.Experiment.from_title("early")) == {"early": "CANCELLED"}
