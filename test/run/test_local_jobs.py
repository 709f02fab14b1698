"""Jobs as processes of this machine: their group, their launcher, their output, their end."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest
from children import PATIENCE, python, wait_for
from local_runs import in_another_process, lives, states, until

import nemo_run as run
from nemo_run.core.execution.base import ExecutorMacros
from nemo_run.exceptions import JobFailed
from nemo_run.run.job import AppState, JobGroup


def script(inline, **fields):
    return run.Script(inline=inline, **fields)


def command(executor, task, **environment):
    with run.Experiment("dry", executor=executor) as exp:
        exp.add(task, name="t")
        return exp.dryrun(log=False)["t"]["command"]


def output(exp, task):
    return Path(exp._exp_dir, task, "log-allranks_0.out").read_text()


def test_a_job_is_the_leader_of_a_session_of_its_own():
    with run.Experiment("local") as exp:
        exp.add(script("ps -o sid= -o pgid= -p $$"), name="t")
        exp.run()
    session, group = output(exp, "t").split()
    assert session == group != str(os.getsid(0))


def test_a_job_has_no_input_to_wait_for():
    with run.Experiment("local") as exp:
        exp.add(script("cat; echo end"), name="t")
        exp.run()
    assert output(exp, "t") == "end\n"


def test_the_logs_lie_where_torchx_put_them():
    with run.Experiment("local") as exp:
        exp.add(script("echo out; echo err >&2"), name="t")
        exp.run()
    app_id = exp.status(return_dict=True)["t"]["job_id"]
    log = Path(exp._exp_dir, "t", "nemo_run", app_id, "t", "0", "combined.log")
    assert log.read_text() == output(exp, "t") == "out\nerr\n"


@pytest.mark.parametrize(("given", "kept"), [({}, None), ({"PET_LOG_DIR": "/mine"}, "/mine")], ids=["ours", "theirs"])
def test_torchrun_is_told_to_keep_each_ranks_output_below_the_job(monkeypatch, given, kept):
    monkeypatch.setenv("PET_LOG_DIR", "/of/an/outer/job")
    with run.Experiment("local") as exp:
        exp.add(script("echo $PET_LOG_DIR"), executor=run.LocalExecutor(env_vars=given), name="t")
        exp.run()
    app_id = exp.status(return_dict=True)["t"]["job_id"]
    assert output(exp, "t").strip() == (kept or f"{exp._exp_dir}/t/nemo_run/{app_id}/torchelastic/t")


@pytest.mark.parametrize(
    ("inline", "why"),
    [
        ("exit 7", "exit code 7"),
        ("kill -SEGV $$", "exit code 139"),
        ("no-such-program", "exit code 127: its script, or a program in it, was not found"),
    ],
    ids=["exit", "signal", "not there"],
)
def test_the_exit_code_is_kept(inline, why):
    with pytest.raises(JobFailed, match=rf"FAILED \({why}\)"):
        run.run(script(inline), executor=run.LocalExecutor(), name="local", raise_on_failure=True)


@pytest.mark.parametrize(("retries", "tries", "state"), [(0, 1, "FAILED"), (1, 2, "FAILED"), (5, 3, "SUCCEEDED")])
def test_a_failed_job_is_started_again_as_often_as_the_executor_says(tmp_path, retries, tries, state):
    task = script(f"echo x >> {tmp_path}/tries; test $(wc -l < {tmp_path}/tries) -eq 3")
    with run.Experiment("retry", executor=run.LocalExecutor(retries=retries)) as exp:
        exp.add(task, name="t")
        exp.run()
    assert (states(exp), len((tmp_path / "tries").read_text().split())) == ({"t": state}, tries)


def test_a_cancelled_job_is_not_started_again(tmp_path):
    with run.Experiment("retry", executor=run.LocalExecutor(retries=9)) as exp:
        exp.add(script(f"echo x >> {tmp_path}/tries; sleep 600"), name="t")
        exp.run()
        wait_for((tmp_path / "tries").exists)
        exp.cancel("t")
    assert states(exp) == {"t": "CANCELLED"}
    assert (tmp_path / "tries").read_text() == "x\n"


def test_a_job_may_end_in_good_order_when_it_is_cancelled(tmp_path):
    """The checkpoint is written by a child that outlives the job's own shell."""
    child = (
        f"(trap 'sleep 1; touch {tmp_path}/checkpoint; exit' TERM; touch {tmp_path}/up; while :; do sleep 0.05; done)"
    )
    with run.Experiment("polite") as exp:
        exp.add(script(f"{child} & wait"), name="t")
        exp.run()
        wait_for((tmp_path / "up").exists)
        exp.cancel("t")
    assert (tmp_path / "checkpoint").exists()


