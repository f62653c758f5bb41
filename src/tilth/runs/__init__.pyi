from tilth.runs.checkpoint_file import load_checkpoint as load_checkpoint
from tilth.runs.checkpoint_file import save_checkpoint as save_checkpoint
from tilth.runs.metrics import Evaluation as Evaluation
from tilth.runs.metrics import StepRecord as StepRecord
from tilth.runs.run import Run as Run
from tilth.runs.run import open_run as open_run
