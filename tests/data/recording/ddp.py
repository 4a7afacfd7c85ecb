"""Train a small model with DistributedDataParallel, as a user's script does."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
torch.set_num_threads(1)
model = DistributedDataParallel(
    nn.Sequential(
        nn.Linear(512, 1024), nn.BatchNorm1d(1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
    ),
    bucket_cap_mb=2,
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loss = nn.CrossEntropyLoss()
for _ in range(12):
    optimizer.zero_grad()
    loss(model(torch.randn(64, 512)), torch.randint(0, 10, (64,))).backward()
    optimizer.step()
print("done", dist.get_rank())
dist.destroy_process_group()
