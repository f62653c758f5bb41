"""Runs to an HTTP API in OpenAI's shape. No torch.

Everything that arrives by HTTP is untrusted: `security` checks each request before a handler sees
it, and `openai` validates the body against a schema.
"""

from tilth.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
