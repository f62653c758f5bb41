import hashlib
import itertools
import re
import subprocess
import sys
from collections import Counter
from random import Random

import numpy as np
import pytest

from tilth.corpus import stories
from tilth.corpus.stories import casts, grammar, story, texts, write_stories
from tilth.corpus.stories.texts import load_phrases, load_plots, load_words
from tilth.files import FileError

SAMPLE_SIZE = 3000
GOLDEN = "f8ec58616b35bbac543ac926cd02d93be7aed81eaca907e891b9f451d28f39d5"


@pytest.fixture(scope="module")
def sample():
    """Stories of two seeds, the default one and another."""
    half = SAMPLE_SIZE // 2
    return [story(n) for n in range(half)] + [story(n, seed=7) for n in range(half)]


# The same for ever


def test_golden():
    """Another checksum means another corpus for every user: say so in the commit."""
    digest = hashlib.sha256()
    for text in itertools.islice(stories.stories(), 1000):
        digest.update(text.encode() + b"\0")
    assert digest.hexdigest() == GOLDEN


def test_order_does_not_matter():
    numbers = [5, 0, 99, 5, 1 << 40, 3]
    alone = [story(number, seed=11) for number in numbers]
    assert alone[0] == alone[3]
    assert alone == [next(stories.stories(seed=11, start=number)) for number in numbers]
    first = list(itertools.islice(stories.stories(seed=11), 6))
    assert [first[5], first[0], first[3]] == [alone[0], alone[1], alone[5]]


def test_same_in_a_fresh_process():
    """With any hash seed, and also after another story."""
    program = "from tilth.corpus.stories import story; story(3); print(ascii(story(77, 2)))"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ascii(story(77, 2))


def test_numpy_integers_are_numbers_and_seeds():
    assert story(np.int64(3), seed=np.uint8(1)) == story(3, seed=1)


def test_seeds_differ():
    assert len({story(0, seed=seed) for seed in range(50)} | {story(1), story(1 << 63)}) == 52


@pytest.mark.parametrize(("number", "seed"), [(-1, 0), (0, -1), (1 << 64, 0)])
def test_no_such_story(number, seed):
    with pytest.raises(
        ValueError, match=r"(number|seed) must be (at least 0|below 18446744073709551616), not"
    ):
        story(number, seed)


# Worth learning from


def test_no_two_are_equal(sample):
    assert len(set(sample)) == len(sample)


@pytest.mark.slow
def test_no_two_of_the_first_100_000_are_equal():
    texts = itertools.islice(stories.stories(), 100_000)
    assert len({hashlib.sha256(text.encode()).digest() for text in texts}) == 100_000


def test_vocabulary(sample):
    counts = Counter(word for text in sample for word in re.findall(r"[a-z']+", text.lower()))
    assert len(counts) >= 2500
    # Natural text is skewed: a hundred words make up about half of it.
    assert 0.4 < sum(count for _, count in counts.most_common(100)) / counts.total() < 0.65


