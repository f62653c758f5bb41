"""The phrases that the plots of the built-in stories share: beginnings, feelings, endings.

What enters: nothing. What leaves: `PHRASES`, for each world a dictionary from a name to its
options, in the language that `stories.py` explains; `SPEECH`, the ways to write down who says what;
and `ALIKE`, words that can stand for one another.

>>> "Once upon a time" in PHRASES["child"]["start"]
True
"""

# For each verb of a plot: what may stand in front of the words, and what may stand behind.
SPEECH = {
    "says": (
        ["{Who} said,", "{Who} said,", "{Who} said,", "{Who} looked up.", "{Who} turned around."],
        ["said {who}", "{who} said"] * 3 + ["said {who} after a moment"],
    ),
    "asks": (
        ["{Who} asked,", "{Who} asked,", "{Who} wanted to know:"],
        ["asked {who}", "{who} asked", "asked {who}", "{who} wanted to know", "{who} asked gently"],
    ),
    "replies": (
        ["{Who} said,", "{Who} answered,", "{Who} replied,"],
        ["said {who}", "{who} said", "answered {who}", "{who} replied", "said {who} at once"],
    ),
    "cries": (
        ["{Who} cried,", "{Who} called,", "{Who} shouted,", "{Who} called out,", "{Who} yelled,"],
        ["cried {who}", "called {who}", "{who} shouted", "shouted {who}", "{who} called"],
    ),
    "whispers": (
        ["{Who} whispered,", "{Who} whispered,", "{Who} bent down a little and whispered,"],
        ["whispered {who}", "{who} whispered", "{who} said very softly", "murmured {who}"],
    ),
    "laughs": (
        ["{Who} smiled.", "{Who} laughed.", "{Who} said with a smile,", "{Who} grinned."],
        ["said {who} with a smile", "{who} said happily", "laughed {who}", "chuckled {who}"],
    ),
    "sighs": (
        ["{Who} sighed.", "{Who} said sadly,", "{Who} looked down.", "{Who} let out a sigh."],
        ["sighed {who}", "{who} said sadly", "said {who} in a small voice", "{who} mumbled"],
    ),
    "worries": (
        ["{Who} said in a worried voice,", "{Who} frowned.", "{Who} gulped.", "{Who} gasped,"],
        ["gasped {who}", "{who} said in a shaky voice", "said {who}, a little pale", "{who} said"],
    ),
}

# Wherever a text has the words on the left, any on the right will do.
ALIKE = {
    "began to": "began to|started to",
    "for a long time": "for a long time|for a long while|for quite a while",
    "for a while": "for a while|for some time|for a bit",
    "nobody": "nobody|nobody|no one",
    "Nobody": "Nobody|Nobody|No one",
    "Everybody": "Everybody|Everyone",
    "everyone": "everyone|everybody",
    "Everyone": "Everyone|Everybody",
    "somebody": "somebody|someone",
    "Somebody": "Somebody|Someone",
    "each other": "each other|each other|one another",
    "wonderful": "wonderful|wonderful|marvelous|lovely|splendid",
    "afraid": "afraid|afraid|scared|frightened",
    "walked to": "walked to|went to",
    "was very": "was very|was quite|was really",
    "were very": "were very|were quite",
    "did not": "did not|did not|didn't",
    "could not": "could not|could not|couldn't",
    "was not": "was not|was not|wasn't",
    "had not": "had not|hadn't",
    "would not": "would not|wouldn't",
    "It is": "It is|It is|It's",
    "I am": "I am|I'm",
    "I will": "I will|I'll",
    "You are": "You are|You're",
    "We will": "We will|We'll",
    ". Then": ". Then|. Then|. And then",
    ". So": ". So|. So|. And so",
    ". Soon": ". Soon|. Before long",
    "all the way": "all the way|the whole way",
    "looked around": "looked around|looked about",
    "came closer": "came closer|came nearer|stepped closer",
    "on the way home": "on the way home|on the way back",
    "On the way home": "On the way home|On the way back",
    "took a deep breath": "took a deep breath|breathed in deeply",
    "a little bit": "a little bit|a tiny bit",
    "laughed out loud": "laughed out loud|burst out laughing",
    "in the morning": "in the morning|at dawn",
    "In the morning": "In the morning|In the morning|At sunrise|When morning came",
    "In the evening": "In the evening|In the evening|That evening|When evening came",
    "that night": "that night|that same night",
    "each morning": "each morning|every morning",
    "each day": "each day|every day",
    "every day": "every day|each day|day after day",
    "to this day": "to this day|even today",
}

