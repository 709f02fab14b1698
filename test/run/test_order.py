"""Jobs that wait for others: started as soon as they may, and never when they may not."""

from __future__ import annotations

import signal
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest
from children import PATIENCE, python, wait_for
from local_runs import in_another_process, states, until

import nemo_run as run
from nemo_run.exceptions import ConfigError, ExperimentError, JobFailed


def script(inline):
    return run.Script(inline=inline)


def test_a_job_waits_for_its_own_dependencies_and_for_nothing_else(tmp_path):
    """``slow`` ends only after ``after`` has run, which waits for ``quick`` alone."""
    with run.Experiment("dag") as exp:
        exp.add(script(until(tmp_path / "after")), name="slow")
        exp.add(script("true"), name="quick")
        exp.add(script(f"touch {tmp_path}/after"), name="after", dependencies=["quick"])
        exp.run()
    assert states(exp) == {"slow": "SUCCEEDED", "quick": "SUCCEEDED", "after": "SUCCEEDED"}


def test_a_diamond_joins_after_both_sides(tmp_path):
    with run.Experiment("diamond") as exp:
        for name, wanted in {"root": [], "left": ["root"], "right": ["root"], "join": ["left", "right"]}.items():
            exp.add(script(f"echo {name} >> {tmp_path}/order"), name=name, dependencies=wanted)
        exp.run()
    order = (tmp_path / "order").read_text().split()
    assert (order[0], sorted(order[1:3]), order[3]) == ("root", ["left", "right"], "join")


def test_why_a_job_was_not_started_is_known_to_other_processes(tmp_path, capsys):
    with run.Experiment("dag") as exp:
        exp.add(script("exit 5"), name="first")
        exp.add([script("true"), script("true")], name="pair", dependencies=["first"])
        exp.run()
    assert states(run.Experiment.from_title("dag")) == {"first": "FAILED", "pair": "CANCELLED"}
    capsys.readouterr()
    run.Experiment.from_title("dag").status()
    text = capsys.readouterr().out
    assert "- Status: FAILED (exit code 5)" in text
    assert "- Status: CANCELLED (not started: first FAILED)" in text


@dataclass(kw_only=True)
class Unlaunchable(run.LocalExecutor):
    def launcher_command(self, cmd):
        raise ConfigError("launcher", "none", "this one cannot be launched")


def test_a_launch_that_raises_keeps_its_dependents_back_and_lets_others_end(tmp_path):
    with run.Experiment("dag") as exp:
        exp.add(script("true"), name="good")
        exp.add(script("true"), Unlaunchable(), name="bad", dependencies=["good"])
        exp.add(script(f"touch {tmp_path}/never"), name="after-bad", dependencies=["bad"])
        exp.add(script(f"touch {tmp_path}/ran"), name="after-good", dependencies=["good"])
        with pytest.raises(ConfigError, match="this one cannot be launched"):
            exp.run()
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["ran"]
    found = states(run.Experiment.from_title("dag"))
    assert (found["after-bad"], found["after-good"]) == ("CANCELLED", "SUCCEEDED")


def run_and_raise():
    with run.Experiment("dag") as exp:
        exp.add(script("exit 3"), name="first")
        exp.add(script("true"), name="second", dependencies=["first"])
        exp.run(raise_on_failure=True)


def test_raising_on_failure_names_the_first_that_failed():
    with pytest.raises(JobFailed, match=r"first of experiment dag_\d+: FAILED \(exit code 3\)"):
        run_and_raise()


def test_dependencies_and_sequential_exclude_each_other():
    with run.Experiment("dag") as exp:
        exp.add(script("true"), name="a")
        exp.add(script("true"), name="b", dependencies=["a"])
        with pytest.raises(ExperimentError, match="sequential=False"):
            exp.run(sequential=True)


def test_what_must_be_kept_in_order_cannot_be_detached_from(capsys):
    with run.Experiment("dag") as exp:
        exp.add(script("true"), name="a")
        exp.add(script("true"), name="b")
        exp.run(sequential=True, detach=True)
    assert "Cannot detach from this experiment." in capsys.readouterr().out
    assert states(exp) == {"a": "SUCCEEDED", "b": "SUCCEEDED"}


