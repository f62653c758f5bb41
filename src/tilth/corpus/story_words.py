"""The words of the built-in stories: who may appear, what they own, where they go, the weather.

What enters: nothing. What leaves: tables of words, the common ones first, because `stories.py`
draws the front of a list more often than its end. Add a word, and it is used.

>>> "badger" in {animal.kind for animal in ANIMALS}
True
"""

from typing import NamedTuple


def _words(text: str) -> list[str]:
    return text.split()


GIRLS = _words("""
Lily Mia Anna Emma Lucy Ella Sara Zoe Ruby Nora Ava Rose Clara Maya Ivy Alice Grace Sophie Molly
Lena Hannah Daisy Leah Nina Eva Jane Tessa Amy Julia Polly Wendy Carla Greta Lola Yuki Amina
Fatima Priya Elsa Olga Rita Marta Zara Freya Iris Noor Beth Dina Kira Paula Mei Ada Stella Heidi
Luna Salma
""")

BOYS = _words("""
Tim Ben Tom Max Sam Leo Jack Noah Finn Oscar Adam Peter Lucas Theo Daniel Henry Jonas Oliver
Felix Hugo Will Eric Simon Paul Martin David Omar Ravi Kenji Ali Emil Anton Luis Marco Nico Karl
Otto Ian Toby Ethan Walter Joel Milo Amir Diego Kofi Mateo Yusuf Jasper Louis Rafi Samir Boris
Arthur Chen Victor
""")

# The names of animals: first those of "she", then those of "he".
ANIMAL_GIRLS = _words("""
Hazel Bella Poppy Willow Clover Pearl Dot Nutmeg Olive Cinnamon Tansy Maple Minnow Fern Juniper
Honey Primrose Twinkle Velvet Dolly Tilda Berry Plum Mabel Skye
""")
ANIMAL_BOYS = _words("""
Pip Bruno Rusty Toffee Bramble Pepper Acorn Barnaby Fuzzy Moss Biscuit Thistle Nibbles Hopper
Patch Rufus Sprout Button Chester Wilbur Pebble Basil Pickle Twig Gus
""")

# Creatures and things of the tales are called "it".
TALE_NAMES = _words("""
Puff Tilly Bo Glim Tuff Spark Dash Minka Lumi Wisp Zip Pom Nell Ollie Fizz Bobbin Tock Rumble
Kip Fleck Dimple Quill
""")

PET_GIRLS = _words("Bess Coco Misty Ginger Penny Snowy Mimi Tinker Flora Muffin")
PET_BOYS = _words("Rex Buddy Spot Oreo Duke Scout Biscotti Ziggy Shadow Bingo")


class Pet(NamedTuple):
    """A pet of a house: what it is, how it speaks, and what it loves."""

    kind: str
    sound: str
    treat: str


PETS = [
    Pet("dog", "barked", "a bone"),
    Pet("cat", "meowed", "a saucer of milk"),
    Pet("puppy", "yapped", "a biscuit"),
    Pet("kitten", "mewed", "a bit of fish"),
]


class Animal(NamedTuple):
    """A hero with paws: where it lives and what it likes to eat."""

    kind: str
    home: str
    food: str
    look: str


ANIMALS = [
    Animal("rabbit", "burrow", "carrots", "long soft ears"),
    Animal("fox", "den", "blackberries", "a bushy red tail"),
    Animal("mouse", "hole", "cheese", "tiny pink feet"),
    Animal("bear", "cave", "honey", "thick brown fur"),
    Animal("squirrel", "tree house", "hazelnuts", "a tail like a feather"),
    Animal("hedgehog", "nest", "apples", "a coat of prickles"),
    Animal("raccoon", "hollow log", "corn", "a black mask"),
    Animal("otter", "river den", "clams", "whiskers that always dripped"),
    Animal("badger", "den", "mushrooms", "a white stripe on the nose"),
    Animal("beaver", "lodge", "willow bark", "a wide flat tail"),
    Animal("chipmunk", "burrow", "seeds", "fat round cheeks"),
    Animal("mole", "tunnel", "turnips", "velvet fur"),
]

CHILD_FOODS = [
    *_words("pancakes soup noodles apples cherries strawberries potatoes rice peas plums cookies"),
    *("waffles", "dumplings", "peaches", "bread and jam", "toast with honey", "raisin buns"),
]