def test_lengths(sample):
    lengths = sorted(len(text.encode()) for text in sample)
    assert lengths[0] >= 400
    assert lengths[-1] <= 1700
    assert lengths[len(lengths) // 20] >= 600
    assert 850 <= lengths[len(lengths) // 2] <= 1150


def test_openings_vary(sample):
    openings = Counter(" ".join(text.split()[:3]) for text in sample)
    assert openings.most_common(1)[0][0] == "Once upon a"
    assert openings["Once upon a"] < 0.25 * len(sample)
    assert len(openings) > 200


def test_no_sentence_twice_in_a_story(sample):
    """Except short sentences (`Lily looked up.`), and those rarely."""
    repeated = 0
    for text in sample:
        sentences = Counter(re.split(r'(?<=[.!?])"?\s', text))
        long = [sentence for sentence, n in sentences.items() if n > 1 and len(sentence) > 25]
        assert not long, text
        repeated += any(n > 1 and len(sentence) > 12 for sentence, n in sentences.items())
    assert repeated < 0.02 * len(sample)


def test_paragraphs_sometimes(sample):
    share = sum("\n\n" in text for text in sample) / len(sample)
    assert 0.5 < share < 0.8


# Well-formed

FORBIDDEN = {
    "a mark of the plots": r"[][{}<>|*_~]",
    "a character beyond ASCII": r"[^\n -~]",
    "a wrong space": r"  | \n|\n | [,.!?;:]|(?<!\n)\n(?!\n)|\n{3}",
    "two marks of punctuation": r"(?<!\.)\.\.(?!\.)|\.{4}|[,;:!?][,;:!?.]|\.[,;:!?]",
    "a small letter after a sentence": r'(?<!\.\.)[.!?] [a-z]|\." [a-z]',
    "a sentence that begins small": r'(?:\A|\n\n)(?!"?[A-Z])|(?:\A|\s)"[a-z]',
    "a capital letter inside of a word": r"[a-z][A-Z]",
    "no space after a mark": r"[.,!?;:][A-Za-z]",
    "no mark before the end of a paragraph": r'[^.!?"\n](?:\Z|\n)|[^.!?]"(?:\Z|\n)',
    "no mark before the end of a speech": r'[^.,!?]"(?=\s|\Z)',
    "no space outside of a speech": r'\w"|"{2}|"[^\w\s]|\s"\s',
    "it is where its belongs": r"\bit's\b",
    "a word twice": r"\b(?!had|that)(\w+) \1\b",
}


@pytest.mark.parametrize("fault", FORBIDDEN)
def test_well_formed(sample, fault):
    pattern = re.compile(FORBIDDEN[fault])
    for text in sample:
        found = pattern.search(text)
        assert not found, f"{found[0]!r} in: {text}"


def test_speeches_are_closed(sample):
    for text in sample:
        for paragraph in text.split("\n\n"):
            outside = paragraph.split('"')[::2]
            inside = paragraph.split('"')[1::2]
            assert len(outside) == len(inside) + 1, paragraph
            assert all(speech == speech.strip() and speech for speech in inside), paragraph
            # Between two speeches stands a space, before the first one a space or nothing.
            assert all(part == "" or part[-1] == " " for part in outside[:-1]), paragraph
            # After a comma the sentence goes on: `"Come," said Ben.`
            for speech, behind in zip(inside, outside[1:], strict=True):
                assert not speech.endswith(",") or re.match(r" [A-Za-z]", behind), paragraph


VOWEL_SOUND = {"hour", "honest"}
CONSONANT_SOUND = {"useful"}


def test_articles(sample):
    """A word whose first letter and first sound differ must be in the sets above."""
    found = {pair for text in sample for pair in re.findall(r"\b([Aa]n?) (\w+)", text)}
    assert len(found) > 300
    for article, word in found:
        by_letter = word[0].lower() in "aeiou"
        vowel = (by_letter or word in VOWEL_SOUND) and word not in CONSONANT_SOUND
        assert article.lower() == ("an" if vowel else "a"), f"{article} {word}"
    odd = {word for _, word in found if re.match(r"(uni|use|eu|one|hon|hou)", word.lower())}
    assert odd <= VOWEL_SOUND | CONSONANT_SOUND | {"house", "honey"}


def texts_of_everything():
    yield from ((plot.title, plot.section.body) for plot in load_plots())
    for world, phrases in load_phrases().items():
        yield from ((f"{world} {name}", section.body) for name, section in phrases.items())


def test_pronouns_come_from_the_cast():
    """Pronouns are slots, so they fit any cast: no text contains `she` or `him`."""
    for name, text in texts_of_everything():
        plain = re.sub(r"\{\w+\}", "", text)
        found = re.search(r"\b(s?he|hers?|him|his|(him|her)self)\b", plain, re.IGNORECASE)
        assert not found, f"{found[0]} in {name}"


def cast_and_text(number, seed=0):
    """Return the script, cast and text of a story by a simpler reading of the same draws."""
    random = Random(seed << 64 | number).random
    scripts = casts.scripts()
    script = scripts[int(random() * len(scripts))]
    cast = casts.draw_cast(script, random)
    return script, cast, "".join(cast.get(piece, piece) for piece in read(script.text, random))


def read(part, random):
    if isinstance(part, str):
        return [part]
    if isinstance(part, list):
        return [piece for each in part for piece in read(each, random)]
    return read(part[int(random() * len(part))], random)


def test_pronouns_fit_the_cast():
    """A story whose cast is all `she` has no `he`, and the other way round."""
    words = {
        "she": r"\b(she|her|hers|herself|Mrs|Miss)\b",
        "he": r"\b(he|him|his|himself|Mr)\b",
    }
    checked = Counter()
    slots_of = {id(script): set(slots_used(script.text)) for script in casts.scripts()}
    for number in range(2000):
        script, cast, text = cast_and_text(number)
        assert text == story(number)
        slots = slots_of[id(script)]
        people = {"she": set(), "he": set()}
        for role in ("hero", "friend", "parent", "elder", "neighbor", "teacher", "pet", "ruler"):
            prefix = "" if role == "hero" else f"{role}_"
            pronoun = cast.get(f"{{{prefix}he}}")
            mine = {f"{{{role}}}", *(f"{{{prefix}{word}}}" for word in casts.PRONOUNS["he"])}
            if pronoun in people and slots & (mine | {capital(slot) for slot in mine}):
                people[pronoun].add(role)
        for present, absent in (("she", "he"), ("he", "she")):
            if people[present] and not people[absent]:
                checked[present] += 1
                found = re.search(words[absent], text, re.IGNORECASE)
                assert not found, f"{found[0]} of {people} in: {text}"
    assert min(checked.values()) > 10, checked


def capital(slot):
    return "{" + slot[1].upper() + slot[2:]


def slots_used(part):
    if isinstance(part, str):
        return [part] if part.startswith("{") else []
    return [slot for each in part for slot in slots_used(each)]


def test_two_friends_differ():
    for number in range(1000):
        _, cast, _ = cast_and_text(number)
        assert cast["{hero}"] != cast["{friend}"]
        assert cast["{he}"] != cast["{friend_he}"]
        assert cast["{kind}"] != cast["{friend_kind}"]


def test_first_words_are_drawn_most_often():
    assert Counter(casts._by_rank("abcdef")) == {"a": 6, "b": 3, "c": 2, "d": 2, "e": 1, "f": 1}
    assert Counter(casts._by_rank("abc", power=2)) == {"a": 9, "b": 2, "c": 1}


def test_few_heroes_are_in_most_stories():
    """As in Zipf's law: a small model learns the few frequent names well."""
    told = [cast_and_text(number)[:2] for number in range(SAMPLE_SIZE // 2)]
    heroes = Counter(cast["{hero}"] for _, cast in told)
    known = sum(heroes[name] for name in ("Lily", "Tim", "Hazel", "Pip", "Puff"))
    assert known > sum(count for _, count in heroes.most_common()[5:])
    assert len(heroes) > 50
    titles = Counter(script.plot.title for script, _ in told)
    assert titles.most_common(1)[0][1] < 0.25 * titles.total()


def test_an_animal_keeps_its_kind():
    kinds = {
        (cast["{hero}"], cast["{kind}"], cast["{he}"])
        for script in casts.scripts()
        if script.world == "animal"
        for cast in script.heroes
    }
    assert len(kinds) == len({name for name, _, _ in kinds}) == 50
    assert {kind for _, kind, _ in kinds} == {
        row["kind"] for row in load_words()["animals"].table()
    }


def test_everything_can_be_drawn():
    random = Random(5).random
    drawn = [casts.draw_cast(script, random) for script in casts.scripts() for _ in range(30)]
    heroes = {cast["{hero}"] for script in casts.scripts() for cast in script.heroes}
    for names in ("girls", "boys", "tale names", "animal girls", "animal boys"):
        assert heroes >= set(load_words()[names].words())
    assert {cast["{season}"] for cast in drawn} == {"spring", "summer", "autumn", "winter"}
    assert {cast["{trait}"] for cast in drawn} == set(load_words()["traits"].words())
    fair = next(script for script in casts.scripts() if script.plot.weather == "fair")
    seasons = {casts.draw_cast(fair, random)["{season}"] for _ in range(100)}
    assert seasons == {"spring", "summer", "autumn"}
    weather = {cast["{weather}"] for cast in drawn}
    for _, sentences in itertools.chain(*casts._weathers().values()):
        assert weather & {cast["{weather}"] for cast in sentences}


# The plots


def test_there_are_many_plots():
    assert len(load_plots()) >= 70
    assert len({plot.title for plot in load_plots()}) == len(load_plots())


def test_every_plot_is_told():
    scripts = casts.scripts()
    drawn = (scripts[int(Random(number).random() * len(scripts))] for number in range(10_000))
    told = {(script.plot.title, script.world) for script in drawn}
    assert told == {(plot.title, world) for plot in load_plots() for world in plot.worlds}


def test_every_branch_is_reached():
    """Each choice yields its options in turn; every option must be reached."""
    visits = Counter()

    def tell(part):
        if isinstance(part, list):
            for each in part:
                tell(each)
        elif isinstance(part, tuple):
            index = visits[id(part)] % len(part)
            visits[id(part)] += 1
            reached.add((id(part), index))
            tell(part[index])

    reached = set()
    left = [(script.text, branches(script.text)) for script in casts.scripts()]
    assert len(set().union(*(options for _, options in left))) > 10_000
    for _ in range(300):
        left = [(text, options) for text, options in left if not options <= reached]
        for text, _ in left:
            tell(text)
    assert not left


def branches(part):
    if isinstance(part, str):
        return set()
    found = {(id(part), index) for index in range(len(part))} if isinstance(part, tuple) else set()
    return found.union(*(branches(each) for each in part))


def test_every_slot_is_in_the_cast():
    for script in casts.scripts():
        cast = casts.draw_cast(script, Random(1).random)
        missing = set(slots_used(script.text)) - cast.keys()
        assert not missing, f"{script.plot.title} ({script.world}): {missing}"


def test_every_phrase_is_used():
    texts = [text for _, text in texts_of_everything()]
    named = set(re.findall(r"<(\w+)>", " ".join(texts)))
    for phrases in load_phrases().values():
        assert phrases.keys() <= named


def test_an_unpaired_mark_is_found():
    compiler = grammar.Compiler()
    for text in ("a < b", "a } b", "{a b}", "a [b|c", "a] b", "a|b", "[a|b]] c"):
        with pytest.raises(grammar.GrammarError, match="unpaired"):
            compiler.sequence(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one [two|] three", {"one two three", "one three"}),
        ("one [two|].", {"one two.", "one."}),
        ("[one|] two", {"one two", "two"}),
        ("one [two|] [three|]", {"one two three", "one two", "one three", "one"}),
        (
            "one [two|] [three|] four",
            {"one two three four", "one two four", "one three four"} | {"one four"},
        ),
        ("a\n   b [ c | d\n e ]", {"a b c", "a b d e"}),
        ("a [b [c|]|d]!", {"a b c!", "a b!", "a d!"}),
        ("a\n\n b", {"a{break}b"}),
    ],
)
def test_language(text, expected):
    assert set(grammar.every(grammar.Compiler().sequence(text))) == expected


def test_ways_to_say():
    def ways(text):
        return set(grammar.every(grammar.Compiler().sequence(text)))

    said = ways('{hero} says "Come in."')
    assert {'"Come in," said {hero}.', '{Hero} said, "Come in."', '"Come in," {hero} said.'} <= said
    asked = ways('{friend} asks "Who? Me?"')
    assert {'"Who?" asked {friend}. "Me?"', '{Friend} asked, "Who? Me?"'} <= asked
    mixed = ways('{he} says "[Yes.|Why?]"')
    assert {'"Yes," {he} said.', '"Why?" {he} said.', '{He} said, "Yes."'} <= mixed
    assert not any("said {he}" in way for way in mixed)
    with pytest.raises(grammar.GrammarError, match="needs a mark"):
        ways('{hero} says "Come in"')


# The text files


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("words\n== a", "has text before a heading on line 1"),
        ("# note\n== a\nwrlds: child\n", "has the unknown or repeated key 'wrlds' on line 3"),
        ("== a\nworlds: tale\nworlds: child\n", "has the .* repeated key 'worlds' on line 3"),
    ],
)
def test_a_malformed_file(text, problem):
    with pytest.raises(FileError, match=rf"a\.txt {problem}; correct it"):
        list(texts.parse_sections(text, "a.txt", ["worlds"]))


def test_a_malformed_section():
    def section(text):
        (section,) = texts.parse_sections(f"\n== a\n{text}", "a.txt", ["worlds", "columns"])
        return section

    with pytest.raises(FileError, match=r"a\.txt has 'x, y' instead of 3 items in 'a' on line 2"):
        section("columns: i, j, k\na, b, c\nx, y").table()
    with pytest.raises(FileError, match="has 1 paragraphs instead of 2 in 'a' on line 2"):
        section("a\nb").paragraphs(2)
    with pytest.raises(FileError, match="has an unknown world"):
        section("worlds: child, moon\n").worlds()
    compiler = grammar.Compiler({"b": section("[c|d"), "e": section("f <g> h")})
    with pytest.raises(FileError, match=r"a\.txt has an unpaired mark in .* in 'a' on line 2"):
        compiler.section(section("one <b>"))
    with pytest.raises(FileError, match="has the unknown phrase <g> in 'a' on line 2"):
        compiler.section(section("one <e>"))
    with pytest.raises(FileError, match="has no space next to"):
        compiler.section(section("one[two|]three"))


def test_unknown_weather_and_groups(monkeypatch):
    plot = load_plots()[0]
    for change, problem in (
        ({"weather": "hail"}, "has the unknown weather 'hail' in 'the lost thing' on line 31"),
        ({"draws": {"thing": "gem"}}, "has the unknown group 'gem' in 'the lost thing'"),
    ):
        changed = (plot._replace(**change),)
        monkeypatch.setattr(casts, "load_plots", lambda changed=changed: changed)
        with pytest.raises(FileError, match=problem):
            casts.scripts.__wrapped__()


# Files


def test_write_stories(tmp_path):
    path = tmp_path / "stories.txt"
    told = []
    count = write_stories(path, 3_000_000, seed=4, progress=lambda *report: told.append(report))
    text = path.read_text()
    documents = text.split("\n<|endoftext|>\n")
    assert documents.pop() == ""
    assert len(documents) == count
    assert documents == [story(number, seed=4) for number in range(count)]
    assert path.stat().st_size >= 3_000_000
    assert path.stat().st_size - len(documents[-1]) - len("\n<|endoftext|>\n") < 3_000_000
    assert told[-1] == ("write", 3_000_000, 3_000_000)
    assert len(told) >= 3
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)


def test_write_stories_refuses(tmp_path):
    path = tmp_path / "stories.txt"
    with pytest.raises(ValueError, match="size_bytes must be at least 1, not 0"):
        write_stories(path, 0)
    assert not path.exists()
    for separator in ("", " the "):
        with pytest.raises(ValueError, match="choose a separator"):
            write_stories(path, 10_000, separator=separator)
    assert not path.exists()
    assert write_stories(path, 1, separator="---") == 1
    assert path.read_text() == story(0) + "\n---\n"
    with pytest.raises(FileExistsError, match="overwrite"):
        write_stories(path, 1)
    assert write_stories(path, 1, seed=1, overwrite=True) == 1
    assert path.read_text().startswith(story(0, seed=1))