COMMON = {
    "lead": """
        One day,|One day,|One day,|One morning,|One morning,|One fine morning,|One {season}
        day,|One {season} morning,|Early one morning,|One morning in {season},|Then, one
        day,|On {a_day},""",
    "this_day": "That day,|That morning,|That very day,|On this day,|This morning,",
    "next_day": """
        The next day,|The next morning,|The day after,|Early the next morning,|A few days
        later,|On the following day,|Two days later,|When the sun came up again,|When
        morning came,""",
    "soon": """
        Soon,|After a while,|Before long,|A little later,|In a little while,|In no time,|A
        few minutes later,|After some time,""",
    "suddenly": "Suddenly,|Just then,|All at once,|At that moment,|All of a sudden,|Right then,",
    "at_last": "At last,|Finally,|In the end,|At long last,|After a long time,",
    "number": "two|three|three|four|five|six|seven|ten",
    "color": "red|blue|yellow|green|white|brown|purple|pink|gray|golden|black|silver",
    # Feelings of the hero: whole sentences.
    "happy": """
        {Hero} was [happy|very happy|so happy that {he} could have danced].|{Hero} felt
        [warm|light|sunny] [inside|all over|from head to toe].|{Hero} [smiled from ear to
        ear|laughed out loud|clapped and cheered|beamed like the sun|could not stop
        smiling].|{Hero}'s heart [jumped for joy|sang|felt as light as a feather].|{Hero}
        [hopped|jumped|skipped|twirled] [with joy|for joy|in a circle].|A [big|wide|huge]
        smile spread over {hero}'s face.|What a [wonderful|lovely|marvelous] feeling that
        was!|{Hero} was [glad|delighted|overjoyed].""",
    "sad": """
        {Hero} felt [sad|very sad|terrible|lonely|gloomy].|{Hero}'s [eyes filled with
        tears|lip trembled|shoulders drooped|heart was heavy|throat felt tight].|A
        [big|warm|single|fat] tear rolled down {hero}'s [cheek|nose].|{Hero} [wanted to
        cry|began to cry|sniffled|did not feel like playing any more].|{Hero} sat down [on
        the ground|on a stone|on the doorstep] and [cried a little|sighed|put {his} head
        down].|[All the fun|All the joy] was gone [at once|].""",
    "scared": """
        {Hero} [shivered|trembled|held {his} breath|did not dare to move|swallowed
        hard].|{His} heart [beat fast|went thump, thump, thump|pounded like a drum|skipped a
        beat].|{Hero}'s knees [felt weak|shook|wobbled].|{Hero} was
        [scared|afraid|frightened|a bit scared].|A [cold|funny| tingly] feeling ran down
        {hero}'s back.|{Hero} wanted to [run away|hide|be home in bed].""",
    "proud": """
        {Hero} felt [proud|very proud|ten feet tall|as proud as a peacock].|{Hero} stood a
        little [taller|straighter].|{Hero} [glowed|beamed|shone] with pride.|{Hero}'s cheeks
        turned [pink| red|warm] with pride.|{Hero} had never been so proud [before|in {his}
        whole life].""",
    "excited": """
        {Hero} could hardly [wait|sit still|believe {his} eyes|breathe].|{Hero}'s eyes
        [shone| grew wide|sparkled|grew as round as plates].|{Hero} [bounced up and
        down|hopped from one foot to the other|clapped with delight].|{Hero} was [so|very]
        excited.|{Hero} had [butterflies in {his} tummy|a tickle in {his} tummy].""",
    "thinking": """
        {Hero} [thought|thought hard|thought and thought|scratched {his} head|sat down to
        think|wrinkled {his} nose and thought].|{Hero} closed {his} eyes and thought [about
        it|for a long time|for a while].|What [now|could {he} do|should {he} do]?|{He}
        [looked left and right|looked all around|walked up and down], [thinking|wondering
        what to do].""",
    "idea": """
        Then {he} had an idea.|Suddenly, {he} had [a good|a clever|a wonderful|a bright]
        idea.|And then {hero} knew what to do.|An idea popped into {his} head.|Then {hero}
        remembered something.|All at once, {hero} [jumped up|clapped {his} {hand}s|began to
        smile]: {he} had an idea!""",
    "thanks": """
        "Thank you!"|"Thank you so much!"|"Oh, thank you!"|"Thank you, thank you!"|"How can
        I thank you?"|"You are so kind!"|"I will never forget this!\"""",
    "hooray": "Hooray|Hurrah|Oh, how wonderful|What fun|How lovely|At last|Yes",
    "oh_no": "Oh no|Oh dear|Oh my|Goodness|Help|Oh, what a pity|Uh-oh",
    "try_again": """
        Try again|Just try once more|Take your time|Do not give up|One step at a time|Nobody
        can do everything at once|Slow and steady""",
    # Small things seen on the way; they change nothing.
    "detour": """
        On the way, {hero} [saw|met|passed] [a snail with a striped shell|a beetle as shiny
        as a coin|a line of busy ants|a fat bumblebee|a green caterpillar|two ducks in a
        puddle|a lizard on a warm stone|a toad under a leaf|a spider mending its
        web].|{Hero} counted [the fence posts|the clouds|the crows on the wall|{his} steps]
        [all the way|to pass the time|until {he} lost count].|{Hero} [hummed|whistled|sang]
        [a song|a silly tune|a song about {food}|an old tune] [as {he} went along|on the
        way|].|A [butterfly|ladybug|feather|dandelion seed] [landed on|settled on|tickled]
        {hero}'s [nose|sleeve|shoulder|ear] and [stayed for a moment|flew off again|made
        {him} laugh].|{Hero} stopped to [smell a flower|look at a spider web|listen to a
        woodpecker|jump over a puddle|wave at a passing cart|pick up a smooth stone|watch a
        worm].|The path [wound between the hedges|went up and down|smelled of
        [mint|pine|clover|mud]|was full of puddles].|Somewhere a [dog barked|cuckoo
        called|bell rang|door creaked|frog croaked|rooster crowed].|A [robin|
        blackbird|sparrow|magpie] [watched {hero} from a branch|hopped along beside
        {hero}|sang as loudly as it could].|{Hero} jumped over [<number> puddles|a fallen
        log|a little ditch|every crack in the path].""",
    # What one does not find where one looks.
    "search": """
        {He} looked [under the bed|behind the door|under the table|on the shelf|in the
        cupboard], [behind the curtain|in the basket|on the stairs|under the rug|between the
        cushions] and [even in the soup pot|even in {his} own shoes|even on top of the
        lamp|in every corner|in the flower pots].|{He} turned [everything|the whole
        place|every box] upside down.|{He} looked here, {he} looked there, {he} looked
        everywhere.|High and low {he} searched, and found only [an old sock|a lost button|a
        crumb|some dust|a bent spoon|a wooden spoon|half a cookie].""",
    # Endings.
    "evening": """
        That [night|evening], {hero} [fell asleep|went to bed|slept] with a smile [on {his}
        face|].|When the [stars came out|moon rose|lamps were lit], {hero} was
        [already|fast] asleep, [dreaming of <dream>|warm under the blanket].|In the evening,
        {hero} told [{elder}|{parent}|the moon|everybody] [all about it|the whole story from
        the beginning].|And that night, {hero} dreamed of <dream>.|{Hero} yawned, [curled
        up|pulled up the blanket] and thought, "What a [day|good day|wonderful day|strange
        day]!"|At supper there were {food}, and nobody had ever tasted [better|anything so
        good].|The [moon|evening star] looked in at the window and saw {hero} [smiling in
        {his} sleep|sleeping like a stone].""",
    "dream": """
        [flying|sailing] over the [rooftops|sea|mountains|clouds]|a [castle|garden|forest|
        mountain] made of [cake|glass|honey|light|snow]|[dancing|singing|talking]
        [bears|fish|stars| rabbits|trees]|the next adventure|everything that had happened|a
        ship with <color> sails|{food}, mountains of {food}|green hills|a parade of
        [elephants|mice|ducks]""",
    "ever_after": """
        From that day on,|From then on,|After that day,|And ever since,|Ever after,|Since
        that day,""",
    "end": """
        And everyone was happy.|The end.|The end.|And if nobody has told {him} otherwise,
        {hero} is smiling still.|{Hero} never forgot it.|And so [all was well|everything
        turned out well|the story ends well].|{Hero} still likes to tell that story.|And
        that is how it was.|And that was [that|the beginning of something new|more than
        enough].|Everybody agreed that it could not have ended better.|It is a true story,
        or [almost|nearly so].|That is what the [old folks| sparrows|grandmothers] say, at
        least.""",
    # Lessons.
    "moral_share": """
        {Hero} had learned that [joy grows|everything tastes sweeter|a day is better] when
        you share.|Half of something and a friend is more than all of it alone.|Sharing had
        not made {his} part smaller; it had made {his} day bigger.|"Sharing is [fun|better
        than having]," thought {hero}.""",
    "moral_honest": """
        {Hero} had learned that the truth is [lighter to carry|easier] than a lie.|It is
        [hard|not always easy] to tell the truth, but it [feels good|feels so much better]
        afterward.|{Hero} never forgot that [honest words can mend a lot|it is brave to be
        honest].""",
    "moral_try": """
        {Hero} had learned that [you have to fall a few times before you fly|practice
        helps|nobody is good at something on the first try|every expert was once a
        beginner].|"I could not do it yet, that was all," thought {hero}.|If you keep
        trying, you get [better|a little better] every day.""",
    "moral_brave": """
        {Hero} had learned that [being brave does not mean that you are never afraid|you can
        be afraid and brave at the same time|most scary things grow small when you look at
        them].|After that, {hero} was never quite so afraid [again|of such things again].|"I
        was scared, and I did it [anyway|all the same]," thought {hero}.""",
    "moral_kind": """
        {Hero} had learned that [a small kindness can come back big|kindness costs nothing|
        even the smallest can help the biggest].|A little kindness goes a long way.|One good
        turn brings another.|It is good to help, and it is good to be helped.""",
    "moral_patient": """
        {Hero} had learned that [good things take time|some things cannot be hurried|waiting
        is part of the fun].|Good things come to those who wait a little.""",
    "moral_help": """
        {Hero} had learned that [it is no shame to ask for help|together you can do what
        nobody can do alone|many hands make light work].|"Next time I will ask sooner,"
        thought {hero}.|Together, [even hard things are easy|they could do anything].""",
    "moral_friend": """
        {Hero} had learned that [a friend is worth more than being right|saying sorry is the
        first step|a quarrel is short, but a friendship is long].|[A good|A real] friend is
        [better than any toy|worth more than gold].""",
    "moral_careful": """
        {Hero} had learned to [look first and leap later|listen to good advice|stop and
        think].|After that, {hero} was [much|] more careful.""",
    "sorry": """I am sorry|I am so sorry|I am really sorry|Please forgive me|I did not mean it""",
    "sky": """
        [A hawk circled|Swallows darted|A lone cloud drifted] [high|far] above.|The
        [clouds|shadows] [moved|wandered] slowly over the [hills|fields].|[Bells|Voices]
        [rang|drifted] over from the [village|hills].""",
    "fruit": "apples|pears|plums|cherries|berries|strawberries|peaches|raspberries",
    "flowers": "daisies|poppies|buttercups|bluebells|violets|dandelions|marigolds|primroses|tulips",
}

