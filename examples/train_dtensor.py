"""A transformer's MLP trained on all ranks with PyTorch's DTensor, multiplied by drbench.

Rows of the batch are divided, the first layer by columns, the second by rows. The two styles leave
the transfers to the multiplication: no gather before it and no reduction after it.

mpiexec -n 4 python examples/train_dtensor.py [steps]
"""

import sys

import torch
from mpi4py import MPI
from torch import nn
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
from torch.distributed.tensor.parallel import SequenceParallel, parallelize_module

import drbench.torch

BATCH, WIDTH, HIDDEN, RATE = 48, 32, 96, 0.05


class MLP(nn.Module):
    """norm, up, relu, down."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x):
        return self.down(torch.relu(self.up(self.norm(x))))


def data():
    """Inputs, expected outputs, and the initial model: the same on every rank."""
    torch.manual_seed(7)
    x = torch.randn(BATCH, WIDTH, dtype=torch.float64)
    return x, torch.tanh(x.flip(1)), MLP().double()


def train(model, x, wanted, steps):
    """The loss before each step."""
    optimizer, losses = torch.optim.SGD(model.parameters(), RATE), []
    for _ in range(steps):
        loss = (model(x) - wanted).square().sum() / BATCH
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss = loss.detach()
        losses.append(float(loss.full_tensor() if hasattr(loss, "full_tensor") else loss))
    return losses


def main(steps):
    """Train in parallel and print the losses."""
    drbench.torch.install(heap="64M")
    mesh = init_device_mesh("cpu", (MPI.COMM_WORLD.size,))
    x, wanted, model = data()
    plan = {
        "norm": SequenceParallel(sequence_dim=0),
        "up": drbench.torch.ColumnParallel(input_layouts=Shard(0)),
        "down": drbench.torch.RowParallel(output_layouts=Shard(0), use_local_output=False),
    }
    parallelize_module(model, mesh, plan)
    drbench.torch.adopt(model)
    x, wanted = (distribute_tensor(tensor, mesh, [Shard(0)]) for tensor in (x, wanted))
    losses = train(model, x, wanted, steps)
    if MPI.COMM_WORLD.rank == 0:
        print(f"loss {losses[0]:.12g} to {losses[-1]:.12g}; {drbench.torch.counts()}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 20)
