from tilth.exporting.evaluation_harness import evaluate_tasks as evaluate_tasks
from tilth.exporting.exporting import export as export
from tilth.exporting.exporting import push as push
from tilth.exporting.importing import import_model as import_model