HOBBIES = """
        to draw|to sing|to run|to climb trees|to read|to dance|to paint|to dig in the mud|to
        jump in puddles|to collect stones|to look at clouds|to count the stars|to ask
        questions|to make up songs|to tell jokes|to watch birds|to build things|to help in
        the garden|to listen to stories|to play hide and seek|to roll down hills|to invent
        games|to collect feathers|to skip stones|to whistle|to make friends|to feed the
        ducks|to look for treasure|to pick <flowers>|to explore|to bake|to hum|to chase
        butterflies|to splash in the stream|to give names to clouds|to fix broken things|to
        walk in the rain|to pretend to be a pirate|to draw maps|to solve riddles|to taste
        new things"""

WHERE = """
        in a [small|quiet|sleepy|sunny|little|pretty] [town|village|valley|harbor
        town|mountain village] [by the sea|near the river|between two hills|at the edge of a
        forest|far, far away|where everybody knew everybody|with a tall clock tower|full of
        gardens|]|on [an island|a farm|a green hill| a hill above the sea|a boat on the
        river]|at the end of [a long road|Maple Street|the lane]|not far from here"""

CHILD = COMMON | {
    "hobbies": HOBBIES,
    "where": WHERE,
    "start": """
        Once upon a time, there was [a little|a little|a young|a small|{a_trait}|{a_trait}
        little] {kind} named {hero}. <about> <lead>|
        Once upon a time, there was [a little|{a_trait}] {kind} named {hero} who [lived
        <where>|loved <hobbies>]. [<about>|] <lead>|
        Once upon a time, <where>, there lived {a_trait} {kind} named {hero}. <about>
        <lead>|
        Once there was {a_trait} {kind} [called|named] {hero}. <about> <lead>|
        There was once [a|a little] {kind} whose name was {hero}. <about> <lead>|
        {Hero} was {a_trait} [little|young|] {kind}. <about> <lead>|
        {Hero} was {a_kind} who loved <hobbies> [more than anything|]. [<about>|] <lead>|
        It was {a_day}. {weather} {Hero}, {a_trait} [little|] {kind}, [was in a good
        mood|had just finished breakfast|had slept very well|wanted to do something new].
        <this_day>|
        {weather} It was {a_day}, and {hero} [wanted to go outside|had nothing to do|was
        humming a song]. {He} was {a_trait} {kind}, and {he} loved <hobbies>. <this_day>|
        "[Good morning|Wake up|Time to get up], {hero}!" called {parent}. {Hero} [opened
        one eye|jumped out of bed|yawned and stretched|rubbed {his} eyes]. It was {a_day}.
        <this_day>|
        In a [small|white|crooked|tall|narrow|yellow] house [with a <color> door|under a
        chestnut tree|by the bridge|next to the bakery|with roses on the wall] lived
        {a_trait} {kind} named {hero}. <about> <lead>|
        Everybody <known> knew {hero}, the {kind} who loved <hobbies>. <lead>|
        This is a story about [a|{a_trait}] {kind} named {hero}. <about> <lead>|
        Have you heard of {hero}? {He} was {a_trait} {kind} who lived <where>. <lead>|
        Long ago, <where>, lived {a_kind} named {hero}. [<about>|] <lead>|
        {Hero} was <number_age> years old and loved <hobbies>. [<about>|] <lead>|
        On {a_day}, {hero} woke up [early|late|before everyone else]. {weather} {He} was
        {a_trait} {kind}, [and {he} had plans|always ready for something new]. <this_day>""",
    "number_age": "four|five|five|six|six|seven|eight",
    "known": "in [town|the village|Apple Street|the valley|school]|on the island|by the harbor",
    "about": """
        {He} loved <hobbies> [and <hobbies>|].|{He} [liked|loved] <hobbies>, but most of all
        {he} loved {food}.|{He} had [two brothers|three sisters|a very big family|a fat cat
        and a goldfish|a grandmother who knew a hundred stories|seven cousins|a room full of
        books|a father who could whistle].|{He} had [curly|short|long|
        black|red|brown|straight] hair and [a gap between {his} teeth|freckles on {his}
        nose|a laugh like a bell|green eyes|the biggest smile in town].|{He} always wore [a
        <color> hat|<color> boots|a <color> sweater|a <color> scarf|odd socks|a paper
        crown|a coat with <number> pockets].|{He} wanted to be [a sailor|an inventor|a
        baker|a pilot|a painter|a doctor|a clown|a gardener] one day.|{He} was never without
        [{his} notebook|a pencil behind {his} ear|a cookie in {his} pocket|questions].""",
    "stranger": "an old sailor|a tall woman|a tired peddler|a gray-haired fiddler|a thin soldier",
    "supper": """
        [soup|pancakes|noodles|pea soup|baked potatoes|rice with raisins|fish
        cakes|dumplings|pumpkin pie|hot chocolate|warm bread with butter]""",
}

