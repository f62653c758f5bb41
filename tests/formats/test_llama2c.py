"""Files of llama2.c: an independent reader follows `run.c` and `runq.c`, in NumPy."""

import struct
from dataclasses import replace

import numpy as np
import pytest

from tests.formats.models import END, REFUSED, SHAPE, config_of, model_of, tokenizer_of
from tilth.config import ModelConfig
from tilth.config.model import RopeScaling
from tilth.files import FileError
from tilth.formats.llama2c import (
    DecodingTokenizer,
    check_config,
    load_tokenizer,
    read_model,
    write_model,
    write_quantized,
    write_tokenizer,
)
from tilth.generation import LanguageModel


class RunC:
    """What `run.c` computes from a file, at one position after the other."""

    def __init__(self, data, quantized=False):
        self.data, self.place = data, 0
        self.quantized = quantized
        if quantized:
            magic, version = struct.unpack_from("<Ii", data)
            assert (magic, version) == (0x616B3432, 2)
            self.place = 8
        header = struct.unpack_from("<7i", data, self.place)
        self.dim, self.hidden, self.layers, self.heads, self.kv, vocab, self.length = header
        self.place += 28
        shared = vocab > 0
        if quantized:
            shared, self.group = struct.unpack_from("<Bi", data, self.place)
            self.place = 256
        self.vocab = abs(vocab)
        d, h, n, kv_dim = self.dim, self.hidden, self.layers, self.dim * self.kv // self.heads
        if quantized:
            self.rms_att, self.rms_ffn = self.floats(n, d), self.floats(n, d)
            self.rms_final = self.floats(d)
            self.embedding = self.tensor(1, self.vocab, d)[0]
        else:
            self.embedding = self.floats(self.vocab, d)
            self.rms_att = self.floats(n, d)
        self.wq, self.wk = self.tensor(n, d, d), self.tensor(n, kv_dim, d)
        self.wv, self.wo = self.tensor(n, kv_dim, d), self.tensor(n, d, d)
        if not quantized:
            self.rms_ffn = self.floats(n, d)
        self.w1, self.w2, self.w3 = (
            self.tensor(n, h, d),
            self.tensor(n, d, h),
            self.tensor(n, h, d),
        )
        if not quantized:
            self.rms_final = self.floats(d)
            self.place += 4 * 2 * self.length * (d // self.heads // 2)
        self.head = self.embedding if shared else self.tensor(1, self.vocab, d)[0]
        assert self.place == len(data)
        self.keys = [[] for _ in range(n)]
        self.values = [[] for _ in range(n)]

    def floats(self, *shape):
        count = int(np.prod(shape))
        found = np.frombuffer(self.data, "<f4", count, self.place).reshape(shape)
        self.place += 4 * count
        return found

    def tensor(self, count, rows, columns):
        if not self.quantized:
            return self.floats(count, rows, columns)
        found = []
        for _ in range(count):
            size = rows * columns
            q = np.frombuffer(self.data, "i1", size, self.place).astype(np.float32)
            self.place += size
            scales = self.floats(size // self.group)
            found.append((q.reshape(-1, self.group) * scales[:, None]).reshape(rows, columns))
        return np.stack(found)

    @staticmethod
    def norm(x, weight):
        return weight * x / np.sqrt((x * x).mean() + 1e-5)

    def forward(self, token, position):
        x = self.embedding[token].copy()
        size = self.dim // self.heads
        for i in range(self.layers):
            normed = self.norm(x, self.rms_att[i])
            q, k, v = self.wq[i] @ normed, self.wk[i] @ normed, self.wv[i] @ normed
            for vector in (q, k):
                for j in range(0, len(vector), 2):
                    angle = position * 10000.0 ** -((j % size) / size)
                    c, s = np.cos(angle), np.sin(angle)
                    a, b = vector[j], vector[j + 1]
                    vector[j], vector[j + 1] = a * c - b * s, a * s + b * c
            self.keys[i].append(k)
            self.values[i].append(v)
            out = np.empty(self.dim, np.float32)
            for head in range(self.heads):
                part = slice(head * size, (head + 1) * size)
                first = head // (self.heads // self.kv) * size
                shared = slice(first, first + size)
                scores = np.array([q[part] @ key[shared] for key in self.keys[i]]) / np.sqrt(size)
                weights = np.exp(scores - scores.max())
                weights /= weights.sum()
                out[part] = sum(
                    w * value[shared] for w, value in zip(weights, self.values[i], strict=True)
                )
            x = x + self.wo[i] @ out
            normed = self.norm(x, self.rms_ffn[i])
            gate = self.w1[i] @ normed
            x = x + self.w2[i] @ (gate / (1 + np.exp(-gate)) * (self.w3[i] @ normed))
        return self.head @ self.norm(x, self.rms_final)


def write(path, model, how=write_model):
    with path.open("wb") as file:
        how(file, model)
    return path


IDS = [256, *b"Once upon a time"]


@pytest.mark.parametrize("variant", ["untied", "tied-grouped"])
def test_independent_reader_gives_our_logits(variant, tmp_path):
    model = model_of(config_of(variant))
    reader = RunC(write(tmp_path / "m.bin", model).read_bytes())
    own = LanguageModel.from_weights(model.config, model.weights, model.tokenizer).decoder(1)
    expected = own.extend([IDS], every=True)[0]
    found = np.stack([reader.forward(token, place) for place, token in enumerate(IDS)])
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("variant", ["untied", "tied-grouped"])
def test_int8_is_near_and_reads_alike(variant, tmp_path, monkeypatch):
    monkeypatch.setattr("tilth.formats.llama2c.PART_BYTES", 1000)  # several parts a matrix
    model = model_of(config_of(variant))
    path = write(tmp_path / "q.bin", model, write_quantized)
    config, weights = read_model(path)
    assert config == model.config
    for name, weight in model.weights.items():
        groups = np.abs(weight.reshape(-1, 64)).max(axis=1) / 127
        error = np.abs(weights[name] - weight).reshape(-1, 64).max(axis=1)
        assert (error <= 0.51 * groups).all(), name
    reader = RunC(path.read_bytes(), quantized=True)
    own = LanguageModel.from_weights(config, weights, model.tokenizer).decoder(1)
    expected = own.extend([IDS], every=True)[0]
    found = np.stack([reader.forward(token, place) for place, token in enumerate(IDS)])
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("variant", ["untied", "tied-grouped"])
def test_round_trip_keeps_the_bits(variant, tmp_path):
    model = model_of(config_of(variant))
    config, weights = read_model(write(tmp_path / "m.bin", model))
    assert config == model.config
    assert {name: each.tobytes() for name, each in weights.items()} == {
        name: each.tobytes() for name, each in model.weights.items()
    }


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [(changes, name) for name, changes in REFUSED.items()]
    + [
        ({"qk_norm": True}, "qk_norm"),
        ({"qkv_bias": True}, "biases"),
        ({"rope_theta": 5e5}, "rope_theta 500000 instead of 10000"),
        ({"norm_eps": 1e-6}, "norm_eps 1e-06"),
        ({"head_dim": 32}, "its own head width"),
        ({"rope_scaling": RopeScaling(8.0, 64)}, "RoPE scaling"),
    ],
)
def test_models_that_run_c_would_compute_otherwise_are_refused(changes, complaint):
    with pytest.raises(ValueError, match=rf"llama2\.c cannot express {complaint}"):
        check_config(ModelConfig(**{**SHAPE, **changes}))


def test_odd_widths_cannot_be_quantized(tmp_path):
    model = model_of(ModelConfig(**{**SHAPE, "d_ff": 33}))
    with pytest.raises(ValueError, match="no groups for int8"):
        write(tmp_path / "m.bin", model, write_quantized)


def header(**changes):
    values = dict(
        zip(
            ("dim", "hidden", "layers", "heads", "kv_heads", "vocab", "length"),
            (64, 192, 2, 4, 4, 300, 320),
            strict=True,
        )
    )
    return struct.pack("<7i", *(values | changes).values())


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "too short"),
        (header(dim=-64), "d_model must be at least 1"),
        (header(dim=2**31 - 1), "d_model must be at most"),
        (header(layers=2**31 - 1), "num_layers must be at most"),
        (header(heads=0), "num_heads must be at least 1"),
        (header(vocab=-(2**31)), "vocab_size must be at most"),
        (header(dim=2**20, hidden=2**22, layers=10_000), "its header says"),
        (header(), "its header says"),
        (struct.pack("<Ii", 0x616B3432, 1) + bytes(300), "has version 1 of llama2.c"),
        (struct.pack("<Ii", 0x616B3432, 2) + header() + bytes(300), "groups have 0 weights"),
    ],
    ids=range(10),
)
def test_crafted_headers_are_refused(data, complaint, tmp_path):
    path = tmp_path / "m.bin"
    path.write_bytes(data)
    with pytest.raises(FileError, match=complaint):
        read_model(path)