def test_what_will_not_end_is_killed_with_all_its_children(tmp_path):
    stubborn = "trap '' TERM; echo $$ $BASHPID > {0}/$1; touch {0}/up$1; while :; do sleep 0.1; done"
    task = script(
        f"(set -- a; {stubborn.format(tmp_path)}) & (set -- b; {stubborn.format(tmp_path)}) & trap '' TERM; wait"
    )
    with run.Experiment("stubborn") as exp:
        exp.add(task, name="t")
        exp.run()
        wait_for(lambda: (tmp_path / "upa").exists() and (tmp_path / "upb").exists())
        began = time.monotonic()
        exp.cancel("t")
    assert time.monotonic() - began > 4
    assert states(exp) == {"t": "CANCELLED"}
    pids = [int(pid) for name in "ab" for pid in (tmp_path / name).read_text().split()]
    wait_for(lambda: not any(map(lives, pids)))


def test_a_job_outlives_a_launcher_that_was_killed_and_is_followed_again(start_child, tmp_path, capsys):
    code = f"""
        import nemo_run as run
        task = run.Script(inline="echo begun; touch {tmp_path}/up; {until(tmp_path / "go")}; echo done; exit 4")
        run.run(task, executor=run.LocalExecutor(), name="orphan")
    """
    child = start_child(*python(code), stdout=subprocess.DEVNULL)
    wait_for(
        lambda: (tmp_path / "up").exists() and states(run.Experiment.from_title("orphan")) == {"orphan": "RUNNING"}
    )
    child.kill()
    child.wait(PATIENCE)
    exp = run.Experiment.from_title("orphan")
    assert states(exp) == {"orphan": "RUNNING"}
    capsys.readouterr()
    (tmp_path / "go").touch()
    exp.jobs[0].tail_logs = True
    exp._wait_for_jobs(exp.jobs)
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if line.startswith("orphan/0")] == ["orphan/0 begun", "orphan/0 done"]
    assert "orphan: FAILED (exit code 4)" in out
    assert states(run.Experiment.from_title("orphan")) == {"orphan": "FAILED"}


def test_a_server_is_ended_with_the_task_that_used_it(tmp_path):
    with run.Experiment("group") as exp:
        tasks = [script(f"touch {tmp_path}/serving; sleep 600"), script(until(tmp_path / "serving"))]
        exp.add(tasks, executor=[run.LocalExecutor(), run.LocalExecutor()], name="eval")
        exp.run()
    assert states(exp) == {"eval": "SUCCEEDED"}
    assert exp.jobs[0].states == [AppState.CANCELLED, AppState.SUCCEEDED]


def test_a_group_is_found_by_another_process_while_it_runs_and_cancelled_as_one(tmp_path):
    with run.Experiment("group") as exp:
        exp.add([script(f"touch {tmp_path}/{n}; sleep 600") for n in "ab"], name="pair")
        exp.run()
        wait_for(lambda: all((tmp_path / name).exists() for name in "ab"))
        code = """
            import nemo_run as run
            exp = run.Experiment.from_title("group")
            print(exp.status(return_dict=True)["pair"]["status"], len(exp.jobs[0].handles))
            exp.cancel("pair")
        """
        found = in_another_process(code)
        assert (found.stderr, found.stdout.splitlines()[0]) == ("", "RUNNING 2")
    assert states(exp) == {"pair": "CANCELLED"}


