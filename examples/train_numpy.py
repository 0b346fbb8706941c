"""Train a small network on generated digits, with numpy only. The final loss does not depend on suspensions.

    python examples/train_numpy.py                                   on this machine
    hai python examples/train_numpy.py ++ --suspend_seconds 2        with simulated suspensions
    hai python examples/train_numpy.py -- --nodes 2                  on the cluster

Three things make it repeatable: the batch of a step depends on the step only, a checkpoint has everything that changes,
and numpy computes in one thread. Every rank trains the same model, and rank 0 saves it.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy loads: fixes the order of sums
os.environ.setdefault("MKL_NUM_THREADS", "1")

import numpy as np

import hai
from hai.task import checkpoint

CLASSES, PIXELS, HIDDEN, ITEMS, BATCH = 10, 64, 32, 2000, 64
Arrays = dict[str, np.ndarray]


def make_digits(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return noisy copies of ten random 8x8 patterns, with the number of each pattern."""
    random = np.random.default_rng(seed)
    patterns = random.uniform(0, 1, (CLASSES, PIXELS))
    labels = random.integers(0, CLASSES, ITEMS)
    return patterns[labels] + random.normal(0, 0.6, (ITEMS, PIXELS)), labels


def make_model(seed: int) -> Arrays:
    """Return the weights of two layers, with their momentum."""
    random = np.random.default_rng(seed + 1)
    weights = {
        "w1": random.normal(0, PIXELS**-0.5, (PIXELS, HIDDEN)),
        "b1": np.zeros(HIDDEN),
        "w2": random.normal(0, HIDDEN**-0.5, (HIDDEN, CLASSES)),
        "b2": np.zeros(CLASSES),
    }
    return weights | {f"v_{name}": np.zeros_like(value) for name, value in weights.items()}


def forward(model: Arrays, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Return the mean cross-entropy, the hidden layer and the class probabilities."""
    hidden = np.tanh(x @ model["w1"] + model["b1"])
    scores = hidden @ model["w2"] + model["b2"]
    scores -= scores.max(axis=1, keepdims=True)
    probabilities = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    loss = -np.log(probabilities[np.arange(len(y)), y]).mean()
    return float(loss), hidden, probabilities


def train_step(model: Arrays, x: np.ndarray, y: np.ndarray, rate: float = 0.05) -> float:
    """Do one step of gradient descent with momentum, and return the loss."""
    loss, hidden, error = forward(model, x, y)
    error[np.arange(len(y)), y] -= 1
    error /= len(y)
    back = (error @ model["w2"].T) * (1 - hidden**2)
    gradients = {"w1": x.T @ back, "b1": back.sum(0), "w2": hidden.T @ error, "b2": error.sum(0)}
    for name, gradient in gradients.items():
        model[f"v_{name}"] = 0.9 * model[f"v_{name}"] + gradient
        model[name] = model[name] - rate * model[f"v_{name}"]
    return loss


def load(model: Arrays) -> int:
    """Load the newest checkpoint into `model`, and return the next step, or 0 without a checkpoint."""
    found = checkpoint.latest("train")
    if found is None:
        return 0
    with np.load(found.path, allow_pickle=False) as kept:
        model.update({name: kept[name] for name in model})
    return found.step


def save(model: Arrays, step: int) -> None:
    """Save a checkpoint. Only rank 0 writes."""
    if hai.rank() == 0:
        checkpoint.save("train", lambda file: np.savez(file, **model), step=step)  # type: ignore[arg-type]


def leave(model: Arrays, step: int) -> None:
    """Save and yield. Rank 0 yields for the whole task, and the other ranks wait."""
    print(f"suspended before step {step}", flush=True)
    save(model, step)
    if hai.rank() == 0:
        hai.go_suspend()
    hai.wait_suspended()


def train(options: argparse.Namespace) -> float:
    """Run the remaining steps, and return the loss over all items."""
    x, y = make_digits(options.seed)
    model = make_model(options.seed)
    first = load(model)
    print(f"{'resumed' if first else 'starting'} at step {first} of {options.steps}", flush=True)
    for step in range(first, options.steps):
        if hai.suspend_agreed(step):
            leave(model, step)
        batch = np.random.default_rng((options.seed, step)).integers(0, ITEMS, BATCH)
        loss = train_step(model, x[batch], y[batch])
        if (step + 1) % options.checkpoint_every == 0:
            save(model, step + 1)
            print(f"step {step + 1}: loss {loss:.4f}", flush=True)
        time.sleep(options.step_seconds)
    return forward(model, x, y)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small network on generated digits.")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--checkpoint-every", type=int, default=100, metavar="STEPS")
    parser.add_argument("--step-seconds", type=float, default=0.0, help="a pause after each step")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="write the result there as JSON")
    options = parser.parse_args()
    loss = train(options)
    print(f"finished {options.steps} steps: loss {loss:.6f} ({loss.hex()})", flush=True)
    if options.out and hai.rank() == 0:
        result = {"final_loss": loss.hex(), "loss": loss, "steps": options.steps}
        options.out.write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