def tokenizer_bin(texts):
    parts = [struct.pack("<fi", -float(i), len(text)) + text for i, text in enumerate(texts)]
    return struct.pack("<i", 9) + b"".join(parts)


TEXTS = [
    b"<unk>",
    b"\n<s>\n",
    b"\n</s>\n",
    b"<0xC3>",
    b"<0xA9>",
    b" Once",
    b" upon",
    b"a",
    b"<0x61>",
]


@pytest.fixture
def stories_tokenizer(tmp_path):
    path = tmp_path / "tokenizer.bin"
    path.write_bytes(tokenizer_bin(TEXTS))
    return load_tokenizer(path, len(TEXTS))


def test_decoding_as_run_c_prints(stories_tokenizer):
    tokenizer = stories_tokenizer
    assert tokenizer.decode([1, 5, 6, 3, 4, 8]) == "Once uponéa"  # no blank after id 1
    assert tokenizer.decode([5, 6]) == " Once upon"
    decoder = tokenizer.decoder(after=1)
    assert [decoder.decode([i]) for i in (5, 6, 3, 4)] == ["Once", " upon", "", "é"]
    assert tokenizer.special_tokens == {"<s>": 1}
    assert tokenizer.encode("") == []
    for encode in (tokenizer.encode, tokenizer.encode_ordinary):
        with pytest.raises(ValueError, match=r"holds no merges.*--prompt-ids"):
            encode("Once")
    with pytest.raises(ValueError, match="99 is not an id"):
        tokenizer.decode([99])