ANIMAL = COMMON | {
    "hobbies": """
        to dig|to nap in the sun|to race the wind|to splash in puddles|to climb|to sing at
        dawn|to roll down hills|to collect feathers|to count stars|to hunt for <fruit>|to
        chase falling leaves|to listen to the brook|to tell stories|to hide in the tall
        grass|to build little dams|to play tag|to watch the moon|to gather {food}|to sniff
        at flowers|to slide in the mud|to help others|to explore|to make up riddles|to dance
        in the rain|to paint with berry juice|to look at clouds|to ask questions|to collect
        shiny stones""",
    "where": """
        in a [green|deep|quiet|sunny|dark|big] [forest|wood|valley|meadow] [by a brook|near
        a lake|between two mountains|where wild <fruit> grew|full of <flowers>|]|under [an
        old oak|a crooked pine|a hollow tree|the roots of a beech|a blackberry bush]|beside
        a [pond|river|stream] [full of lilies|with clear water|]|at the foot of a
        [mountain|hill]|on the far side of the hill""",
    "start": """
        Once upon a time, there was [a little|a little|a young|a small|{a_trait}|{a_trait}
        little] {kind} named {hero}. <about> <lead>|
        Once upon a time, <where>, there lived {a_trait} {kind} named {hero}. <about>
        <lead>|
        Deep in the forest lived [a little|{a_trait}] {kind} named {hero}. <about> <lead>|
        {Hero} was {a_trait} [little|young|] {kind} with {look}. [<about>|] <lead>|
        {Hero} the {kind} lived <where>. <about> <lead>|
        Where the [river bends|road ends|ferns grow tall|fireflies dance], there lived
        {a_trait} {kind}. {His} name was {hero}. [<about>|] <lead>|
        It was {a_day} in the forest. {weather} {Hero}, {a_trait} [little|] {kind},
        [stretched and yawned|came out of {his} {home}|was looking for {food}]. <this_day>|
        {weather} It was {a_day}, and all the animals were [awake|busy|outside]. {Hero}
        the {kind} was [the busiest|the happiest|the hungriest] of all. <this_day>|
        Nobody in the whole forest was as {trait} as {hero} the {kind}. <about> <lead>|
        Long ago, when animals still told each other stories, there was {a_kind} named
        {hero}. <lead>|
        In a [cozy|tidy|dry|messy|tiny] {home} <where> lived {a_kind} named {hero}.
        <about> <lead>|
        This is the story of {hero}, {a_trait} {kind} with {look}. <lead>|
        Have you ever met {a_kind} who loved <hobbies>? {Hero} was one. [<about>|] <lead>""",
    "about": """
        {He} loved <hobbies> [and <hobbies>|].|{He} liked <hobbies>, but most of all {he}
        loved {food}.|{He} had {look}, and {he} was very proud of that.|{He} had [seven
        sisters|a strict grandfather|a very big family|an uncle who had seen the sea|two
        lazy brothers|a mother who made the best soup].|{His} {home} was [always tidy|full
        of acorns|lined with moss|the warmest in the forest|never quiet].|{He} was [small
        for {his} age|the youngest of <number>|always hungry|always on the move].""",
    "stranger": "an old bear|a tall heron|a tired goat|a gray hare|a thin wolf",
    "supper": """
        [acorn soup|berry pie|mushroom stew|honey cakes|warm chestnuts|nut bread|roasted
        roots|clover salad|blackberry jam]""",
}

TALE = CHILD

PHRASES = {"child": CHILD, "animal": ANIMAL, "tale": TALE}
