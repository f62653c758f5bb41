from tilth import lab as lab
from tilth import recipes as recipes
from tilth import report as report
from tilth.accounting import account as account
from tilth.config import ModelConfig as ModelConfig
from tilth.config import TrainingConfig as TrainingConfig
from tilth.data import Batches as Batches
from tilth.data import Data as Data
from tilth.data import get_batch as get_batch
from tilth.data import open_data as open_data
from tilth.data import tokenize as tokenize
from tilth.data import verify_data as verify_data
from tilth.generation import LanguageModel as LanguageModel
from tilth.generation import load as load
from tilth.model import Embedding as Embedding
from tilth.model import Linear as Linear
from tilth.model import MultiHeadSelfAttention as MultiHeadSelfAttention
from tilth.model import RMSNorm as RMSNorm
from tilth.model import RotaryPositionalEmbedding as RotaryPositionalEmbedding
from tilth.model import SwiGLU as SwiGLU
from tilth.model import TransformerBlock as TransformerBlock
from tilth.model import TransformerLM as TransformerLM
from tilth.model import cross_entropy as cross_entropy
from tilth.model import perplexity as perplexity
from tilth.model import scaled_dot_product_attention as scaled_dot_product_attention
from tilth.model import silu as silu
from tilth.model import softmax as softmax
from tilth.optim import SGD as SGD
from tilth.optim import AdamW as AdamW
from tilth.optim import Muon as Muon
from tilth.optim import clip_gradients as clip_gradients
from tilth.optim import cosine_schedule as cosine_schedule
from tilth.optim import muon_groups as muon_groups
from tilth.runs import Run as Run
from tilth.runs import StepRecord as StepRecord
from tilth.runs import list_runs as list_runs
from tilth.runs import load_checkpoint as load_checkpoint
from tilth.runs import open_run as open_run
from tilth.runs import save_checkpoint as save_checkpoint
<<<<<<< HEAD
from tilth.tokenizer import PieceCounts as PieceCounts
=======
from tilth.runs import verify_run as verify_run
>>>>>>> audit
from tilth.tokenizer import Tokenizer as Tokenizer
from tilth.tokenizer import count_pieces as count_pieces
from tilth.tokenizer import merge_counts as merge_counts
from tilth.tokenizer import split as split
from tilth.tokenizer import train_bpe as train_bpe
from tilth.tokenizer import train_tokenizer as train_tokenizer
from tilth.training import evaluate as evaluate
from tilth.training import extend as extend
from tilth.training import resume as resume
from tilth.training import train as train

__version__: str
