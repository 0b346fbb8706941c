"""PyTorch state as one safetensors file. It is written at the speed of memory, and read without running code.

    with path.open("wb") as file:
        write_state(file, {"model": model.state_dict(), "step": 7})
    state = unpack_state(bytearray(path.read_bytes()))

The state is a tree of dicts, lists and tuples. Each of its tensors is a tensor of the file, whose name is a number. The
rest (numbers, strings, and the tree itself) is in the tensor `tree`, which contains the output of torch.save for the
tree with a reference in place of each tensor. It is read by torch.load with weights_only. Equal views of the same
memory are written once. Each tensor begins at a multiple of 64 bytes, as in memory that torch allocates, so a reader
need not copy it. The format allows no gaps, so tensors with the name `pad…` fill them.
"""

from __future__ import annotations

import copy
import io
import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import torch

from hai.task.staging_buffers import StagedFile

if TYPE_CHECKING:
    from typing_extensions import Buffer

_TREE = "tree"
_REFERENCE = "hai.tensor"  # the tree has ("hai.tensor", number) in place of a tensor
_PAD = "pad"
_ALIGNMENT = 64
_DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
    "C64": torch.complex64,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


@dataclass(frozen=True)
class StateLayout:
    """The parts of the file of a state: the header, then the bytes of each tensor."""

    header: bytes
    tensors: tuple[torch.Tensor, ...]

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return len(self.header) + sum(int(tensor.nbytes) for tensor in self.tensors)


def layout_of(state: Any) -> StateLayout:
    """Return the layout of a state. The tensors are not copied, so write them before the program changes them."""
    numbers: dict[tuple[Any, ...], int] = {}
    found: list[torch.Tensor] = []

    def replace(tensor: torch.Tensor) -> tuple[str, int]:
        key = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if tensor.numel() == 0 or key not in numbers:
            numbers[key] = len(found)
            found.append(tensor.detach())
        return (_REFERENCE, numbers[key])

    tree = _pack(_map_tree(state, _is_plain_tensor, replace))
    tensors = [(str(number), tensor) for number, tensor in enumerate(found)]
    padded = list(_pad([(_TREE, tree), *tensors]))
    return StateLayout(_header(padded), tuple(tensor for _, tensor in padded))


def write_state(file: BinaryIO, state: Any) -> None:
    """Write a state. See write_layout."""
    write_layout(file, layout_of(state))


def write_layout(file: BinaryIO, layout: StateLayout) -> None:
    """Write a state. Tensors on a GPU are copied into the memory of a staged file, or to the host one at a time."""
    extend = file.extend if isinstance(file, StagedFile) else lambda count: None
    file.write(layout.header)
    for tensor in layout.tensors:
        memory = extend(tensor.nbytes) if tensor.nbytes else None
        if memory is None:
            file.write(_bytes_of(tensor.cpu()).numpy().data)
        else:
            torch.frombuffer(memory, dtype=torch.uint8).copy_(_bytes_of(tensor), non_blocking=True)
    for device in {tensor.device for tensor in layout.tensors if tensor.is_cuda}:
        torch.cuda.synchronize(device)  # pinned memory is filled in the background


def unpack_state(memory: Buffer) -> Any:
    """Return the state of a file whose content is in writable memory. The tensors are views of that memory."""
    content = torch.frombuffer(memory, dtype=torch.uint8)
    header_end = 8 + int.from_bytes(content[:8].numpy().tobytes(), "little")
    header = json.loads(content[8:header_end].numpy().tobytes())
    data = content[header_end:]
    tensors = {name: _tensor_at(data, **entry) for name, entry in header.items()}
    tree = torch.load(io.BytesIO(tensors.pop(_TREE).numpy().tobytes()), weights_only=True)
    return _map_tree(tree, _is_reference, lambda reference: tensors[str(reference[1])])


def _tensor_at(
    data: torch.Tensor, dtype: str, shape: list[int], data_offsets: list[int]
) -> torch.Tensor:
    start, end = data_offsets
    return data[start:end].view(_DTYPES[dtype]).reshape(shape)


def _pad(tensors: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in tensors:
        yield name, tensor
        if gap := -tensor.nbytes % _ALIGNMENT:
            yield f"{_PAD}{name}", torch.zeros(gap, dtype=torch.uint8)


def _header(tensors: list[tuple[str, torch.Tensor]]) -> bytes:
    entries, end = {}, 0
    for name, tensor in tensors:
        start, end = end, end + tensor.nbytes
        entries[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a tensor on the host. It is a view if the memory of the tensor is contiguous."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _pack(tree: Any) -> torch.Tensor:
    buffer = io.BytesIO()
    torch.save(tree, buffer)
    return torch.frombuffer(buffer.getbuffer(), dtype=torch.uint8)


def _map_tree(tree: Any, matches: Callable[[Any], bool], replace: Callable[[Any], Any]) -> Any:
    """Return a copy of a tree with `replace(leaf)` for each value that matches."""
    if matches(tree):
        return replace(tree)
    if type(tree) in (dict, OrderedDict):
        copied = copy.copy(
            tree
        )  # with the attributes of an OrderedDict: modules keep their versions there
        for key, value in tree.items():
            copied[key] = _map_tree(value, matches, replace)
        return copied
    if type(tree) in (list, tuple):
        return type(tree)(_map_tree(value, matches, replace) for value in tree)
    return tree


def _is_plain_tensor(value: Any) -> bool:
    """Return whether a value is a tensor that can be stored as bytes. Others (sparse, subclasses) stay in the tree."""
    return (
        type(value) in (torch.Tensor, torch.nn.Parameter)
        and value.layout is torch.strided
        and value.device.type != "meta"
        and value.dtype in _NAMES
        and not value.is_conj()
        and not value.is_neg()
    )


def _is_reference(value: Any) -> bool:
    return type(value) is tuple and len(value) == 2 and value[0] == _REFERENCE