@pytest.mark.parametrize(
    ("tasks", "group"),
    [
        ("SUCCEEDED FAILED", "FAILED"),
        ("SUCCEEDED CANCELLED", "SUCCEEDED"),
        ("CANCELLED CANCELLED", "CANCELLED"),
        ("SUCCEEDED RUNNING", "RUNNING"),
        ("RUNNING PENDING", "PENDING"),
        ("FAILED RUNNING", "FAILED"),
        ("", "UNSUBMITTED"),
    ],
)
def test_the_state_of_a_group(tasks, group):
    found = JobGroup("g", [script("true")], [run.LocalExecutor()], states=[AppState[name] for name in tasks.split()])
    assert str(found.state) == group


def test_torchrun_takes_its_place_among_nodes_from_the_environment(monkeypatch):
    for name, value in {"MASTER_ADDR": "head", "MASTER_PORT": "1234", "SLURM_NODEID": "1"}.items():
        monkeypatch.setenv(name, value)
    executor = run.LocalExecutor(nodes=2, ntasks_per_node=8, launcher=run.Torchrun(rdzv_id=5))
    assert command(executor, run.Script("train.py", entrypoint="python")) == [
        *("torchrun", "--nnodes", "2", "--nproc-per-node", "8", "--node-rank", "1"),
        *("--rdzv-backend", "c10d", "--rdzv-endpoint", "head:1234", "--rdzv-id", "5", "--tee", "3", "train.py"),
    ]


def test_fault_tolerance_by_name_and_with_what_it_is_told():
    executor = run.LocalExecutor(launcher="ft")
    task = run.Script("train.py", entrypoint="python")
    assert command(executor, task)[:2] == ["ft_launcher", "--ignore-missing-fault-tol-cfg"]
    executor = run.LocalExecutor(launcher=run.FaultTolerance(max_restarts=0, rank_heartbeat_timeout=1.5))
    assert command(executor, task)[:5] == ["ft_launcher", "--ft-rank_heartbeat_timeout", "1.5", "--max-restarts", "0"]


def test_a_profiler_stands_before_everything():
    executor = run.LocalExecutor(launcher=run.Torchrun(nsys_profile=True, nsys_extra_args=["--x"]))
    with run.Experiment("nsys", executor=executor) as exp:
        exp.add(run.Script("train.py", entrypoint="python"), name="t")
        found = exp.dryrun(log=False, delete_exp_dir=False)["t"]["command"]
    folder = f"{exp._exp_dir}/t/nsys_profile"
    assert found[:9] == ["nsys", "profile", "-s", "none", "-t", "nvtx,cuda", "-o", f"{folder}/profile_%p", "--x"]
    assert found[9] == "torchrun"
    assert Path(folder).is_dir()


def test_processes_of_torchrun_run_each_with_its_rank(tmp_path, monkeypatch):
    """The stand-in that LocalKube has on its pods' PATH takes torchrun's place."""
    import nemo_run.testing

    stand_in = Path(nemo_run.testing.__file__).with_name("_torchrun.py")
    torchrun = tmp_path / "bin" / "torchrun"
    torchrun.parent.mkdir()
    torchrun.write_text(f'#!/bin/sh\nexec {sys.executable} {stand_in} "$@"\n')
    torchrun.chmod(0o755)
    monkeypatch.setenv("PATH", f"{torchrun.parent}:{os.environ['PATH']}")
    train = tmp_path / "train.py"
    train.write_text('import os, sys; print(os.environ["RANK"], os.environ["WORLD_SIZE"], sys.argv[1:])')
    executor = run.LocalExecutor(ntasks_per_node=2, launcher="torchrun")
    with run.Experiment("torch", executor=executor) as exp:
        exp.add(run.Script(str(train), entrypoint="python", args=["a b"]), name="t")
        exp.run()
    assert states(exp) == {"t": "SUCCEEDED"}, output(exp, "t")
    lines = sorted(line for line in output(exp, "t").splitlines() if "a b" in line)
    assert lines == ["[default0]:0 2 ['a b']", "[default1]:1 2 ['a b']"]


@dataclass(kw_only=True)
class WithMacros(run.LocalExecutor):
    def macro_values(self):
        names = ("head_node_ip_var", "nproc_per_node_var", "num_nodes_var", "node_rank_var", "het_group_host_var")
        return ExecutorMacros(**{name: name.upper() for name in names})


