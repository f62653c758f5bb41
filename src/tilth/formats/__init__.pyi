from tilth.formats.huggingface import ModelFolder as ModelFolder
from tilth.formats.huggingface import open_model_folder as open_model_folder
from tilth.formats.model_files import ModelFiles as ModelFiles
