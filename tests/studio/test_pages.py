"""The pages: their files, and numbers that equal those of Python."""

import json
import math
import re

import numpy as np
import pytest

from tilth.cli.app import app
from tilth.generation.sampling import Sampling, next_token_distribution
from tilth.studio import inspecting
from tilth.studio.inspecting import merge_tree, tokens_of
from tilth.studio.pages import STATIC
from tilth.tokenizer import Tokenizer
from tilth.tokenizer.reference import encode_piece

TEXT = "the mouse thé\n\nthere"


def ask(client, path, **body):
    response = client.post(f"/api/{path}", json={"model": "plain", **body})
    assert response.status_code == 200, response.text
    return response.json()


def test_files_of_the_pages(client):
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    paths = re.findall(r'(?:src|href)="(/[^"]*)"', page.text)
    scripts = [file.name for file in STATIC.iterdir() if file.name.endswith(".js")]
    assert len(scripts) >= 6
    for path in [*paths, *(f"/static/{name}" for name in scripts)]:
        assert client.get(path).status_code == 200, path
    assert client.get("/static/../app.py").status_code == 404
    assert client.get("/static/app.py").status_code == 404


def test_the_docs_that_pages_link_to_are_there(client):
    linked = set()
    for file in STATIC.glob("*.js"):
        for names in re.findall(r"notions\(NOTIONS, (.*?)\)", file.read_text("utf-8")):
            linked |= set(re.findall(r'"([^"]+)"', names))
    assert len(linked) >= 6
    for name in linked:
        page = client.get(f"/docs/{name}")
        assert page.status_code == 200, name
        assert page.headers["content-type"] == "text/plain; charset=utf-8"
        assert page.text.startswith("# ")
    assert client.get("/docs/../app.py").status_code == 404
    assert client.get("/docs/lab/lr/report.md").status_code == 404


def test_commands_of_an_empty_folder_are_valid():
    commands = re.findall(r'step\("tilth (.*?)"', (STATIC / "main.js").read_text("utf-8"))
    assert len(commands) == 3
    for command in commands:
        assert app.parse_args(command, print_error=False, exit_on_error=False)


def test_pages_make_no_html_of_text_and_load_nothing_else():
    for file in STATIC.iterdir():
        content = file.read_text("utf-8")
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", content
        )
        urls = set(re.findall(r"https?://[^\s\"')]+", content))
        assert urls <= {"http://www.w3.org/2000/svg"}, file.name


def test_tokens(client, model):
    found = ask(client, "tokens", text=TEXT)
    assert "".join(piece["text"] for piece in found["pieces"]) == TEXT
    tokens = [token for piece in found["pieces"] for token in piece["tokens"]]
    assert [token["id"] for token in tokens] == model.tokenizer.encode(TEXT)
    assert bytes.fromhex("".join(token["bytes"] for token in tokens)) == TEXT.encode()
    assert found["pieces"][0]["tokens"] == [
        {"id": 257, "text": "the", "bytes": "74 68 65", "rank": 1}
    ]


def test_tokens_of_a_tokenizer_that_changes_the_text(tmp_path):
    """With a prefix space, pieces alone would have other ids: the text is one piece."""
    Tokenizer({i: bytes([i]) for i in range(256)}, []).save(tmp_path / "tokenizer.json")
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["pre_tokenizer"] |= {"add_prefix_space": True}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    tokenizer = Tokenizer.load(tmp_path / "tokenizer.json")
    (piece,) = tokens_of(tokenizer, "a,b")["pieces"]
    assert [token["id"] for token in piece["tokens"]] == tokenizer.encode("a,b") == [*b" a,b"]


def leaves(node):
    return (
        [node["text"]] if not node["parts"] else [x for part in node["parts"] for x in leaves(part)]
    )


@pytest.mark.parametrize("piece", ["the", " there", "tththe", "thé", "x"])
def test_merge_trees(client, model, piece):
    nodes = ask(client, "merges", text=piece)["nodes"]
    merges = {pair: rank for rank, pair in enumerate(model.tokenizer.merges)}
    expected = encode_piece(piece.encode(), merges)
    assert [node["id"] for node in nodes] == [model.tokenizer.id(token) for token in expected]
    assert all(len(leaf) == 1 or leaf.startswith("<") for node in nodes for leaf in leaves(node))
    assert merge_tree(model.tokenizer, piece) == nodes


def test_read(client, model):
    found = ask(client, "read", text=TEXT)
    scored = model.score(TEXT, alternatives=5)
    bits = [-token.log_probability / math.log(2) for token in scored]
    np.testing.assert_allclose([token["bits"] for token in found["tokens"]], bits)
    assert found["bits_per_byte"] == pytest.approx(sum(bits) / len(TEXT.encode()))
    assert found["perplexity"] == pytest.approx(2 ** (sum(bits) / len(bits)))
    assert found["tokens"][0]["likeliest"][0]["probability"] == pytest.approx(
        math.exp(scored[0].alternatives[0][1])
    )


