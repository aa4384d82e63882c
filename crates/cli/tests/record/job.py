"""A small data-parallel job on the host: rank 1 loads slowly. Knows nothing of recording."""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

DELAY = float(sys.argv[1])
STEPS = int(sys.argv[2])


class Samples(Dataset):
    def __len__(self):
        return 8 * (STEPS + 1)

    def __getitem__(self, index):
        if dist.get_rank() == 1:
            time.sleep(DELAY / 8)
        return torch.full((16,), float(index)), index % 4


torch.set_num_threads(1)
dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = iter(DataLoader(Samples(), batch_size=8))
for _ in range(STEPS):
    inputs, labels = next(batches)
    loss = nn.functional.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("done", dist.get_rank(), flush=True)
dist.barrier()
dist.destroy_process_group()
sys.exit(int(sys.argv[3]))
