"""`hfai`, the package name of the SDK in HAI."""

from __future__ import annotations

import subprocess
import sys

import pytest

import hai.task
import hfai
from hfai import client


def test_its_calls_are_those_of_the_sdk() -> None:
    assert hfai.client is client
    assert {name: getattr(client, name) for name in client.__all__} == {
        name: getattr(hai.task, name) for name in client.__all__
    }


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        pytest.param("from hfai import distributed", "use torch.distributed", id="distributed"),
        pytest.param("import hfai; hfai.nn", "use torch.nn", id="nn"),
        pytest.param("from hfai import datasets", "`hai dataset list`", id="datasets"),
        pytest.param("from hfai import pl", "hai.task.integrations.lightning", id="pl"),
        pytest.param("from hfai import checkpoint", "hai.task.checkpoint", id="checkpoint"),
        pytest.param(
            "from hfai.client import create_experiment", "use hai.client", id="management"
        ),
    ],
)
def test_what_is_no_part_of_it_names_what_is(statement: str, told: str) -> None:
    with pytest.raises(ImportError, match=r"is no part of HAI Platform") as caught:
        exec(compile(statement, "program", "exec"), {})  # as a program writes it
    assert told in str(caught.value)


def test_an_unknown_name_is_as_in_any_module() -> None:
    assert not hasattr(hfai, "nothing")
    assert not hasattr(client, "nothing")


def test_importing_it_loads_neither_grpc_nor_torch() -> None:
    code = "import hfai.client, sys; print({'grpc', 'google.protobuf', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
