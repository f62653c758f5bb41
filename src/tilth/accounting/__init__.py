"""What a model costs, from its config alone. No torch.

What enters: a `ModelConfig`. What leaves: its parameters by component, and the matrix products of a
forward pass with their FLOPs.
"""

from tilth.accounting.flops import Product, forward_flops, forward_products, training_flops
from tilth.accounting.parameters import Parameters, count_parameters

__all__ = [
    "Parameters",
    "Product",
    "count_parameters",
    "forward_flops",
    "forward_products",
    "training_flops",
]
