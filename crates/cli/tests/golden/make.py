"""Makes golden files: a GPT-2 with random weights, tokens, and what PyTorch on the CPU computes from them.

Usage: python make.py [OUTPUT] [--layers 2 --width 32 --heads 4 --context 16 --vocabulary 61 --batch 4 --steps 20]
The defaults make gpt2-small.safetensors beside this script. For GPT-2 124M:
    python make.py /tmp/gpt2-124m.safetensors --layers 12 --width 768 --heads 12 --context 128 --vocabulary 50257 --batch 2 --steps 20 \\
        --learning-rate 3e-4
    COUNTERPOINT_GOLDEN=/tmp/gpt2-124m.safetensors cargo test --release -p cli --test golden

Tensors: `parameter.NAME` (Hugging Face names, Conv1D weights [in, out]), `gradient.NAME` and `logits` of the first batch,
`tokens` [steps, batch, context + 1], `losses` [steps] of AdamW training. Metadata: sizes and optimizer numbers.
"""
import argparse
import math
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

parser = argparse.ArgumentParser()
parser.add_argument("output", nargs="?", default=str(Path(__file__).with_name("gpt2-small.safetensors")))
sizes = {"layers": 2, "width": 32, "heads": 4, "context": 16, "vocabulary": 61, "batch": 4, "steps": 20}
for name, value in sizes.items():
    parser.add_argument(f"--{name}", type=int, default=value)
parser.add_argument("--learning-rate", type=float, default=3e-3)
args = parser.parse_args()
numbers = {"learning_rate": args.learning_rate, "beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8, "weight_decay": 0.1, "clip_norm": 1.0}

torch.manual_seed(7)
torch.use_deterministic_algorithms(True)
D, V, T = args.width, args.vocabulary, args.context


def normal(*shape, std=0.02):
    return torch.randn(*shape) * std


# Biases and norms are random too, so that no gradient check can pass on zeros or ones.
parameters = {"wte.weight": normal(V, D), "wpe.weight": normal(T, D)}
for i in range(args.layers):
    small = 0.02 / math.sqrt(2 * args.layers)
    parameters |= {
        f"h.{i}.ln_1.weight": 1 + normal(D),
        f"h.{i}.ln_1.bias": normal(D),
        f"h.{i}.attn.c_attn.weight": normal(D, 3 * D),
        f"h.{i}.attn.c_attn.bias": normal(3 * D),
        f"h.{i}.attn.c_proj.weight": normal(D, D, std=small),
        f"h.{i}.attn.c_proj.bias": normal(D),
        f"h.{i}.ln_2.weight": 1 + normal(D),
        f"h.{i}.ln_2.bias": normal(D),
        f"h.{i}.mlp.c_fc.weight": normal(D, 4 * D),
        f"h.{i}.mlp.c_fc.bias": normal(4 * D),
        f"h.{i}.mlp.c_proj.weight": normal(4 * D, D, std=small),
        f"h.{i}.mlp.c_proj.bias": normal(D),
    }
parameters |= {"ln_f.weight": 1 + normal(D), "ln_f.bias": normal(D)}
# A sequence that can be learned, with a tenth of noise.
tokens = torch.randint(0, V, (args.steps, args.batch, T + 1), dtype=torch.int32)
for t in range(T):
    follows = torch.rand(args.steps, args.batch) < 0.9
    tokens[:, :, t + 1] = torch.where(follows, (3 * tokens[:, :, t] + 1) % V, tokens[:, :, t + 1])


def logits_of(p, x):
    h = p["wte.weight"][x] + p["wpe.weight"][: x.shape[1]]
    for i in range(args.layers):
        q = {name.removeprefix(f"h.{i}."): value for name, value in p.items() if name.startswith(f"h.{i}.")}
        n = F.layer_norm(h, (D,), q["ln_1.weight"], q["ln_1.bias"])
        packed = n @ q["attn.c_attn.weight"] + q["attn.c_attn.bias"]
        heads = [part.view(*x.shape, args.heads, D // args.heads).transpose(1, 2) for part in packed.split(D, dim=2)]
        y = F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).reshape(*x.shape, D)
        h = h + y @ q["attn.c_proj.weight"] + q["attn.c_proj.bias"]
        n = F.layer_norm(h, (D,), q["ln_2.weight"], q["ln_2.bias"])
        m = F.gelu(n @ q["mlp.c_fc.weight"] + q["mlp.c_fc.bias"], approximate="tanh")
        h = h + m @ q["mlp.c_proj.weight"] + q["mlp.c_proj.bias"]
    return F.layer_norm(h, (D,), p["ln_f.weight"], p["ln_f.bias"]) @ p["wte.weight"].T


def loss_of(p, batch):
    logits = logits_of(p, batch[:, :-1].long())
    return F.cross_entropy(logits.reshape(-1, V), batch[:, 1:].reshape(-1).long()), logits


live = {name: value.clone().requires_grad_() for name, value in parameters.items()}
loss, logits = loss_of(live, tokens[0])
loss.backward()
result = {f"parameter.{name}": value for name, value in parameters.items()}
result |= {f"gradient.{name}": value.grad.clone() for name, value in live.items()}
# The bias of keys has no influence on attention: its gradient is rounding alone and is not compared.
for i in range(args.layers):
    result[f"gradient.h.{i}.attn.c_attn.bias"][D : 2 * D] = 0

for value in live.values():
    value.grad = None
decayed = [value for value in live.values() if value.dim() > 1]
others = [value for value in live.values() if value.dim() <= 1]
optimizer = torch.optim.AdamW(
    [{"params": decayed, "weight_decay": numbers["weight_decay"]}, {"params": others, "weight_decay": 0.0}],
    lr=numbers["learning_rate"], betas=(numbers["beta1"], numbers["beta2"]), eps=numbers["epsilon"],
)
losses = []
for step in range(args.steps):
    optimizer.zero_grad()
    step_loss, _ = loss_of(live, tokens[step])
    step_loss.backward()
    torch.nn.utils.clip_grad_norm_(list(live.values()), numbers["clip_norm"])
    optimizer.step()
    losses.append(step_loss.item())
result |= {"logits": logits.detach(), "tokens": tokens, "losses": torch.tensor(losses, dtype=torch.float64)}
metadata = {name: str(getattr(args, name)) for name in sizes} | {name: repr(value) for name, value in numbers.items()}
save_file({name: value.contiguous() for name, value in result.items()}, args.output, metadata)
print(f"{args.output}: loss {loss.item():.6f}, after {args.steps} steps {losses[-1]:.6f}, torch {torch.__version__}")
