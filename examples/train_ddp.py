"""Train on scikit-learn's digits with PyTorch DistributedDataParallel, with gloo on CPUs and NCCL on GPUs.

    torchrun --nproc-per-node 2 examples/train_ddp.py        two processes on this machine
    hai run examples/ddp.yml                                 HAI style: one process per node

In a task, `torchrun examples/train_ddp.py` needs no options, because it reads the PET_* variables that the platform
sets.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from hai.task.integrations.torch import Loop, StepBatches


def make_data() -> TensorDataset:
    """Return 1797 images of 8x8 pixels, with the digit on each."""
    pictures, digits = load_digits(return_X_y=True)
    return TensorDataset(
        torch.tensor(pictures, dtype=torch.float32) / 16, torch.tensor(digits, dtype=torch.int64)
    )


def join() -> torch.device:
    """Join the other processes, if any, and return the device for computing."""
    gpu = torch.cuda.is_available()
    device = (
        torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if gpu else torch.device("cpu")
    )
    if gpu:
        torch.cuda.set_device(device)
    if "MASTER_ADDR" in os.environ:
        dist.init_process_group("nccl" if gpu else "gloo")
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    return device


def train(options: argparse.Namespace, device: torch.device) -> float:
    """Run the remaining steps, and return the loss over all images."""
    torch.manual_seed(options.seed)
    data = make_data()
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10)).to(
        device
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    batches = StepBatches(
        len(data), 32, seed=options.seed, replica=dist.get_rank(), replicas=dist.get_world_size()
    )
    loop = Loop(
        {"model": model, "optimizer": optimizer},
        batches=batches,
        every=options.checkpoint_every,
        name="ddp",
    )
    if loop.load():
        print(f"rank {dist.get_rank()} resumed at step {loop.step}", flush=True)
    parallel = DistributedDataParallel(model)
    for step, (x, y) in zip(
        loop.steps(options.steps), DataLoader(data, batch_sampler=batches), strict=False
    ):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(parallel(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
        if step % options.checkpoint_every == 0 and dist.get_rank() == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
    return evaluate(model, data, device)


@torch.no_grad()
def evaluate(model: nn.Module, data: TensorDataset, device: torch.device) -> float:
    """Mean loss over all pictures."""
    model.eval()
    x, y = (tensor.to(device) for tensor in data.tensors)
    return float(nn.functional.cross_entropy(model(x), y))


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on digits with DistributedDataParallel.")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--checkpoint-every", type=int, default=50, metavar="STEPS")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="write the result there as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)  # repeatable results on CPUs, and leaves cores to other processes
    loss = train(options, join())
    if dist.get_rank() == 0:
        print(f"finished {options.steps} steps: loss {loss:.6f} ({loss.hex()})", flush=True)
        result = {"final_loss": loss.hex(), "loss": loss, "steps": options.steps}
        if options.out:
            options.out.write_text(json.dumps(result) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
