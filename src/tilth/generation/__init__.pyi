from tilth.generation.decoding import GenerationOptions as GenerationOptions
from tilth.generation.decoding import ScoredToken as ScoredToken
from tilth.generation.decoding import TextStream as TextStream
from tilth.generation.language_model import LanguageModel as LanguageModel
from tilth.generation.language_model import PromptError as PromptError
from tilth.generation.language_model import load as load
from tilth.generation.sampling import Sampling as Sampling
from tilth.generation.sampling import next_token_distribution as next_token_distribution
