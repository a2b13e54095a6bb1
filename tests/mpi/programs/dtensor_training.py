"""A tensor-parallel MLP, forward and backward, and on one process: ``dtensor_training.py WHAT``."""

import torch
from dtensors import TRANSPORT, finish, main
from mpi4py import MPI
from torch import nn
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

import drbench.torch
from drbench.torch.dispatch import installed

COMM = MPI.COMM_WORLD


class MLP(nn.Module):
    def __init__(self, width, hidden, bias):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden, bias=bias)
        self.down = nn.Linear(hidden, width, bias=bias)

    def forward(self, x):
        return self.down(torch.relu(self.up(self.norm(x))))


def model_of(seed, bias):
    torch.manual_seed(seed)
    return MLP(16, 24, bias).double()


def step(mesh, styles, bias, shape, layout, output, adopted, local_output):
    """One training step, parallel and serial: the differences, and who multiplied how often."""
    column, row = styles
    serial, model = model_of(3, bias), model_of(3, bias)
    sequence = SequenceParallel(sequence_dim=layout.dim) if layout.is_shard() else None
    plan = {
        "up": column(input_layouts=layout),
        "down": row(output_layouts=output, use_local_output=local_output),
    }
    parallelize_module(model, mesh, plan | ({"norm": sequence} if sequence else {}))
    if adopted:
        before = list(model.parameters())
        drbench.torch.adopt(model)
        assert all(one is two for one, two in zip(before, model.parameters(), strict=True))
    optimizers = [torch.optim.SGD(each.parameters(), 0.01) for each in (serial, model)]
    counts, wrong = drbench.torch.counts(), []
    for number in range(2):
        torch.manual_seed(4 + number)
        x = torch.randn(*shape, dtype=torch.float64)
        y = x.clone().requires_grad_()
        wanted = serial(y)
        wanted.square().sum().backward()
        z = distribute_tensor(x, mesh, [layout]) if layout.is_shard() else x.clone()
        z.requires_grad_()
        out = model(z)
        if local_output:
            out = DTensor.from_local(out, mesh, [output], run_check=False)
        out.square().sum().full_tensor().backward()
        pairs = [("out", out, wanted), ("x", z.grad, y.grad)]
        named = zip(model.named_parameters(), serial.parameters(), strict=True)
        pairs += [(name, p.grad, q.grad) for (name, p), q in named]
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        named = zip(model.named_parameters(), serial.parameters(), strict=True)
        pairs += [(f"new {name}", p, q) for (name, p), q in named]
        for name, found, right in pairs:
            found = found.full_tensor() if isinstance(found, DTensor) else found
            if not torch.allclose(found, right, rtol=1e-9, atol=1e-9):
                wrong.append(name)
    after = drbench.torch.counts()
    return {
        "wrong": wrong,
        "drbench": after.drbench - counts.drbench,
        "stock": sum(after.stock.values()) - sum(counts.stock.values()),
        "copied": after.copied - counts.copied,
    }


def mlp():
    """Styles of torch and of drbench; two and three dimensions; rows, the sequence, nothing cut."""
    drbench.torch.install(heap="16M", transport=TRANSPORT)
    mesh = init_device_mesh("cpu", (COMM.size,))
    ours = drbench.torch.ColumnParallel, drbench.torch.RowParallel
    torchs = ColwiseParallel, RowwiseParallel
    found = {}
    for name, *case in (
        ("torch", torchs, True, (12, 16), Shard(0), Shard(0), True, False),
        ("rows", ours, False, (12, 16), Shard(0), Shard(0), True, False),
        ("bias", ours, True, (12, 16), Shard(0), Shard(0), True, False),
        ("copied", ours, True, (12, 16), Shard(0), Shard(0), False, False),
        ("local", ours, True, (12, 16), Shard(0), Shard(0), True, True),
        ("uneven", ours, True, (7, 16), Shard(0), Shard(0), True, False),
        ("copies", ours, True, (12, 16), Replicate(), Replicate(), True, False),
        ("batch", ours, True, (4, 3, 16), Shard(0), Shard(0), True, False),
        ("sequence", ours, True, (3, 4, 16), Shard(1), Shard(1), True, False),
        ("uneven batch", ours, True, (5, 3, 16), Shard(0), Shard(0), True, False),
        ("uneven sequence", ours, True, (2, 5, 16), Shard(1), Shard(1), True, False),
    ):
        found[name] = step(mesh, *case)
    found["left"] = finish()
    return COMM.bcast(found)


def compiled():
    """Styles of drbench in one graph of torch.compile: whether the output is right."""
    drbench.torch.install(heap="1M", transport=TRANSPORT)
    mesh = init_device_mesh("cpu", (COMM.size,))
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    x = torch.randn(3, 4, 8)
    wanted = model(x)
    up = drbench.torch.ColumnParallel(input_layouts=Shard(1))
    parallelize_module(model, mesh, {"0": up, "2": drbench.torch.RowParallel()})
    whole = torch.compile(model, backend="eager", fullgraph=True)
    right = torch.allclose(whole(distribute_tensor(x, mesh, [Shard(1)])), wanted, 1e-5, 1e-6)
    drbench.torch.uninstall()
    return COMM.allgather(right)


def tied():
    """Parameters that two modules share stay shared when they are adopted."""
    drbench.torch.install(heap="1M", transport=TRANSPORT)
    mesh = init_device_mesh("cpu", (COMM.size,))
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False))
    weight = nn.Parameter(distribute_tensor(torch.randn(8, 8), mesh, [Shard(0)]))
    model[0].weight = model[1].weight = weight
    whole = weight.full_tensor().detach().clone()
    drbench.torch.adopt(model)
    context = installed().context(mesh)
    right = [
        model[0].weight is model[1].weight is weight,
        drbench.torch.multiplication.location_of(weight._local_tensor, context) is not None,
        torch.equal(weight.full_tensor(), whole),
    ]
    taken = context.heap.taken
    drbench.torch.adopt(model)
    right.append(context.heap.taken == taken)
    with torch.no_grad():
        weight.mul_(2)
    right.append(torch.allclose((weight @ weight).full_tensor(), 4 * (whole @ whole)))
    right.append(
        drbench.torch.multiplication.location_of(weight._local_tensor, context) is not None
    )
    model = weight = None
    return COMM.allgather(right), finish()


if __name__ == "__main__":
    main(mlp, tied, compiled)