# Capital letters throughout, so that they can begin a sentence: name and pronoun.
CHILD_ELDERS = [
    ("Grandma", "she"),
    ("Grandpa", "he"),
    ("Granny", "she"),
    ("Grandfather", "he"),
    ("Nana", "she"),
    ("Uncle Joe", "he"),
    ("Aunt Rosa", "she"),
    ("Uncle Ned", "he"),
    ("Aunt Vera", "she"),
]
ANIMAL_ELDERS = [
    ("Old Owl", "he"),
    ("Granny Goose", "she"),
    ("Grandfather Turtle", "he"),
    ("Old Mother Hare", "she"),
    ("Grandpa Toad", "he"),
    ("Aunt Heron", "she"),
    ("Uncle Crow", "he"),
    ("Grandmother Deer", "she"),
]
CHILD_PARENTS = [
    ("Mom", "she"),
    ("Dad", "he"),
    ("Mama", "she"),
    ("Papa", "he"),
    ("Mommy", "she"),
    ("Daddy", "he"),
]
ANIMAL_PARENTS = [
    ("Mother", "she"),
    ("Father", "he"),
    ("Mama", "she"),
    ("Papa", "he"),
]
SURNAMES = _words("""
Brown Green Hill Parker Baker Fisher Bell Wood Marsh Field Stone Cooper Lane Potter Moon Lopez
Novak Silva Kim Rossi Finch Barlow Tanaka Winter Penn Okafor Larsen Dubois Singh Pringle
""")
ANIMAL_SURNAMES = _words("Badger Duck Toad Goose Mole Magpie Hen Goat Beaver Stork Sheep Pheasant")

TRAITS = _words("""
curious kind happy cheerful shy brave clever quiet busy gentle friendly careful playful silly
helpful lively dreamy patient stubborn thoughtful polite daring restless proud bold merry honest
eager hopeful sleepy messy noisy bashful generous talkative impatient sensible forgetful
adventurous
""")

# Things that can be owned, lost, shared: adjectives, and nouns that each of them fits.
NOUNS = {
    "toy": [
        (
            "red blue little new green shiny favorite yellow wooden striped orange painted purple",
            """ball, drum, toy boat, train, top, yo-yo, puppet, whistle, toy truck, robot,
            spinning top""",
        ),
        (
            "soft old little favorite brown fluffy gray patched floppy droopy",
            "teddy bear, stuffed rabbit, rag doll, toy elephant, toy lamb, sock monkey",
        ),
    ],
    "small": [
        (
            "shiny little silver blue round tiny lucky golden smooth bright old",
            "button, key, bell, marble, coin, pebble, ring, locket, compass, badge, bead",
        ),
    ],
    "flyer": [
        (
            "red blue yellow big new green orange striped paper rainbow purple silver",
            "kite, kite, balloon, toy plane, glider",
        ),
    ],
    "treat": [
        (
            "big sweet warm fresh golden sticky tasty enormous",
            """bun, cookie, muffin, pancake, honey cake, apple pie, waffle, cinnamon roll, plum
            tart, pear pie""",
        ),
    ],
    "fragile": [
        (
            "blue white pretty old painted green tall delicate speckled yellow",
            "vase, teapot, cup, bowl, plate, jug, sugar pot, flower pot, lamp, pitcher",
        ),
    ],
    "tool": [
        (
            "strong old long good heavy sturdy little useful rusty",
            "rope, spade, basket, ladder, hammer, bucket, wheelbarrow, rake, broom, cart",
        ),
    ],
    "plant": [
        (
            "tall lovely bright wonderful splendid proud golden",
            """sunflower, rose bush, bean plant, hollyhock, tomato plant, lilac bush, raspberry
            bush""",
        ),
    ],
    "instrument": [
        (
            "old little shiny wooden fine battered silver",
            "trumpet, flute, fiddle, drum, horn, guitar, banjo, tambourine, accordion",
        ),
    ],
    "creature": [
        (
            "tiny little small frightened young poor gray brown",
            """bird, beetle, bat, sparrow, ladybug, frog, robin, snail, dragonfly, butterfly,
            cricket, bee""",
        ),
    ],
    "vessel": [
        (
            "little brave white small blue trim",
            "boat, ferry, tugboat, sailboat, rowboat, steamer",
        ),
    ],
    "present": [
        (
            "lovely little small pretty fine handmade special",
            """necklace, picture, basket, box, mug, bracelet, kite, bookmark, cushion, bird
            house, candle""",
        ),
    ],
    "book": [
        (
            "thick old big blue lovely heavy thin green",
            """book, storybook, picture book, atlas, book of poems, book of fairy tales, book
            about whales""",
        ),
    ],
}

# A group of places: the preposition stands in front.
PLACES = {
    "outdoor": """
        in the park, in the meadow, in the woods, by the pond, in the field, by the river,
        in the garden, on the hill, near the old mill, at the edge of the forest, in the
        orchard, by the stream, in the valley, on the village green""",
}

COMMON_WEATHER = {
    "fair": _words("sunny sunny breezy mild spring autumn hot"),
    "any": _words("sunny breezy mild rain snow autumn fog"),
}
"""What a plot may ask for instead of one kind of weather."""


class Weather(NamedTuple):
    """A kind of weather, in the language of the plots."""

    seasons: str
    days: str
    sentences: str


