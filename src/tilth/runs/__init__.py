"""Everything that a run leaves on disk, and back.

What enters: a model and its optimizer. What leaves: a checkpoint, and the same objects again.
"""

from tilth.runs.checkpoint import load_checkpoint, save_checkpoint

__all__ = ["load_checkpoint", "save_checkpoint"]
