"""Writes operators.json and optimizers.json beside this file: results and gradients by PyTorch in float64.

Run with any Python that has torch: python make.py
"""

import json
import pathlib
import struct

import torch
import torch.nn.functional as F

torch.manual_seed(0)
HERE = pathlib.Path(__file__).parent


def attribute(value):
    if isinstance(value, bool):
        return {"bool": value}
    if isinstance(value, int):
        return {"int": value}
    if isinstance(value, float):
        return {"float": struct.unpack("<Q", struct.pack("<d", value))[0]}
    if isinstance(value, list):
        return {"ints": value}
    return {"d_type": value.split(":")[1]} if value.startswith("dtype:") else {"text": value}


def tensor(t):
    names = {torch.float64: "f64", torch.int64: "i64", torch.bool: "bool"}
    return {"dtype": names[t.dtype], "shape": list(t.shape), "values": t.detach().double().flatten().tolist()}


def normal(*shape):
    return torch.randn(shape, dtype=torch.float64)


def case(op, attributes, inputs, function):
    """One operator: inputs, outputs, weights of the outputs, and the gradients of their weighted sum."""
    leaves = [t.clone().requires_grad_(t.is_floating_point()) for t in inputs]
    outputs = function(*leaves)
    outputs = list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
    weights = [normal(*o.shape) for o in outputs]
    sum((o * w).sum() for o, w in zip(outputs, weights)).backward()
    return {
        "op": op,
        "attributes": {name: attribute(value) for name, value in attributes.items()},
        "inputs": [tensor(t) for t in inputs],
        "outputs": [tensor(o) for o in outputs],
        "weights": [tensor(w) for w in weights],
        "gradients": [tensor(t.grad) if t.grad is not None else None for t in leaves],
    }


cases = []
for transposed in (False, True):
    w = normal(5, 4) if transposed else normal(4, 5)
    layer = (lambda x, w, b: F.linear(x, w, b)) if transposed else (lambda x, w, b: x @ w + b)
    cases.append(case("linear", {"transposed": transposed}, [normal(2, 3, 4), w, normal(5)], layer))
for ta in (False, True):
    for tb in (False, True):
        a, b = (normal(2, 4, 3) if ta else normal(2, 3, 4)), (normal(5, 4) if tb else normal(4, 5))
        product = lambda a, b: (a.mT if ta else a) @ (b.mT if tb else b)
        cases.append(case("matmul", {"transpose_a": ta, "transpose_b": tb}, [a, b], product))
cases.append(case("layer_norm", {"epsilon": 1e-5}, [normal(3, 6), normal(6), normal(6)],
                  lambda x, g, b: F.layer_norm(x, (6,), g, b, 1e-5)))
ids = torch.tensor([[0, 6, 2], [2, 2, 5]])
cases.append(case("embedding", {}, [normal(7, 4), ids], lambda t, i: F.embedding(i, t)))
cases.append(case("softmax", {}, [normal(3, 5)], lambda x: F.softmax(x, -1)))
for smoothing, ignore in ((0.0, -100), (0.1, -100), (0.3, 2)):
    labels = torch.tensor([1, 2, ignore, 0, 6])
    loss = lambda x, y: F.cross_entropy(x, y, ignore_index=ignore, label_smoothing=smoothing, reduction="sum")
    cases.append(case("cross_entropy", {"ignore_index": ignore, "label_smoothing": smoothing},
                      [normal(5, 7), labels], loss))
for causal in (False, True):
    cases.append(case("attention", {"causal": causal, "scale": 0.5}, [normal(2, 2, 5, 4) for _ in range(3)],
                      lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=0.5)))
cases.append(case("gelu", {"form": "erf"}, [normal(11)], F.gelu))
cases.append(case("gelu", {"form": "tanh"}, [normal(11)], lambda x: F.gelu(x, approximate="tanh")))
for name in ("exp", "tanh", "sigmoid", "abs", "square", "relu", "neg"):
    cases.append(case(name, {}, [normal(7)], getattr(torch, name)))
for name in ("log", "sqrt", "rsqrt"):
    cases.append(case(name, {}, [normal(7).abs() + 0.1], getattr(torch, name)))
cases.append(case("power", {"exponent": 1.7}, [normal(7).abs() + 0.1], lambda x: x**1.7))
for name in ("add", "sub", "mul", "div", "maximum", "minimum"):
    cases.append(case(name, {}, [normal(2, 3, 4), normal(3, 1)], getattr(torch, name)))
ties = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
cases.append(case("maximum", {}, [ties, ties.clone()], torch.maximum))
cases.append(case("where", {}, [torch.tensor([True, False, True]), normal(2, 3), normal(3)], torch.where))
cases.append(case("reduce_sum", {"axes": [0, 2], "keep": True}, [normal(2, 3, 4)], lambda x: x.sum((0, 2), True)))
cases.append(case("reduce_mean", {"axes": [1], "keep": False}, [normal(2, 3, 4)], lambda x: x.mean(1)))
tied = torch.tensor([[1.0, 3.0, 3.0], [2.0, 0.0, 1.0]], dtype=torch.float64)
cases.append(case("reduce_max", {"axes": [1], "keep": False}, [tied], lambda x: x.amax(1)))
cases.append(case("gather", {"axis": 1}, [normal(2, 5), torch.tensor([[0, 4, 0], [2, 2, 1]])],
                  lambda x, i: torch.gather(x, 1, i)))
cases.append(case("concat", {"axis": 1}, [normal(2, 3), normal(2, 1)], lambda a, b: torch.cat((a, b), 1)))
cases.append(case("permute", {"axes": [2, 0, 1]}, [normal(2, 3, 4)], lambda x: x.permute(2, 0, 1)))
cases.append(case("broadcast_to", {"shape": [2, 3, 4]}, [normal(3, 1)], lambda x: x.expand(2, 3, 4)))


def run(name, constants, make, steps=5):
    """Five updates of one parameter with given gradients."""
    p = normal(6).requires_grad_()
    gradients = [normal(6) for _ in range(steps)]
    optimizer, before, after = make(p), tensor(p), []
    for gradient in gradients:
        p.grad = gradient.clone()
        optimizer.step()
        after.append(tensor(p))
    return {"name": name, "constants": constants, "parameter": before,
            "gradients": [tensor(g) for g in gradients], "after": after}


optimizers = []
for momentum, nesterov, decay in ((0.0, False, 0.0), (0.0, False, 0.1), (0.9, False, 0.01), (0.9, True, 0.01)):
    constants = {"momentum": momentum, "nesterov": nesterov, "weight_decay": decay, "learning_rate": 0.1}
    optimizers.append(run("sgd", constants, lambda p: torch.optim.SGD(
        [p], lr=0.1, momentum=momentum, nesterov=nesterov, weight_decay=decay)))
for beta1, beta2, epsilon, decay in ((0.9, 0.999, 1e-8, 0.0), (0.9, 0.95, 1e-8, 0.1), (0.8, 0.99, 0.1, 0.2)):
    constants = {"beta1": beta1, "beta2": beta2, "epsilon": epsilon, "weight_decay": decay, "learning_rate": 0.01}
    optimizers.append(run("adamw", constants, lambda p: torch.optim.AdamW(
        [p], lr=0.01, betas=(beta1, beta2), eps=epsilon, weight_decay=decay)))

for name, content in (("operators", cases), ("optimizers", optimizers)):
    lines = ",\n".join(json.dumps(entry) for entry in content)
    (HERE / f"{name}.json").write_text(f"[\n{lines}\n]\n")
