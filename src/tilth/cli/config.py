"""`tilth config`: what config files may say."""

import json

from cyclopts import App

from tilth.config.training import TrainingConfig
from tilth.schema import json_schema

app = App(name="config", help="Config files: their schema.")


@app.command
def schema() -> None:
    """Print the JSON schema of config.toml, with which editors complete and check it.

    It holds for a run's config.toml and for the file of `tilth train --config`, which may leave any
    key to the recipe.
    """
    values = json_schema(TrainingConfig)
    for table in (values, *values["properties"].values()):
        table.pop("required", None)
    print(json.dumps(values, indent=2))
