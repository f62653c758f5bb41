"""Plots about things that live: the tales among the built-in stories. Their heroes are called "it".

What enters: nothing. What leaves: `TALE_PLOTS`, in the language that `stories.py` explains.

>>> {plot.worlds for plot in TALE_PLOTS}
{('tale',)}
"""

from tilth.corpus.story_plots import Plot

TALE = ("tale",)

TALE_PLOTS = (
    Plot(
        "the little cloud",
        TALE,
        """
        High above the [hills|sea|rooftops] lived a [little|small|very small] cloud named
        {hero}. The other clouds were big and [gray|proud]. They could [make thunder|rain
        for a week|cover the sun]. {Hero} could only [float|make a shadow as big as a
        handkerchief]. The big ones said, "[You are too small to rain|Come back when you are
        a real cloud]." [{Hero} followed them and was always late.|So {hero} drifted about
        alone.]

        Far below, there was a garden. It belonged to a {friend_kind} named {friend}. It had
        not rained for weeks, and [the flowers hung their heads|the earth was as hard as
        stone]. {friend} carried water in a [cup|little can], but it was not enough.
        {friend_he} sighs "[Please don't die|If only it would rain]." {Hero} heard that. It
        [looked around for the big clouds, but they had gone to the mountains|called the big
        clouds, but they were asleep].

        {hero} says "[I am small, but so is the garden|Somebody has to do it]." It [held its
        breath|squeezed itself as hard as it could]. Nothing came. It thought of [the sea
        where it was born|cold things: snow, mountain lakes, mint|{friend}'s sad face]. And
        then a drop fell, and another. [Plip! Plop!|One hit a tulip, one hit {friend} on the
        nose.] {friend} cries "[It is raining! It is raining|Thank you, little cloud]!" It
        rained on [the beans and the roses|every single flower], and only there. When the
        last drop had fallen, {hero} was [almost nothing, only a wisp|as thin as a spider
        web].

        [But the wind blew it to the sea, and there it drank and drank, until it was round
        and white again.|But mist rose from the wet garden, up and up, and {hero} became as
        big as before, and a little bit bigger.] [A rainbow stood over the garden, and one
        end was right in {friend}'s hand.|Each evening, it came back to the garden.]
        {friend} always looked up and waved. [The big clouds never laughed again.|Even the
        smallest can bring what somebody needs.|<end>]
        """,
        weather="hot",
        hero="cloud",
    ),
    Plot(
        "the little train",
        TALE,
        """
        {Hero} was an old [green|red|blue] train. It [puffed|rattled] every day from the
        village to the town, with [milk cans|mail bags], [schoolchildren|two goats] and a
        [rooster in a basket|man with a tuba]. It was slow, and [it squeaked in every
        curve|it stopped whenever a cow stood on the tracks]. One day, a new train came,
        [silver and fast|as long as a street]. "[Out of the way|Old iron]!" it whistled. The
        people said, "Soon we won't need {hero} any more."

        {Hero} stood in the shed and [rust grew on its wheels|spiders moved in]. Only
        {friend} came to visit. {friend} [wiped its lamps|oiled its wheels] and told it the
        news. {friend_he} says "[You are still the best train|I like your squeak]." {hero}
        sighs "[Nobody waits for me now.|What is a train without rails under it?]"

        Then came the great [snow|storm]. [It snowed for three days.|The wires were down.]
        The silver train got stuck [in the pass|before the tunnel]; its [thin wheels
        slipped|fine machines froze]. And in the village, [the doctor was needed|there was
        no bread left|the lights went out]. {neighbor} asks "Who can get through?" {friend}
        cries "{hero} can!" They filled it with coal. [It coughed. It smoked.|First nothing
        moved.] Then, chuff, chuff, chuff, it rolled. [Up the hill it went, slowly, so
        slowly. "I was made for this, I was made for this," sang its wheels.|It pushed the
        snow aside like feathers. Once it slid back. Once more it tried.] {friend} [rang the
        bell|shoveled coal until {friend_his} arms ached].

        At [dawn|midnight], they arrived with everything that was needed, and on the way
        back they even pulled the silver train out. "[Thank you|I was rude to you]," it said
        very quietly. <ever_after> {hero} had [its own track|a new coat of paint], and on
        Sundays, [everyone wanted to ride with it|they had to hang on two extra cars]. [Old
        does not mean useless.|<end>|And it still squeaks in every curve.]
        """,
        weather="snow",
        hero="train",
    ),
    Plot(
        "the star that fell",
        TALE,
        """
        One night, a small star named {hero} leaned too far over the edge of the sky,
        because it wanted to see [the lights of the town|what children do at night]. It
        slipped and fell, [past the moon|through three clouds], and landed in [a
        haystack|the pond|a bird's nest|{friend}'s garden]. {hero} sighs "[Ouch|Now I am
        lost]." It still shone a little, like [a lamp under a blanket|a candle].

        {Friend} could not sleep that night and saw the glow. {friend_he} whispers "[What
        are you|Are you a firefly]?" {hero} replies "I am a star. [My place is up there,
        between the two bright ones.|Can you bring me back?]" {friend} [looked up|thought
        about it]. There was a [gap|little dark hole] in the sky. First they tried [the
        tallest tree|the church tower]. It was not high enough. Then they tried [a kite, but
        the string was too short|a slingshot, but {hero} came down again]. [With every hour,
        {hero} grew paler.|It was getting cold and faint.] {friend} worries "[What can I
        do?|Please don't go out!]"

        [{elder} knew what to do. {elder_he} says "Stars do not rise by ladders. [They rise
        by wishes|Somebody has to wish for it, and give the wish away]." {friend} had saved
        one wish for a long time, for [a pony|a sled]. {Friend} closed {friend_his} eyes and
        gave it away.|{friend} carried the star up the mountain, all night long, to where
        the old owl lived. The owl took it in its claws and flew up, and higher, until it
        was only a dot.|At sunrise, a flock of wild geese flew by. {friend} called, and the
        last goose took {hero} on its back, all the way up to where the sky is thin.]

        The next evening, {friend} stood at the window. The gap was closed. There was
        {hero}, and it [blinked twice|shone brighter than all the others]. {friend} whispers
        "Good night, {hero}." [When other children wish upon a star, {friend} just says
        hello.|And when {friend} cannot sleep, one small light is always awake, too.|<end>]
        """,
        hero="star",
    ),
    Plot(
        "the cracked pot",
        TALE,
        """
        {Hero} was a [big clay|brown|blue] pot. Every day, {friend} carried it to the well
        with another pot, one on each side of a pole. The other pot was perfect. But {hero}
        had a crack, and on the way home, half of the water dripped out. [The perfect pot
        said, "I bring home twice as much as you."|The perfect pot was very proud of
        itself.]

        {Hero} was ashamed. [For two years, it said nothing.|It tried to hold the crack
        together, but a crack is a crack.] <lead> it could not bear it any longer. {hero}
        sighs "I am sorry. [You do all that work, and half of it is lost because of me|You
        should buy a new pot]." {friend} [stopped and set down the pole|looked surprised].
        {friend_he} says "[Have you never looked down?|Watch the side of the path today.]"

        On the way home, {hero} looked. On its side of the path, there were flowers:
        <flowers>, [blue ones and white ones|tall ones and small ones], all the way from the
        well to the house. On the other side, there was only dust. {friend} says "I knew
        about your crack from the first day. So I put seeds on your side, and [you watered
        them each day|you did the rest]. [I pick a bunch for {parent} every week|Because of
        you, I walk through a garden]." {hero} [was silent for a long time|did not know what
        to say]. [A drop ran down its side, but that was only the water. Or perhaps it was
        not.|{hero} whispers "I thought I was only broken."]

        [After that, it dripped with pride.|The perfect pot looked over, and for the first
        time it wished for a tiny crack.|When {hero} grew too old to carry water, {friend}
        filled it with earth, and a rose grew out of the crack.] [Each of us has a crack
        somewhere, and sometimes flowers grow from it.|<end>|]
        """,
        weather="sunny",
        hero="pot",
    ),
    Plot(
        "the dragon without fire",
        TALE,
        """
        [Long ago,|Once upon a time,|In a land beyond the mountains,] there lived a creature
        named {hero}. It was a young dragon, and dragons breathe fire. But when {hero} [took
        a deep breath and blew|tried], only [soap bubbles|butterflies|golden smoke
        rings|petals] came out. The other dragons [roared with laughter|shook their scales].
        "[What a dragon|Ha, look at that]!" they said. So {hero} flew away, over [seven
        mountains|the great lake], and hid in a cave near a small town.

        The people saw the wings and were afraid. [They locked their doors.|They rang the
        bells and ran into their cellars.] Only {friend}, who was [looking for a lost
        goat|too curious to stay inside], went up to the cave. {friend} asks "[Are you going
        to burn our town|Are you dangerous]?" {hero} sighs "[I couldn't if I wanted to|I can
        only do this]." And it blew. {friend} [stared|began to laugh with delight].
        {friend_he} says "[That is the most beautiful thing I ever saw|Do it again]!" Nobody
        had ever said that to {hero}.

        [Next week was the town's big feast, but it rained, and everybody was gloomy.
        {friend} led the dragon to the square. People screamed. Then {hero} blew, as hard as
        it could, and the whole square was filled with [color|shimmering light]. A baby
        laughed first. Then everyone did.|That winter was the coldest of all. The well
        froze, and the stoves went out. {friend} ran up to the cave. {hero} came and
        breathed on the houses, one after another, warm and soft, not hot. The ice on the
        windows melted, and nobody was afraid any more.|Then the other dragons came to burn
        the fields. {hero} flew toward them and did the only thing it could. It blew and
        blew, until they had it in their eyes and noses. They sneezed, they giggled, they
        forgot to be angry, and flew home.]

        {neighbor}, the mayor, hung a medal around its neck, [on a very long ribbon|the size
        of a plate]. {neighbor} says "[Anyone can breathe fire|We have never had a better
        dragon]." And on every child's birthday, {hero} [comes down from the mountain|gives
        a little show]. [One should not hide what makes one different.|<end>|]
        """,
        hero="dragon",
    ),
    Plot(
        "the king who could not laugh",
        TALE,
        """
        Long ago, there was a kingdom where the crown itself could talk. It was called
        {hero}, and it had sat on the heads of <number> kings and queens. But the {ruler} of
        those days was sad. {Ruler_he} never laughed, not once. [{Ruler_he} had a hundred
        clowns, and {ruler_he} yawned.|Dancing bears came, and jugglers, and {ruler_he} only
        sighed.] {hero} sighs "[My {ruler} is so heavy with worry that I feel it up here|I
        am tired of sitting on a frown]."

        One night, when the {ruler} was asleep, {hero} [rolled off the pillow and down the
        stairs|slipped out of the window]. It rolled through the streets, [clink,
        clink|round and round], until it lay down in front of the door of {friend}, the
        child of a [baker|shoemaker|goose farmer]. In the morning, {friend} [tripped over
        it|put it on for fun]. {friend_he} cries "[A crown! And it talks!|Who put that
        here?]" {hero} replies "Listen, I need somebody who is not afraid of castles."

        So {friend} went to the castle. The guards [crossed their spears|laughed], but they
        had to let the crown pass. {friend} says "[Good morning. I think you lost
        something|Here is your crown]." The {ruler} did not laugh. {friend} asks "[When did
        you last play|Why are you so sad]?" Nobody had ever asked {ruler_him} that. [The
        {ruler} thought for a long time. "When I was six," came the answer. "In the mud."|"I
        don't remember," said the {ruler}. "There was always so much to sign."]

        [So {friend} took {ruler_him} by the hand, down to the duck pond. The {ruler}
        slipped, sat down in the mud with a splash, and a duck climbed into {ruler_his} lap.
        First there was a gurgle in {ruler_his} throat.|So {friend} taught {ruler_him} to
        [make faces|hop on one leg|whistle on grass]. The {ruler} was very bad at it.
        {Ruler_he} fell over {ruler_his} own robe, looked at {ruler_his} puzzled face in the
        mirror, and something twitched in it.|So {friend} gave {ruler_him} a broom and
        showed {ruler_him} how to ride it. The {ruler} rode around the throne, faster and
        faster, until the carpet slid away.] And then {ruler_he} laughed! It [rang through
        the halls|shook the windows], and all the clocks began to strike. {hero} laughs "[At
        last I am sitting straight|I like it up here now]!" <ever_after> the {ruler} had
        time for [mud|play] on Mondays, and {friend} became [royal minister for nonsense|the
        {ruler}'s best friend]. [<end>|]
        """,
        hero="crown",
    ),
    Plot(
        "the boat and the sea",
        TALE,
        """
        {Hero} was {a_thing}. It lay on a quiet lake and carried [picnic guests|children and
        dogs|baskets of <fruit>] from one shore to the other. It was a good life, but at
        night {hero} heard the gulls talk about the sea. "[Water without an end|Waves as
        high as a house]," they said. {hero} sighs "[If only I could see it once|I know each
        stone of this lake]."

        {Friend}, who [painted it each spring|was its captain on Sundays], knew what it
        wanted. {friend} says "[There is a river that leads there|It is far. But I am not
        afraid if you are not]." So they set out. [The river was quick and full of
        rocks.|They drifted through mills and under bridges.] At night they [tied up under a
        willow|slept beneath the stars]. In the first rapids, {hero} [scraped its side|lost
        an oar], and it thought, "I was made for lakes." But [they went on|{friend} patched
        the hole, and on they went].

        And then, one morning, the banks were gone. [Everywhere was water, and it
        breathed.|It smelled of salt, and the sky had no end.] {hero} whispers "[So this is
        it|How big it is]." Then [the wind rose. The waves threw {hero} up and down like a
        nutshell. {friend} held the rudder with both hands. {hero} creaked, but it did not
        break.|they saw a great ship that had run onto a sandbank. It was too big for the
        shallow water. But {hero} was small. All day long, it carried the sailors to the
        shore, ten at a time.|fog came up, and from somewhere they heard a cry. A small
        fishing boat was sinking. {hero} was the only one near enough, and it took them all
        on board.] [In the evening, the sea was calm and golden.|When it was over, dolphins
        swam beside them.]

        {friend} asks "[Shall we stay|Do you want to go back]?" {hero} [thought of the lake,
        the frogs and the children|looked at the horizon]. {he} replies "[A while. And then
        I would like to go home and tell the frogs|Both. Summers here, winters there]." [And
        that is just what they did.|To this day, there is a shell on its bow, and the gulls
        greet it by name.|<end>]
        """,
        draws={"thing": "vessel"},
        weather="breezy",
        hero="boat",
    ),
    Plot(
        "the clock that stopped",
        TALE,
        """
        In the tower of a [small|sleepy] town there was a clock named {hero}. For a hundred
        years it had said tick, and then tock, and everybody trusted it. [The baker baked by
        it, and the school bell rang by it.|When it struck seven, the whole town got up.]
        But one night, it stopped. {hero} sighs "[I am so tired|Nobody ever says thank you.
        They only look at me when they are late]."

        In the morning, [everything was upside down|nothing was right]. The bread was
        [burned|still dough], the [train|mailman] came too early or too late, and the
        children [went to school in the evening|had lunch twice]. {neighbor}, the mayor,
        climbed up with [a hammer|an oil can] and knocked on everything. It did not help.
        [Clever people came with long lists.|A watchmaker came and shrugged.] "It is not
        broken," they said. "It simply does not want to."

        Then {friend}, [who swept the tower stairs|the smallest in school], climbed up all
        the steps. {friend} did not bring any tools. {friend} sat down beside the big wheels
        and said, "[Good evening|You must be lonely up here]." [{hero} did not answer. But a
        small wheel twitched.|It was quiet for a long time.] {friend} says "[My grandfather
        told me that you rang when I was born|I always go to sleep when you strike eight.
        Without you, I lay awake]." {hero} asks "[You listen to me|Really]?" {friend}
        replies "[Every night|We all do. We just forgot to tell you]."

        {Friend} [dusted every wheel|brought a warm blanket and a flower] and told the
        others. And on the next day, the whole town stood in the square with [cakes and
        trumpets|lanterns]. They called, "Thank you, {hero}!" For a moment nothing happened.
        Then it went tick. And then, tock. [It struck thirteen, out of pure joy.|The pigeons
        flew up, and everyone cheered.] [Since then, somebody climbs up each Sunday to say
        hello.| We should thank those who are always there.|<end>]
        """,
        hero="clock",
    ),
    Plot(
        "the lonely lantern",
        TALE,
        """
        At the end of [a narrow street|Maple Street|the harbor wall] stood a street lamp
        named {hero}. Every evening it lit its light, and it shone on [an empty bench|a wall
        and a puddle]. Hardly anyone came by. [The other lamps stood on the big square, and
        there was music.|From far away, it could hear the music of the square.] {hero} sighs
        "[Whom do I shine for?|I could just as well be dark.]"

        One [foggy|cold|rainy] evening, it made its light very small, to save its strength.
        Then somebody came around the corner. It was {friend}, [with a letter for {elder}|on
        the way home from a music lesson|with a sick kitten in {friend_his} arms], and
        {friend_he} [felt {friend_his} way along the wall|stumbled over a stone]. {friend}
        whispers "It is so dark. I can't see [the steps|where I am going]."

        {hero} got a fright. It [pulled itself together|took all the strength it had], and
        its light grew and grew, until [the whole street was golden|even the corners were
        bright]. {friend} [looked up|stopped]. {friend_he} says "[Thank you, lamp|There you
        are]." And then {friend_he} sat down on the bench [to read|to rest] for a while. [A
        cat came and sat beside {friend_him}. Then {neighbor} came, who could not sleep,
        with a pot of tea.|Moths came and danced in the light like snow.] They [talked|sat
        there] until late.

        <next_day> {friend} came back, with [a book|a flute|a game of checkers]. [Soon
        others came, and someone brought cushions for the bench.|{neighbor} hung a flower
        basket under the lamp.] By [summer|spring], the end of the street was [the most
        popular place in town|where everyone met]. {hero} [hummed with pleasure|shone as it
        never had before]. [It had learned that you never know who is on the way to you.|One
        light is enough, if it stands where somebody needs it.|<end>]
        """,
        weather="any",
        hero="lamp",
    ),
    Plot(
        "the snowflake",
        TALE,
        """
        {Hero} was a snowflake. It was born in [a gray cloud|a cloud over the mountains], on
        a very cold night, with a thousand brothers and sisters. An old snowflake said,
        "[Each of you is different|No two of us are the same]. And each of you will land in
        the right place." {hero} asks "[How do I know the right place|What is my place]?"
        "[You fall, and then you see|The wind knows]," said the old one.

        Then they jumped. [It was wonderful to fall, left and right, up and down.|They
        whirled and danced.] Some landed on [the roof of a church|the nose of a dog], some
        on [a pine tree|a frozen pond]. {hero} [wanted to be part of a snowman|hoped for a
        mountain top]. But the wind took it by the hand and [blew it through the
        streets|carried it on and on], past [everything that looked nice|the warm windows].
        {hero} worries "[Will I ever land?|Maybe there is no place for me.]"

        [In front of a hospital window sat {friend}, who had been ill for weeks and could
        not go out. The window was open, just a crack.|On a bench sat {friend}, who had just
        moved to this town from a country without any snow.|At a bus stop stood {friend}
        with a long face, because nothing had gone well that day.] {hero} floated down and
        landed on {friend_his} [sleeve|mitten]. {friend} [wanted to brush it away, but then
        stopped|bent down]. There it lay, with six tiny arms, [finer than lace|like a star
        made of glass]. {friend} whispers "[Look at that|How beautiful you are]." And for
        the first time in days, {friend} smiled.

        It only lasted a moment, for {friend}'s breath was warm. {hero} [became a
        drop|melted], bright as a pearl. But {friend} [drew the star into a notebook, and it
        hangs on the wall to this day|looked up and saw that the sky was full of them, and
        each one was different]. [In spring, the drop was a cloud again, and it could not
        wait for winter.|It had been the right place after all.] [<end>|]
        """,
        weather="snow",
        hero="snowflake",
    ),
    Plot(
        "the toy in the window",
        TALE,
        """
        In the window of a toy shop sat a stuffed [bear|rabbit|donkey|lion] named {hero}. It
        had sat there for [three years|a very long time]. One of its [ears|eyes|arms] was [a
        bit crooked|smaller than the other], and so [nobody bought it|the children always
        chose another toy]. [The dolls whispered about it.|A wooden soldier said, "You are a
        mistake."] {hero} said nothing, but at night, when the shop was dark, it [looked at
        the stars and hoped|dreamed of a child's arms].

        <lead> {neighbor}, who owned the shop, put it in a box with a sign that said, "[Half
        price|For free]!" [Even then, no one took it.|It lay there between broken tops and
        dusty puzzles.] And then [the box fell off a cart and rolled into a ditch|the box
        was put out on the street, and it began to rain]. {hero} got [wet|muddy from head to
        toe]. {he} sighs "[So this is the end of my story|Now nobody will ever want me]."

        [<soon>|Hours later,] there were footsteps. {friend} [came by with a school
        bag|jumped over the puddles] and stopped. {friend_he} asks "[Who are you|What are
        you doing here, all alone]?" {friend} picked {hero} up, [wiped its face|wrung it
        out] and took it home. {parent} says "[It is quite dirty|It has a crooked ear]."
        {friend} replies "[So do I|That is how I know it is mine]." And {friend} laughed,
        and there was a gap between {friend_his} teeth.

        They washed it, [dried it by the stove|hung it on the line between two socks] and
        sewed on a <color> button. That night, {hero} lay in {friend}'s arm. It was
        [warm|exactly as it had dreamed, only warmer]. {friend} whispers "[I looked for you
        everywhere|You are perfect]." And if stuffed animals could cry, [its fur would have
        been wet again|there would have been one more thing to dry]. [To be loved, you don't
        have to be straight.| <end>|They went everywhere together, until they both were
        old.]
        """,
        weather="rain",
        hero="toy",
    ),
)
