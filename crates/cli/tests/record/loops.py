"""Training loops of several shapes on one process, by name. Knows nothing of recording."""

import multiprocessing
import sys

import torch

torch.set_num_threads(1)


def parts(number):
    models = [torch.nn.Linear(4, 4) for _ in range(number)]
    return models, [torch.optim.AdamW(model.parameters()) for model in models]


def backward(models):
    sum(model(torch.ones(2, 4)).sum() for model in models).backward()


def plain(steps):
    models, [optimizer] = parts(1)
    for _ in range(steps):
        backward(models)
        optimizer.step()


def alternating():
    models, optimizers = parts(2)
    for _ in range(12):
        for model, optimizer in zip(models, optimizers):
            backward([model])
            optimizer.step()


def accumulating():
    models, [optimizer] = parts(1)
    for micro_step in range(36):
        backward(models)
        if micro_step % 3 == 2:
            optimizer.step()
            optimizer.zero_grad()


def by_group():
    """As sharded optimizers do it: one call for each group of parameters."""
    models, _ = parts(2)
    optimizer = torch.optim.AdamW([{"params": list(model.parameters())} for model in models])
    groups = optimizer.param_groups
    for _ in range(12):
        backward(models)
        for group in groups:
            optimizer.param_groups = [group]
            optimizer.step()


def forked():
    child = multiprocessing.get_context("fork").Process(target=plain, args=(6,))
    child.start()
    child.join()
    sys.exit(child.exitcode)


def failing():
    plain(6)
    raise ValueError("bad batch")


LOOPS = {
    "plain": lambda: plain(12),
    "short": lambda: plain(6),
    "too short": lambda: plain(2),
    "alternating": alternating,
    "accumulating": accumulating,
    "by group": by_group,
    "forked": forked,
    "failing": failing,
}
LOOPS[sys.argv[1]]()
print("done")