def running_in_order(start_child, tmp_path, title):
    """Start an experiment of two jobs, one after the other, in another process; return when the first runs."""
    code = f"""
        import nemo_run as run
        with run.Experiment("{title}") as exp:
            exp.add(run.Script(inline="touch {tmp_path}/up; sleep 600"), name="first")
            exp.add(run.Script(inline="touch {tmp_path}/never"), name="second", dependencies=["first"])
            exp.add(run.Script(inline="touch {tmp_path}/never"), name="third", dependencies=["second"])
            exp.run()
    """
    child = start_child(*python(code), stdout=subprocess.PIPE)
    wait_for((tmp_path / "up").exists, child)
    return child


def test_another_process_cancels_a_running_job_and_with_it_those_that_wait(start_child, tmp_path):
    child = running_in_order(start_child, tmp_path, "dag")
    run.Experiment.from_title("dag").cancel("first")
    out, _ = child.communicate(timeout=PATIENCE)
    assert child.returncode == 0
    assert "second: CANCELLED (not started: first CANCELLED)" in out
    expected = {"first": "CANCELLED", "second": "CANCELLED", "third": "CANCELLED"}
    assert states(run.Experiment.from_title("dag")) == expected
    assert not (tmp_path / "never").exists()


def test_another_process_cancels_a_job_that_has_not_begun(start_child, tmp_path):
    child = running_in_order(start_child, tmp_path, "dag")
    exp = run.Experiment.from_title("dag")
    exp.cancel("second")
    exp.cancel("second")
    waiting = {"first": "RUNNING", "second": "CANCELLED", "third": "CANCELLED"}
    assert states(exp) == waiting
    assert states(run.Experiment.from_title("dag")) == waiting
    exp.cancel("first")
    child.communicate(timeout=PATIENCE)
    assert not (tmp_path / "never").exists()


def test_an_interrupt_ends_what_runs_and_keeps_back_what_waits(start_child, tmp_path):
    child = running_in_order(start_child, tmp_path, "dag")
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=PATIENCE)
    assert child.returncode == 130
    assert "Interrupted: first was ended." in out
    exp = run.Experiment.from_title("dag")
    assert set(states(exp).values()) == {"CANCELLED"}
    assert not (tmp_path / "never").exists()


def test_another_thread_cancels_while_run_blocks(tmp_path):
    with run.Experiment("dag") as exp:
        exp.add(script(f"touch {tmp_path}/up; sleep 600"), name="first")
        exp.add(script(f"touch {tmp_path}/never"), name="second", dependencies=["first"])

        def cancel():
            wait_for((tmp_path / "up").exists)
            exp.cancel("first")

        thread = threading.Thread(target=cancel)
        thread.start()
        exp.run()
        thread.join()
    assert states(exp) == {"first": "CANCELLED", "second": "CANCELLED"}
    assert not (tmp_path / "never").exists()


def test_cancelling_what_has_succeeded_changes_nothing():
    with run.Experiment("dag") as exp:
        exp.add(script("true"), name="a")
        exp.add(script("true"), name="b", dependencies=["a"])
        exp.run()
    exp.cancel("a")
    assert states(exp) == {"a": "SUCCEEDED", "b": "SUCCEEDED"}


def test_reset_keeps_the_order_and_forgets_what_was_cancelled(tmp_path):
    with run.Experiment("dag") as exp:
        exp.add(script(f"test -e {tmp_path}/now"), name="a")
        exp.add(script("true"), name="b", dependencies=["a"])
        exp.run()
    assert states(exp) == {"a": "FAILED", "b": "CANCELLED"}
    (tmp_path / "now").touch()
    with run.Experiment.from_id(exp._id).reset() as again:
        again.run()
    assert states(again) == {"a": "SUCCEEDED", "b": "SUCCEEDED"}
    assert [Path(again._exp_dir).name] == run.Experiment.catalog("dag")[1:]


def test_two_processes_run_experiments_in_one_home(start_child):
    code = """
        import sys, nemo_run as run
        with run.Experiment(sys.argv[1]) as exp:
            for number in range(8):
                exp.add(run.Script(inline="true"), name=f"{sys.argv[1]}{number}")
            exp.run()
    """
    children = [start_child(*python(code, name), stdout=subprocess.DEVNULL) for name in ("left", "right")]
    assert [child.wait(PATIENCE) for child in children] == [0, 0]
    for name in ("left", "right"):
        found = in_another_process(
            f'import nemo_run as run; print(run.Experiment.from_title("{name}").status(return_dict=True))'
        )
        assert found.stdout.count("SUCCEEDED (4)") == 8
