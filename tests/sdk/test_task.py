"""The calls of the SDK in a task, in a simulation, and outside a task."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import timeit
from typing import Any

import pytest

import hai
from hai import task
from hai.task import control_file, current_channel, env
from hai.task.simulated_channel import SimulatedChannel

TABLE = [
    pytest.param(task.receive_suspend_command, False, False, False, id="receive_suspend_command"),
    pytest.param(lambda: task.suspend_agreed(3), False, False, False, id="suspend_agreed"),
    pytest.param(task.get_whole_life_state, 0, 7, None, id="get_whole_life_state"),
    pytest.param(lambda: task.set_whole_life_state(9), True, True, False, id="new state"),
    pytest.param(lambda: task.set_watchdog_time(60), True, True, False, id="set_watchdog_time"),
    pytest.param(lambda: task.set_priority(30), True, True, False, id="set_priority"),
    pytest.param(lambda: task.disable_warn(task.WARN_TYPE.LOG), True, True, False, id="warn"),
    pytest.param(task.task_id, 12, None, None, id="task_id"),
    pytest.param(task.nb_name, "bert", None, None, id="nb_name"),
    pytest.param(task.node_name, "n1", None, None, id="node_name"),
    pytest.param(task.rank, 1, 0, 0, id="rank"),
]


@pytest.mark.parametrize(("call", "in_cluster", "in_simulation", "elsewhere"), TABLE)
def test_in_cluster(cluster, monkeypatch, call, in_cluster, in_simulation, elsewhere):
    own = {env.TASK_ID: "12", env.TASK_NAME: "bert", env.NODE_NAME: "n1", env.NODE_RANK: "1"}
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    assert call() == in_cluster


@pytest.mark.parametrize(("call", "in_cluster", "in_simulation", "elsewhere"), TABLE)
def test_in_simulation(simulated, call, in_cluster, in_simulation, elsewhere):
    simulated(MARSV2_WHOLE_LIFE_STATE="7", WORLD_SIZE="1", RANK="0")
    assert call() == in_simulation


@pytest.mark.parametrize(("call", "in_cluster", "in_simulation", "elsewhere"), TABLE)
def test_elsewhere(outside, capsys, call, in_cluster, in_simulation, elsewhere):
    assert call() == elsewhere
    assert capsys.readouterr() == ("", "")


def test_elsewhere_yielding_does_nothing(outside):
    assert task.go_suspend() is False
    assert task.wait_suspended() is False


class TestSuspend:
    def test_first_true_answer_acknowledges_once(self, cluster):
        assert not task.receive_suspend_command()
        assert cluster.calls == []
        cluster.ask()
        assert [task.receive_suspend_command() for _ in range(3)] == [True] * 3
        assert cluster.calls == [{"call": "suspend_received"}]

    def test_is_seen_although_the_agent_is_silent(self, cluster, monkeypatch, capsys):
        monkeypatch.setattr("hai.task.agent_channel._ACKNOWLEDGE_SECONDS", 0.05)
        cluster.close()
        cluster.ask()
        assert task.receive_suspend_command()
        assert "could not be acknowledged: suspend_received: no agent at" in capsys.readouterr().err

    @pytest.mark.parametrize("call", [task.go_suspend, task.wait_suspended])
    def test_a_dev_container_says_that_it_does_not_yield(self, cluster, monkeypatch, capsys, call):
        monkeypatch.setenv(env.TASK_TYPE, "jupyter")
        assert call() is False
        assert cluster.calls == []
        assert f"{call.__name__} does nothing in a dev container" in capsys.readouterr().err

    def test_go_suspend_reports_a_missing_agent_if_wanted(self, cluster):
        cluster.close()
        with pytest.raises(task.AgentError, match="go_suspend: no agent"):
            task.go_suspend(timeout=0.05, raise_exception=True)

    @pytest.mark.parametrize(("verb", "told"), [("go_suspend", 1), ("wait_suspended", 0)])
    def test_yielding_never_returns(self, fake_agent, program_environ, verb, told):
        code = f"import hai; print('saved'); hai.disable_warn(1); hai.{verb}(); print('returned')"
        program = subprocess.Popen(
            [sys.executable, "-c", code], env=program_environ, stdout=subprocess.PIPE, text=True
        )
        fake_agent.wait_for("go_suspend" if told else "disable_warn")
        assert program.stdout is not None
        assert program.stdout.readline() == "saved\n"  # flushed before it waits
        program.send_signal(signal.SIGTERM)
        assert program.wait(10) == -signal.SIGTERM
        assert program.stdout.read() == ""
        program.stdout.close()
        assert fake_agent.names.count("go_suspend") == told

    def test_simulated_suspend_comes_after_its_seconds(self):
        now = 100.0
        world = SimulatedChannel(suspend_at=105.0, clock=lambda: now)
        assert not world.suspend_requested()
        now = 105.0
        assert world.suspend_requested()
        assert world.suspend_agreed(0)

    @pytest.mark.parametrize("call", [task.go_suspend, task.wait_suspended])
    def test_simulated_yield_exits_0(self, simulated, call):
        simulated(SIMULATE_SUSPEND="0")
        assert task.receive_suspend_command()
        with pytest.raises(SystemExit) as leaving:
            call()
        assert leaving.value.code == 0

    def test_simulation_beats_the_cluster_that_it_is_typed_in(self, cluster, simulated):
        simulated()
        cluster.ask()
        assert not task.receive_suspend_command()

    def test_bad_simulation_time_is_named(self, simulated):
        simulated(SIMULATE_SUSPEND="soon")
        with pytest.raises(ValueError, match="SIMULATE_SUSPEND is 'soon'; set it to a number"):
            task.receive_suspend_command()

    @pytest.mark.parametrize(
        "call",
        [
            pytest.param(lambda: hai.receive_suspend_command(), id="as users write it"),
            pytest.param(lambda: task.suspend_agreed(5), id="agreed"),
        ],
    )
    def test_asking_costs_at_most_a_microsecond(self, cluster, call):
        count = 20_000
        best = min(timeit.repeat(call, number=count, repeat=7)) / count
        assert best <= 1e-6, f"{best * 1e9:.0f} ns"


class TestAgreement:
    def test_step_is_noted_and_flag_read(self, cluster, monkeypatch):
        monkeypatch.setenv(env.LOCAL_RANK, "2")
        assert not task.suspend_agreed(41)
        assert cluster.step(2) == 41
        assert cluster.step(0) == -1

    @pytest.mark.parametrize(("step", "stops"), [(4, False), (5, True), (6, True)])
    def test_stops_at_the_agreed_step(self, cluster, step, stops):
        cluster.agree(5)
        assert task.suspend_agreed(step) is stops
        assert cluster.names == ["suspend_received"]

    def test_waits_for_agreement(self, cluster):
        cluster.ask()
        cluster.on_call = lambda call: cluster.agree(8)  # after the program has seen the request
        assert task.suspend_agreed(8)

    def test_a_withdrawn_request_lets_it_go_on(self, cluster):
        cluster.ask()
        cluster.on_call = lambda call: cluster._map.__setitem__(
            control_file.FLAG, control_file.NONE
        )
        assert not task.suspend_agreed(8)

    def test_too_many_processes_are_told_what_to_do(self, cluster, monkeypatch):
        monkeypatch.setenv(env.LOCAL_RANK, "96")
        with pytest.raises(ValueError, match="LOCAL_RANK is 96; suspend_agreed serves 0 to 95"):
            task.suspend_agreed(0)

    def test_processes_of_different_speed_stop_at_one_step(self, fake_agent, program_environ):
        programs = [self._rank(program_environ, i, pace) for i, pace in enumerate((1, 2, 5))]
        fake_agent.wait_for("disable_warn", count=3)  # each has taken ten steps
        fake_agent.ask()
        time.sleep(0.002)  # the time that the agent waits until stores are visible
        fake_agent.agree(max(fake_agent.step(i) for i in range(3)) + 1)
        steps = {json.loads(program.communicate(timeout=30)[0]) for program in programs}
        assert len(steps) == 1

    @staticmethod
    def _rank(variables: dict[str, str], rank: int, milliseconds: int) -> subprocess.Popen[str]:
        code = (
            "import hai, itertools, time\n"
            "for step in itertools.count():\n"
            "    if hai.suspend_agreed(step): break\n"
            "    if step == 10: hai.disable_warn(1)\n"
            f"    time.sleep({milliseconds} / 1000)\n"
            "print(step)"
        )
        return subprocess.Popen(
            [sys.executable, "-c", code],
            env={**variables, env.LOCAL_RANK: str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )


class TestTelling:
    def test_state_is_read_from_the_control_file(self, cluster):
        cluster.set_state(-(2**40))
        assert task.get_whole_life_state() == -(2**40)

    def test_unchanged_state_is_false(self, cluster):
        assert [task.set_whole_life_state(7), task.set_whole_life_state(7)] == [True, False]
        assert cluster.calls == [{"call": "set_whole_life_state", "value": 7}] * 2

    def test_unchanged_state_is_false_in_simulation(self, simulated):
        simulated(MARSV2_WHOLE_LIFE_STATE="7")
        assert [task.set_whole_life_state(7), task.set_whole_life_state(8)] == [False, True]
        assert task.get_whole_life_state() == 8

    def test_missing_agent_raises_or_returns_false(self, cluster, capsys):
        cluster.close()
        with pytest.raises(task.AgentError, match="set_whole_life_state: no agent at"):
            task.set_whole_life_state(1, timeout=0.05)
        assert task.set_whole_life_state(1, timeout=0.05, raise_exception=False) is False
        assert "no agent at" in capsys.readouterr().err

    def test_silent_agent_is_an_error_after_the_timeout(self, cluster):
        import threading

        release = threading.Event()
        cluster.on_call = lambda call: bool(release.wait(10)) and None
        with pytest.raises(task.AgentError, match="the agent did not answer in time"):
            task.set_whole_life_state(1, timeout=0.05)
        release.set()

    def test_an_agent_that_hangs_up_is_asked_again(self, cluster, monkeypatch):
        from hai.task import agent_channel

        tries: list[object] = []
        real = agent_channel._answer

        def flaky(connection: Any) -> Any:
            tries.append(connection)
            if len(tries) == 1:
                raise ConnectionResetError("the agent hung up")
            return real(connection)

        monkeypatch.setattr(agent_channel, "_answer", flaky)
        assert task.disable_warn(4)
        assert len(tries) == 2

    def test_refusal_is_false_and_said(self, cluster, capsys):
        cluster.refusals["set_priority"] = "quota of user0 at HIGH is 0 nodes"
        assert task.set_priority(task.EXP_PRIORITY.HIGH) is False
        assert "set_priority was refused: quota of user0 at HIGH" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("call", "sentence"),
        [
            pytest.param(
                lambda: task.set_priority(31), "31 is not a valid EXP_PRIORITY", id="level"
            ),
            pytest.param(lambda: task.set_watchdog_time(-1), "seconds, or 0 for never", id="time"),
        ],
    )
    def test_nonsense_is_refused_in_every_world(self, outside, call, sentence):
        with pytest.raises(ValueError, match=sentence):
            call()

    def test_levels_are_those_of_the_platform(self):
        priority = pytest.importorskip("hai_backend.domain.priority").Priority
        assert {p.name: int(p) for p in task.EXP_PRIORITY} == {p.name: int(p) for p in priority}

    def test_vanished_control_file_is_explained(self, cluster):
        cluster.control_file.unlink()
        with pytest.raises(task.AgentError, match=r"HAI_CONTROL_FILE names .* cannot be opened"):
            task.receive_suspend_command()


def test_a_program_that_saves_by_itself_says_so(cluster):
    assert hai.checkpoint_saved(1.5, step=7)
    assert task.checkpoint_saved()
    assert cluster.calls == [
        {"call": "checkpoint_saved", "seconds": 1.5, "step": 7},
        {"call": "checkpoint_saved", "seconds": 0.0, "step": -1},
    ]


def test_numbers_of_numpy_are_numbers(cluster):
    numpy = pytest.importorskip("numpy")
    assert task.checkpoint_saved(numpy.float32(1.5), numpy.int64(3))
    assert cluster.calls[0]["seconds"] == 1.5


def test_a_refused_report_is_printed_once_and_never_raises(cluster, capsys):
    cluster.refusals["checkpoint_saved"] = "seconds must be a number"
    assert not task.checkpoint_saved(float("nan"))
    assert not task.checkpoint_saved("soon")
    assert not task.checkpoint_saved(-1)
    printed = "hai: a checkpoint was not reported: seconds must be a number\n"
    assert capsys.readouterr().err == printed


def test_a_report_that_is_no_number_never_raises(cluster, capsys):
    assert not task.checkpoint_saved("soon")
    assert "not reported: could not convert string to float" in capsys.readouterr().err
    assert cluster.calls == []


def test_a_silent_agent_costs_a_report_only(cluster, monkeypatch, capsys):
    monkeypatch.setattr(current_channel, "REPORT_SECONDS", 0.05)
    cluster.close()
    assert not task.checkpoint_saved(1.0)
    assert "no agent at" in capsys.readouterr().err


def _child(results: Any) -> None:
    results.put((hai.receive_suspend_command(), hai.set_whole_life_state(os.getpid())))


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")  # the test uses fork
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_may_use_it_too(cluster, method):
    assert not task.receive_suspend_command()  # the channel is open before the fork
    cluster.ask()
    context = multiprocessing.get_context(method)
    results = context.SimpleQueue()
    child = context.Process(target=_child, args=(results,))
    child.start()
    assert results.get() == (True, True)
    child.join(20)
    assert child.exitcode == 0
    assert cluster.names == ["suspend_received", "set_whole_life_state"]
    assert current_channel.current() is not None


@pytest.mark.parametrize("module", ["hai", "hai.task"])
def test_import_is_cheap_and_has_no_side_effects(program_environ, module):
    code = (
        "import sys, time\n"
        "before = set(sys.modules)\n"
        "began = time.process_time()\n"
        f"import {module}\n"
        "spent = time.process_time() - began\n"
        "import json, threading\n"
        "heavy = {'grpc', 'google', 'numpy', 'torch', 'asyncio', 'socket', 'logging', 'dataclasses'}\n"
        "loaded = sorted(heavy & (set(sys.modules) - before))\n"
        "print(json.dumps([spent, loaded, threading.active_count()]))"
    )
    # A control file that does not exist would be an error if the import touched it.
    variables = {**program_environ, env.CONTROL_FILE: "/nonexistent"}
    runs = [
        json.loads(subprocess.check_output([sys.executable, "-c", code], env=variables))
        for _ in range(3)
    ]
    assert min(spent for spent, _, _ in runs) < 0.020
    assert all(run[1:] == [[], 1] for run in runs)


def test_every_name_is_reachable_from_hai():
    assert set(dir(hai)) >= {"receive_suspend_command", "go_suspend", "task", "__version__"}
    for name in hai._TASK_NAMES:
        assert getattr(hai, name) is getattr(task, name)
    for name in task.__all__:
        assert getattr(task, name) is not None
    assert hai.__version__
    with pytest.raises(AttributeError, match="module 'hai' has no attribute 'suspend_me'"):
        getattr(hai, "suspend_me")  # noqa: B009
    with pytest.raises(AttributeError, match=r"module 'hai.task' has no attribute"):
        getattr(task, "suspend_me")  # noqa: B009
