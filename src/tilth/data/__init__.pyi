from tilth.data.batches import Batches as Batches
from tilth.data.batches import get_batch as get_batch
from tilth.data.nanogpt import load_bin as load_bin
from tilth.data.nanogpt import save_bin as save_bin
from tilth.data.token_files import Data as Data
from tilth.data.token_files import open_data as open_data
from tilth.data.tokenizing import tokenize as tokenize
from tilth.data.verifying import verify_data as verify_data
