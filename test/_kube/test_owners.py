"""A process is told from a later one of its number, and from one of another machine."""

from __future__ import annotations

import os
import subprocess

from children import python

from nemo_run._kube.owners import is_over, this_process


def test_this_one_is_not_over():
    assert this_process() == this_process()
    assert not is_over(this_process())


def test_one_that_has_ended_is_over():
    code = "from nemo_run._kube.owners import this_process; print(this_process())"
    ended = subprocess.run(python(code), check=True, capture_output=True, text=True)
    assert is_over(ended.stdout.strip())


def test_a_later_one_of_its_number_is_another():
    place, pid, started = this_process().split("/")
    assert pid == str(os.getpid())
    assert is_over(f"{place}/{pid}/{int(started) - 1}")


def test_of_another_machine_and_of_nobody_nothing_is_known():
    _, pid, started = this_process().split("/")
    assert not is_over(f"elsewhere/{pid}/{int(started) - 1}")
    assert not is_over("")
    assert not is_over("x/y/z")