def test_next_tokens(client, model):
    ids = model.tokenizer.encode("the mouse")
    sampling = {"temperature": 0.7, "top_k": 3}
    found = ask(client, "next", ids=ids, sampling=sampling)
    logits = model.decoder(1).extend([ids])[0, 0]
    kept, probabilities = next_token_distribution(logits, Sampling(**sampling), ids)
    after = {row["id"]: row["after"] for row in found["tokens"] if row["after"]}
    assert after == pytest.approx(dict(zip(kept.tolist(), probabilities.tolist(), strict=True)))
    assert found["kept"] == 3
    likely = np.exp(logits.astype(float) - logits.max())
    likely /= likely.sum()
    for row in found["tokens"]:
        assert row["probability"] == pytest.approx(likely[row["id"]], rel=1e-5)
    unlikely = int(logits.argmin())
    with_it = ask(client, "next", ids=ids, sampling=sampling, token=unlikely)["tokens"]
    assert with_it[:-1] == found["tokens"]
    assert (with_it[-1]["id"], with_it[-1]["after"]) == (unlikely, 0.0)
    assert with_it[-1]["probability"] == pytest.approx(likely[unlikely], rel=1e-5)
    likely_one = found["tokens"][3]["id"]
    assert ask(client, "next", ids=ids, sampling=sampling, token=likely_one) == found


def test_next_tokens_past_the_context(client, model):
    """The context of each place is the one that generation had there."""
    prompt = model.tokenizer.encode("the mouse")
    tokens = list(model.generate(prompt, max_tokens=150, seed=4).tokens)
    ids = [token.id for token in tokens]
    assert len(ids) == 150 > 2 * model.config.context_length
    for place in (3, 55, 57, 58, 90, 91, 92, 149):
        found = ask(client, "next", ids=[*prompt, *ids[:place]], token=ids[place])["tokens"]
        row = next(each for each in found if each["id"] == ids[place])
        expected = math.exp(tokens[place].log_probability)
        assert row["probability"] == pytest.approx(expected, rel=1e-4), place


def test_inside(client, model):
    without = ["layer.1.head.2"]
    found = ask(client, "inside", text="the mouse", without=without)
    whole, part = model.trace("the mouse"), model.trace("the mouse", without=without)
    np.testing.assert_allclose(found["bits_of_whole"], whole.losses / math.log(2))
    np.testing.assert_allclose(found["bits"], part.losses / math.log(2))
    assert found["bits"] != found["bits_of_whole"]
    np.testing.assert_allclose(np.array(found["attention"]) / 255, part.attention, atol=0.002)
    np.testing.assert_allclose(found["norms"], part.residual_norms, atol=1e-4)
    best = part.logits.argmax(-1)
    texts = [[cell["text"] for cell in row] for row in found["lens"]]
    assert texts[-1][-1] == tokens_of_id(model, best[-1, -1])
    assert np.array(texts).shape == best.shape


def test_the_attention_of_a_page_is_limited(client, monkeypatch):
    monkeypatch.setattr(inspecting, "MAX_ATTENTION", 10)
    response = client.post("/api/inside", json={"model": "plain", "text": "the mouse"})
    assert response.status_code == 400
    message = response.json()["error"]["message"]
    assert re.fullmatch(r"the attention has [\d,]+ numbers; at most 10\.", message)


def tokens_of_id(model, token_id):
    from tilth.studio.inspecting import shown

    return shown(model.tokenizer.token(int(token_id)))


@pytest.mark.parametrize(
    ("path", "body", "status", "sentence"),
    [
        ("tokens", {"text": "a" * 20_001}, 400, "text must have at most 20000 characters"),
        ("merges", {"text": "a" * 201}, 400, "at most 200"),
        ("inside", {"text": "a" * 80}, 400, "shorten it"),
        ("inside", {"text": ""}, 400, "write one"),
        ("inside", {"text": "the", "without": ["layer.9"]}, 400, "layer"),
        ("next", {"ids": [99999]}, 400, "99999"),
        ("next", {"ids": [1], "token": -1}, 400, "token is -1"),
        ("next", {"ids": [1], "sampling": {"temperature": -1}}, 400, "temperature"),
        ("read", {"txt": "a"}, 400, "did you mean text?"),
        ("read", {"model": "x", "text": "a"}, 404, "unknown model"),
    ],
)
def test_invalid_requests(client, path, body, status, sentence):
    response = client.post(f"/api/{path}", json={"model": "plain", **body})
    assert response.status_code == status, response.text
    assert sentence in response.json()["error"]["message"]