WEATHER = {
    "sunny": Weather(
        "spring|summer|summer",
        "a [sunny|bright|warm|fine|lovely|beautiful] [day|{season} day]",
        """
        The sun [was shining|shone brightly|smiled down], and the sky was [blue|clear|as
        blue as a cornflower].|There was not a [single|] cloud in the sky.|The sun was
        [warm|high|bright], and [bees hummed|birds sang|larks were singing|butterflies
        danced] [in the clover|everywhere|over the flowers].|Everything [sparkled|glowed|was
        golden] in the [sunshine|sunlight].|Sunlight [lay on the grass|danced on the
        leaves|warmed the stones].""",
    ),
    "breezy": Weather(
        "spring|summer|autumn",
        "a [breezy|fresh|bright and windy|cool] [day|{season} day]",
        """
        A [soft|light|fresh|playful] [breeze|wind] [moved the leaves|blew over the
        grass|ruffled the flowers|smelled of [hay|rain|the sea]].|[Small|White|Round] clouds
        [sailed|drifted|hurried] across the sky [like sheep|like ships|].|The wind
        [whistled|hummed|sang] [a little tune|in the trees|around the corners].""",
    ),
    "mild": Weather(
        "spring|summer|autumn",
        "a [mild|calm|quiet|gray but warm|peaceful] [day|{season} day]",
        """
        The sky was [pale|gray|soft and gray], but [it was not cold|the air was warm].|The
        air was [mild|still|fresh], and [everything was quiet|the leaves hardly moved|far
        away a bell rang].| It was [neither hot nor cold|just warm enough for bare feet].""",
    ),
    "spring": Weather(
        "spring",
        "[a fresh|a bright|a fine|the first warm] spring day",
        """
        The [snow was gone|trees were full of buds|cherry trees were in bloom], and [lambs
        jumped in the fields|the birds were building nests|the first daffodils nodded in the
        grass].| The air smelled of [wet earth|flowers|new
        grass|blossoms].|[Tulips|Crocuses|Daffodils|Violets] were [opening|peeping out]
        [everywhere|in the sun|along the path].""",
    ),
    "autumn": Weather(
        "autumn",
        "[a golden|a cool|a crisp|an early|a colorful] autumn day",
        """
        [Red|Yellow|Golden|Brown] leaves [fell from the trees|danced in the wind|covered the
        ground|crunched with every step].|The air smelled of [apples|smoke|mushrooms|wet
        leaves].| [Geese|Swallows|Cranes] flew [high|south] over the [fields|roofs|hills].""",
    ),
    "hot": Weather(
        "summer",
        "a [hot|very hot|long hot|drowsy] summer day",
        """
        It was so [hot|warm] that [the cat slept all day|even the bees were sleepy|the air
        shimmered|nobody wanted to run].|The sun [burned|blazed] in the sky, and the [grass
        was dry|road was dusty].|[Crickets chirped|Flies buzzed] in the heat.""",
    ),
    "rain": Weather(
        "spring|autumn|autumn",
        "a [rainy|wet|gray and rainy|dark and rainy] [day|{season} day]",
        """
        Rain [drummed on|tapped on|ran down|pattered against] the [roof|window|windows].|It
        [rained and rained|had rained since breakfast], and [the gutters gurgled|the puddles
        grew|the garden was one big puddle].|[Big|Fat|Heavy] drops [splashed on the
        path|fell from the trees|hung on every leaf].|The sky was [dark|full of clouds|as
        gray as a mouse].""",
    ),
    "wind": Weather(
        "spring|autumn|autumn",
        "a [windy|very windy|wild and windy|blustery] [day|{season} day]",
        """
        The wind [pulled at every coat|shook the trees|made the flags clap|chased the
        clouds|rattled the gates].|[Leaves|Papers|Hats] [flew|whirled|tumbled] [through the
        air|down the street|over the grass].|The trees [bowed|swayed|creaked] in the wind.""",
    ),
    "snow": Weather(
        "winter",
        "a [snowy|cold|frosty|very cold|clear and icy] [day|winter day]",
        """
        Snow [lay on every roof|had fallen all night|covered the fields|sparkled like
        sugar].| [Soft|Big|White|Thick] flakes [fell|floated|drifted] [from the sky|past the
        window|to the ground].|[Icicles hung from|Ice glittered on] the roof.|It was so cold
        that [every breath made a little cloud|the pond was frozen|noses turned red].""",
    ),
    "fog": Weather(
        "autumn",
        "a [foggy|misty|gray|dim] [morning in autumn|day]",
        """
        [Fog|Mist] [lay over the fields|hid the houses|crept along the road|filled the
        valley].|The world was [white and still|gray and soft|as quiet as a pillow].|The
        trees looked like [ghosts made of milk|gray giants|shadows].""",
    ),
}
