"""A whole training step on a CUDA device without values; run by `test_cuda.py` in a process.

    LD_PRELOAD=fake_cuda.so python -m tests.training.fake_cuda OPTIMIZER NUM_KV_HEADS [item]

Prints JSON: the types of all products, and the inputs of the fused attention. `item` reads the loss
between the gradients and the update, which must raise.
"""

import json
import sys
from collections import defaultdict

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from tilth.config import ModelConfig
from tilth.config.training import OptimizerConfig, ResolvedMachine
from tilth.model import TransformerLM, attention, layers
from tilth.training.step import (
    accumulate_gradients,
    make_loss,
    make_optimizer,
    make_scaler,
    update,
)

PRODUCTS = {"mm", "bmm", "addmm", "baddbmm"}
# Drawing weights reads values, and a fake device takes no copies from the CPU.
layers.trunc_normal_ = lambda *_, **__: None


def fill_tables(self, device, dtype):
    shape = self.max_seq_len, self.d_k // 2
    for name in ("cos", "sin"):
        self.register_buffer(name, torch.empty(shape, device=device), persistent=False)


attention.RotaryPositionalEmbedding._fill_tables = fill_tables
# torch asks the driver whether autocast is possible.
torch.cuda.amp.common.amp_definitely_not_available = lambda: False
torch.cuda.is_bf16_supported = lambda *_, **__: True


class Record(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.types, self.rows = defaultdict(set), []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name in PRODUCTS:
            self.types[name] |= {str(each.dtype) for each in args if isinstance(each, torch.Tensor)}
            self.rows.append([list(each.shape) for each in args if isinstance(each, torch.Tensor)])
        return out


def main(optimizer_name, num_kv_heads, reads_loss):
    fused, calls = attention.fused_attention, []

    def noted(q, k, v, **options):
        calls.append(
            {
                "shapes": [list(each.shape) for each in (q, k, v)],
                "dtypes": sorted({str(each.dtype) for each in (q, k, v)}),
                "last_strides": [each.stride(-1) for each in (q, k, v)],
                **options,
            }
        )
        return fused(q, k, v, **options)

    attention.fused_attention = noted
    config = ModelConfig(300, 4096, 64, 2, 4, num_kv_heads=num_kv_heads, qk_norm=True)
    machine = ResolvedMachine(device="cuda", dtype="bfloat16", compile=False, threads=1)
    scaler = make_scaler(machine)
    with FakeTensorMode(), Record() as record:
        model = TransformerLM(config, device="cuda")
        optimizer = make_optimizer(model, OptimizerConfig(optimizer_name), machine.dtype)
        x = torch.empty(4, 4096, dtype=torch.int64, device="cuda")
        for _ in range(2):  # the second one with a state
            loss = accumulate_gradients(make_loss(model, machine), x, x, 2, scaler)
            if reads_loss:
                loss.item()
            norm = update(optimizer, loss, 1e-3, 1.0, scaler)
        assert {loss.device.type, norm.device.type} == {"cuda"}
        tensors = [t for each in optimizer.state.values() for t in each.values()]
        assert all(t.device.type == "cuda" and t.dtype == torch.float32 for t in tensors)
        assert all(p.dtype == torch.float32 for p in model.parameters())
    rows = max(sizes[0][0] for sizes in record.rows if sizes[-1] == [64, 300])
    types = {name: sorted(found) for name, found in record.types.items()}
    print(json.dumps({"attention": calls, "types": types, "rows_of_the_loss": rows}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), reads_loss="item" in sys.argv[3:])
