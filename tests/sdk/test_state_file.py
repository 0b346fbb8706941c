"""A state that is read from its file is exactly the same, and other programs can read the file."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.torch

from hai.task.integrations.state_file import layout_of, unpack_state, write_state  # noqa: E402


def written(path: Path, state: Any) -> Any:
    with path.open("wb") as file:
        write_state(file, state)
    assert path.stat().st_size == layout_of(state).size
    return unpack_state(bytearray(path.read_bytes()))


def bytes_of(tensor: Any) -> Any:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def equal(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor):
        same_kind = (left.dtype, left.shape) == (right.dtype, right.shape)
        return same_kind and torch.equal(bytes_of(left), bytes_of(right))
    if isinstance(left, dict):
        return list(left) == list(right) and all(equal(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(equal, left, right))
    return type(left) is type(right) and left == right


STATES = {
    "empty": {},
    "scalars": {
        "step": 7,
        "name": "a",
        "none": None,
        "flag": True,
        "rate": 0.1,
        "betas": (0.9, 0.99),
    },
    "keys that are numbers": {
        "state": {0: {"step": torch.tensor(3.0)}, 1: {}},
        "groups": [{"params": [0, 1]}],
    },
    "a tensor without dimensions": torch.tensor(1.5),
    "a tensor without elements": {
        "empty": torch.empty(0, 3),
        "also": torch.empty(0, dtype=torch.int16),
    },
    "not contiguous": torch.arange(24.0).reshape(4, 6).t()[::2],
    "ordered": OrderedDict(weight=torch.ones(2), bias=torch.zeros(1)),
    "odd sizes": [
        torch.arange(3, dtype=torch.uint8),
        torch.arange(5, dtype=torch.float64),
        torch.ones(7).bool(),
    ],
    "sparse": {"table": torch.eye(3).to_sparse()},
}

DTYPES = [
    torch.bfloat16,
    torch.float16,
    torch.float8_e4m3fn,
    torch.int8,
    torch.complex64,
    torch.complex128,  # not a type of safetensors
]


@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
def test_a_state_comes_back(tmp_path: Path, state: Any) -> None:
    found = written(tmp_path / "state", state)
    if state is STATES["sparse"]:
        found, state = found["table"].to_dense(), state["table"].to_dense()
    assert equal(found, state)


@pytest.mark.parametrize(
    "dtype",
    [
        torch.bfloat16,
        torch.float16,
        torch.int8,
        torch.complex64,
        torch.float8_e4m3fn,
        torch.complex128,
    ],
)
def test_every_type_of_elements_comes_back(tmp_path: Path, dtype: Any) -> None:
    tensor = torch.randn(6).to(dtype)
    assert equal(written(tmp_path / "state", [tensor, 1, tensor[::2]]), [tensor, 1, tensor[::2]])


def test_tensors_that_share_memory_are_written_once(tmp_path: Path) -> None:
    weight = torch.randn(1000)
    assert layout_of({"input": weight, "output": weight}).size < layout_of([weight]).size + 500
    found = written(tmp_path / "state", {"input": weight, "output": weight, "part": weight[:10]})
    assert found["input"] is found["output"]
    assert equal(found["part"], weight[:10])


def test_every_tensor_is_aligned_as_torch_aligns_its_own(tmp_path: Path) -> None:
    tensors = [torch.ones(size, dtype=torch.uint8) for size in (1, 63, 64, 65)]
    found = written(tmp_path / "state", [tensors[0], 5, *tensors])
    base = found[0].untyped_storage().data_ptr()
    assert {(tensor.data_ptr() - base) % 64 for tensor in found[2:]} == {0}


def test_a_module_keeps_the_versions_of_its_parts(tmp_path: Path) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    found = written(tmp_path / "state", module.state_dict())
    assert found._metadata == module.state_dict()._metadata
    module.load_state_dict(found)


def test_an_optimizer_continues(tmp_path: Path) -> None:
    def optimizer() -> Any:
        parameter = torch.nn.Parameter(torch.ones(3))
        made = torch.optim.AdamW([parameter], lr=0.1)
        parameter.grad = torch.ones(3)
        return made

    first, second = optimizer(), optimizer()
    first.step()
    second.load_state_dict(written(tmp_path / "state", first.state_dict()))
    assert equal(second.state_dict(), first.state_dict())


def test_other_programs_read_the_file(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    written(tmp_path / "state", {"weight": torch.arange(6.0).reshape(2, 3), "step": 4})
    assert torch.equal(
        safetensors.load_file(tmp_path / "state")["0"], torch.arange(6.0).reshape(2, 3)
    )
