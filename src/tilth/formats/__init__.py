"""Model files of other tools, to and from a config, weights and a tokenizer. No torch.

| module | files | tools |
|---|---|---|
| `huggingface` | a folder with `config.json` and safetensors | transformers, vLLM, mlx-lm |
| `gguf` | one `.gguf` file, written only | llama.cpp, Ollama |
| `llama2c` | a `.bin` file and `tokenizer.bin` | llama2.c |

Weights carry the names of a checkpoint of tilth; each module knows the names of its own format.
"""

from tilth.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
