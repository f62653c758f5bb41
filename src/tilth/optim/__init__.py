"""Optimizers, learning rate schedules and gradient clipping, from scratch.

Names are loaded when first used: a schedule alone does not import torch.

>>> import torch
>>> from tilth.optim import AdamW, clip_gradients, cosine_schedule
>>> weight = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
>>> optimizer = AdamW([weight], lr=cosine_schedule(0, 0.5, 0.05, warmup_steps=0, cosine_steps=100))
>>> (weight**2).sum().backward()
>>> clip_gradients([weight], max_norm=1.0)
tensor(10.)
>>> optimizer.step()
>>> weight.data
tensor([2.4850, 3.4800])
"""

from tilth.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