def test_macros_of_an_executor_are_replaced_in_arguments_and_variables():
    task = run.Script(
        "train.sh", args=[f"--n=$${ExecutorMacros.NUM_NODES_VAR}"], env={"R": ExecutorMacros.NODE_RANK_VAR}
    )
    with run.Experiment("macros", executor=WithMacros()) as exp:
        exp.add(task, name="t")
        found = exp.dryrun(log=False)["t"]
    assert found == {"command": ["bash", "train.sh", "--n=$NUM_NODES_VAR"], "env": {"R": "NODE_RANK_VAR"}}


def greet(name):
    print("hello", name)


def test_what_runs_in_this_process_is_shown_and_kept(capfd):
    with run.Experiment("direct") as exp:
        exp.add(run.Partial(greet, name="you"), name="function")
        exp.add(run.Script(inline="echo from a script"), name="script")
        exp.run(direct=True)
    out = capfd.readouterr().out
    for task, text in {"function": "hello you\n", "script": "from a script\n"}.items():
        assert text in out
        assert Path(exp._exp_dir, task, f"log_{task}_direct_run.out").read_text() == text
    assert states(run.Experiment.from_title("direct")) == {"function": "SUCCEEDED", "script": "SUCCEEDED"}


def test_what_fails_in_this_process_is_failed():
    with run.Experiment("direct") as exp:
        exp.add(script("exit 3"), name="t")
        with pytest.raises(JobFailed, match="exit code 3"):
            exp.run(direct=True)
    assert states(run.Experiment.from_title("direct")) == {"t": "FAILED"}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_shows_how_jobs_stand_while_they_are_waited_for(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    with redirect_stdout(Terminal()) as terminal, run.Experiment("board") as exp:
        exp.add(script("true"), name="first")
        exp.add(script("exit 1"), name="second")
        exp.run(sequential=True)
    text = terminal.getvalue()
    assert exp._id in text
    assert "second" in text
    assert text.rindex("FAILED") > 0


def test_a_quiet_experiment_says_nothing_but_what_its_tasks_say(capfd):
    with run.Experiment("quiet", clean_mode=True) as exp:
        exp.add(script("echo hello"), name="t", tail_logs=True)
        exp.run()
    assert capfd.readouterr().out == "t/0 hello\n"


@pytest.mark.parametrize("skipped", [True, False])
def test_the_status_and_the_goodbye_can_be_left_out(capsys, skipped):
    with run.Experiment("demo", skip_status_at_exit=skipped, enable_goodbye_message=not skipped) as exp:
        exp.add(script("true"), name="t")
        exp.run()
    out = capsys.readouterr().out
    assert (f"Experiment Status for {exp._id}" in out) is not skipped
    assert (f'from_id("{exp._id}")' in out) is not skipped


@pytest.mark.parametrize("workers", [1, 3])
def test_no_more_launches_at_a_time_than_workers(workers, tmp_path):
    with run.Experiment("many", threadpool_workers=workers) as exp:
        for number in range(6):
            exp.add(script("true"), Counting(folder=str(tmp_path)), name=f"t{number}")
        exp.run()
    assert 1 <= max(json.loads(path.read_text()) for path in tmp_path.glob("at-once-*")) <= workers


@dataclass(kw_only=True)
class Counting(run.LocalExecutor):
    folder: str = ""

    def launcher_command(self, cmd):
        mine = Path(self.folder, f"launching-{Path(self.job_dir).name}")
        mine.touch()
        count = len(list(Path(self.folder).glob("launching-*")))
        Path(self.folder, f"at-once-{Path(self.job_dir).name}").write_text(str(count))
        mine.unlink()
        return super().launcher_command(cmd)


def test_a_signal_that_a_job_sends_its_own_group_fails_it():
    with run.Experiment("signals") as exp:
        exp.add(script(f"kill -{signal.SIGTERM.value} 0; sleep 600"), name="t")
        exp.run()
    assert states(exp) == {"t": "FAILED"}