def test_decoding_tokenizer_is_saved_and_generates(stories_tokenizer, tmp_path):
    folder = tmp_path / "again"
    folder.mkdir()
    stories_tokenizer.save(folder)
    again = load_tokenizer(folder / "tokenizer.bin", len(TEXTS))
    assert again.decode([1, *range(3, 9)]) == stories_tokenizer.decode([1, *range(3, 9)])
    assert isinstance(again, DecodingTokenizer)
    config = ModelConfig(**{**SHAPE, "vocab_size": len(TEXTS)})
    model = replace(model_of(config), tokenizer=again, end_token="<s>")
    language_model = LanguageModel.from_weights(config, model.weights, again, end_token="<s>")
    stream = language_model.generate("", temperature=0, max_tokens=5)
    text = "".join(stream)
    assert text == again.decode([1, *stream.token_ids])
    assert language_model.generate_batch([[1, 5]], temperature=0, max_tokens=3)


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (tokenizer_bin(TEXTS), len(TEXTS) + 1),
        (tokenizer_bin(TEXTS), len(TEXTS) - 1),
        (tokenizer_bin(TEXTS)[:-1], len(TEXTS)),
        (struct.pack("<ifi", 9, 0.0, -5) + bytes(40), 2),
        (struct.pack("<ifi", 9, 0.0, 2**31 - 1) + bytes(40), 2),
        (b"", 2),
    ],
)
def test_crafted_tokenizers_are_refused(data, size, tmp_path):
    path = tmp_path / "tokenizer.bin"
    path.write_bytes(data)
    with pytest.raises(FileError, match=r"is not a tokenizer\.bin|does not have the"):
        load_tokenizer(path, size)


def test_written_tokenizer_decodes_alike(tmp_path):
    tokenizer = tokenizer_of()
    path = tmp_path / "tokenizer.bin"
    with path.open("wb") as file:
        write_tokenizer(file, tokenizer, 300)
    ids = [i for i in range(3, 300) if i != tokenizer.special_tokens[END]]
    assert load_tokenizer(path, 300).decode_bytes(ids) == tokenizer.decode_bytes(ids)
