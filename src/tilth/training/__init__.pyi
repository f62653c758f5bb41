from tilth.training.evaluation import evaluate as evaluate
from tilth.training.loop import PreparedRun as PreparedRun
from tilth.training.loop import extend as extend
from tilth.training.loop import prepare as prepare
from tilth.training.loop import resume as resume
from tilth.training.loop import train as train
from tilth.training.planning import Plan as Plan
from tilth.training.planning import plan as plan
