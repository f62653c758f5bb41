"""`tilth config`: the schema of config files."""

import json

from cyclopts import App

from tilth.config.training import TrainingConfig
from tilth.schema import json_schema

app = App(name="config", help="Config files: their schema.")


@app.command
def schema() -> None:
    """Print the JSON schema of config.toml, for completion and checks in editors.

    It describes the config.toml of a run and the file of `tilth train --config`, where every key is
    optional.

    Examples:
        tilth config schema > config.schema.json
    """
    values = json_schema(TrainingConfig)
    for table in (values, *values["properties"].values()):
        table.pop("required", None)
    print(json.dumps(values, indent=2))
