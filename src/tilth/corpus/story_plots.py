"""Plots for the built-in stories that children can play as well as animals, and what a plot is.

What enters: nothing. What leaves: `PLOTS`. A plot is a text in the language that `stories.py`
explains: a beginning, a trouble, a turn and an ending; brackets hold the ways the story can go.

>>> PLOTS[0].title
'the lost thing'
"""

from collections.abc import Mapping
from typing import NamedTuple


class Plot(NamedTuple):
    """What can happen in a story, and what it needs."""

    title: str
    worlds: tuple[str, ...]
    """Of "child", "animal" and "tale"; the slots of a text must exist in each."""
    text: str
    draws: Mapping[str, str] = {}
    """Slots of its own, each with the group of nouns or places that fills it."""
    weather: str = "fair"
    """A kind of weather, or a common name for several."""
    hero: str = ""
    """What the hero of a tale is."""


EITHER = ("child", "animal")

PLOTS = (
    Plot(
        "the lost thing",
        EITHER,
        """
        <start> {hero} could not find {his} {full_thing}. It had been [right there|on the
        chair|next to {his} bed] the night before, and now it was gone. <search>

        [{hero} sighs "My {thing} is gone. Maybe it ran away."|<sad> It was not just any
        {thing}. It was [a present from {elder}|the one thing {he} took everywhere|older
        than {he} was].] [{friend} came by and [saw {his} sad face|heard the noise].|Soon
        {friend} came to help.] {friend} asks "[When did you see it last|Where did you play
        with it yesterday]?" [{hero} thought back. [Yesterday|The day before], {he} had been
        {in_place}, and then it had [started to rain|grown dark|been time for supper]. So
        they went back to {place}. <detour> And there, [under a bench|under a bush|behind a
        big stone|on a tree stump], lay the {thing}! [A family of [mice|beetles|ladybugs]
        had moved in.|It was a little wet, but it was not broken.|A sleepy [cat|duck|toad]
        was using it as a pillow.]|They followed a trail of [crumbs|muddy footprints|tiny
        tracks|loose threads] [around the corner|down the path|past the gate]. At the end of
        it sat a [magpie|puppy|kitten|baby goat], and beside it lay the {thing}. [{friend}
        laughs "We found the thief!"|The little thief looked up with innocent eyes.] {Hero}
        could not be angry. {He} [found it a [stick|leaf|pine cone] to play with
        instead|scratched it behind the ears|gave it a pat].|{hero} sighs "I don't
        remember." Just then, {friend} began to laugh and pointed at {his} [back|head|arm].
        The {thing} had been [with {him}|right there, tied to {his} belt,|stuck in {his}
        hood] all the time! {Hero} [turned red|felt silly], and then {he} laughed too.]

        [<happy>|<thanks> said {hero}.] [{hero} gave {friend} a hug.|The two friends played
        until the sun went down.|] [<ever_after> the {thing} had its own place [on the
        shelf|beside the bed|in a little box].|<evening>]
        """,
        draws={"thing": "toy", "place": "outdoor"},
    ),
    Plot(
        "half of the treat",
        EITHER,
        """
        <start> {parent} gave {hero} {a_thing}. It [smelled wonderful|was still warm|was
        almost too pretty to eat]. {Hero} [carried it outside|took it along] and looked for
        a nice place to eat it. [<detour>|]

        [{In_place} sat {friend}, looking at the ground.|On the way to {place}, {he} met
        {friend}.] {hero} asks "[What is the matter|Why do you look so sad|Are you all
        right]?" {friend} replies "[I dropped my lunch in the mud|A crow took my breakfast|I
        am so hungry, and there is nothing left at home|I gave my lunch to my little
        brother, and now my tummy growls]." {Hero} looked at the {thing}. It was [not very
        big|the last one]. [{He} really wanted all of it.|For a moment, {he} wanted to hide
        it.]

        [Then {hero} broke it in two. One half was bigger than the other, and {he} gave
        [that one|the bigger one] to {friend}. {hero} says "[Here, this is for you|Eat with
        me|Two small halves are better than one sad friend]."|{He} walked on a few steps.
        But the {thing} did not taste good any more. So {he} turned around. {hero} says
        "[Let's share|Come, half of it is yours]."] They sat side by side and ate, and
        [crumbs fell everywhere|the sparrows got the crumbs|{friend} licked both {hand}s].
        [A little later, {friend} came running. {friend_he} cries "[My aunt|My mother] just
        picked the first <fruit>! [We have a whole basket|Come and eat with us]!" And they
        ate until they were as round as balls.|The next time, it was {hero} who had nothing,
        and {friend} who had {a_other}. Guess who got the bigger half!|{parent} had seen it
        all from far away. In the evening, there were two more on the table: one for {hero},
        and one for {friend}.]

        [<moral_share>|<happy>|<evening>]
        """,
        draws={"thing": "treat", "other": "treat", "place": "outdoor"},
    ),
    Plot(
        "across the water",
        EITHER,
        """
        <start> {hero} and {friend} wanted to [visit {elder}|pick <fruit>|see the
        waterfall|look at the new lambs]. To get there, they had to cross the
        [stream|brook|river]. There was only [a narrow log|a row of wet stones|a wobbly
        bridge|an old plank].

        {Friend} ran across at once. But {hero} stopped. The water [rushed and
        foamed|gurgled|was dark and quick] below. <scared> {hero} worries "[I can't!|What if
        I fall in?|It is too far!|It moves!]" {Friend} did not laugh. [{friend_he} says "I
        was afraid, too, the first time."|{Friend_he} came all the way back and held out a
        {hand}.]

        [{friend} says "Don't look at the water. Look at me and take one small step." {Hero}
        took one small step. Then another. {He} counted them: one, two, three... At eleven,
        {he} was on the other side!|They [found a rope|tied two scarves together|picked up a
        long branch], and {friend} held one end while {hero} held the other. Step by step,
        {hero} [crept|shuffled|tiptoed] across. In the middle {he} [wobbled|slipped a
        little], but {he} held on tight.|{hero} sat down and [crossed on {his} bottom|slid
        across bit by bit|went across on all fours]. It looked very funny. But it
        worked!|They walked along the bank until they came to a place where the water was
        [shallow|no deeper than a puddle] and clear. There {hero} could see every pebble.
        Hop, splash, hop, {he} was across.]

        [{hero} cries "<hooray>! I did it!"|<proud>] [On the other side, <fruit> grew
        everywhere, and they ate until their mouths were [red|blue|sticky].|{elder} was
        waiting there with [lemonade|cake|a big hug] and said, "I knew you could do
        it."|They looked back, and the water did not look so wide any more.] [On the way
        home, {hero} crossed [first|without a word|as if it were nothing].|<moral_brave>]
        [<end>|]
        """,
    ),
    Plot(
        "the seed",
        EITHER,
        """
        <start> {elder} gave {hero} a [tiny|brown|striped|round] seed. {elder} says "[Plant
        it and be patient|Something wonderful is asleep in there|It needs earth, water, sun
        and time]." {Hero} [dug a hole with a spoon|found a sunny spot|filled a pot with
        soft earth] and put the seed in. Then {he} sat down to wait.

        {He} waited [one hour|until lunch|all afternoon]. Nothing happened. [{hero} asks
        "Are you coming out soon?"|{He} sang it a song.|{He} told it a joke.] Nothing
        happened the next day, and nothing happened the day after that. [{hero} wanted to
        dig it up and look. {friend} says "No, don't! [It is working, you just can't see
        it|You would wake it up too early]."|{friend} says "Maybe it is just a pebble." But
        {hero} kept watering it.|One night there was a storm, and {hero} worried [so much
        that {he} could not sleep|about the little seed]. {He} ran out and put [a bucket|an
        umbrella|a basket] over the pot.|A hungry [slug|pigeon|goat] came by, and {hero}
        [built a little fence|stood guard with a broom].]

        <next_day> there was [a green dot|a tiny green tip|a little crack in the earth].
        {hero} cries "[It is awake|Come and look, everyone|It is here]!" The green tip
        became a stem, and the stem got leaves, [two, then four, then ten|and the leaves
        grew as big as plates]. By [the end of summer|the time the swallows left], {a_thing}
        stood there, [taller than {hero}|as high as the fence|full of bees]. [{Hero} cut off
        the finest part of it for {elder}.|And it carried a hundred new seeds, enough for
        all {his} friends.|Everyone who passed by stopped to look at it.]

        [<moral_patient>|<proud>|{elder} laughs "You see? You waited so well."] [<end>|]
        """,
        draws={"thing": "plant"},
        weather="spring",
    ),
    Plot(
        "the broken thing",
        EITHER,
        """
        <start> {hero} was playing [ball|tag|pirates|a jumping game] indoors, though
        {parent} had said not to. [Bump!|Crash!|Clink!] {A_thing} fell from the
        [shelf|table|window sill] and broke into <number> pieces. It was the one that
        {parent} loved most. <scared>

        [{He} pushed the pieces under the rug.|{He} hid the pieces behind the curtain.|{He}
        put the pieces in a drawer and closed it.] All [morning|afternoon], {he} felt
        [strange|as if {he} had swallowed a stone|a knot in {his} tummy]. [{parent} asks
        "Have you seen my {thing}?" {hero} [looked at {his} feet|shook {his} head] and said
        nothing.|At lunch {he} could not eat, not even {food}.|When {friend} came to play,
        {hero} did not want to. {friend} says "Tell the truth. It is like pulling out a
        splinter."]

        <at_last> {he} could not stand it any more. {hero} says "It was me. I broke it.
        <sorry>." [{parent} was quiet for a moment.|{parent} looked at the pieces for a long
        time.] Then {parent_he} [sat down next to {him}|took {him} in {parent_his} arms|put
        an arm around {him}]. {parent} says "[I am sad about the {thing}|It was only a
        {thing}], but I am glad that you told me. [A thing can be mended|You are worth more
        than any {thing}]."

        [They glued it together, piece by piece. It took [two hours|the whole evening], and
        in the end one tiny piece was missing. {parent} says "That is where the story
        goes."|They could not mend it. So they put the pieces in a pot under the flowers,
        where they [glittered in the sun|looked like jewels].|{hero} saved {his} pennies for
        <number> weeks and bought a new one at the fair. It was not as pretty, but {parent}
        loved it even more.] [<moral_honest>|And {hero} slept well that night.]
        """,
        draws={"thing": "fragile"},
        weather="any",
    ),
    Plot(
        "the small one in trouble",
        EITHER,
        """
        <start> {hero} was walking {in_place} when {he} heard a [tiny|faint|thin]
        [cry|voice|sound]. [<detour>|] {He} [looked around|bent down|pushed the grass
        aside]. There was {a_thing}, [caught in a spider web|stuck in the mud|tangled in a
        piece of string|lying on its back|trapped under a fallen branch]. [It looked at
        {him} with frightened eyes.|It was too tired to move.]

        {hero} whispers "[Don't be afraid|Hold still|I will help you]. I won't hurt you."
        [Very gently|With great care|With the tip of a leaf], {he} [set it free|lifted it
        up|untangled it]. {friend}, who had come after {him}, said, "[Why do you bother? It
        is only a {thing}." {hero} replies "Small ones want to live, too."|It is so small,
        it can never thank you." {hero} replies "It does not have to."] [They gave it a few
        drops of water|They put it in the sun|They made it a bed of moss], and after a while
        it [went on its way|was gone].

        [Some weeks later|When autumn came|Not long after], {hero} was the one in trouble.
        {He} [had lost {his} way in the fog|had gone too far into the forest|could not find
        the path in the dark]. [Nobody was there to help.|It was getting late.] Then
        something touched {his} [nose|shoulder|knee]. It was the same {thing}! [It moved on
        ahead of {him}, stopped, and waited.|It turned around once and moved off.] {Hero}
        followed, and [a few steps later|around the next bend] {he} saw [the lights of
        home|the right path|the old bridge, which {he} knew well]. {hero} laughs "So it was
        you! Thank you, little one."

        <moral_kind> [<evening>|]
        """,
        draws={"thing": "creature", "place": "outdoor"},
    ),
    Plot(
        "noises in the night",
        EITHER,
        """
        <start> {hero} moved into a [room|corner|bed] of {his} own. In the daytime that was
        wonderful. But when night came, [it was very dark|the shadows grew long|everything
        looked different]. {Hero} lay under the blanket and listened.

        [Scratch, scratch.|Tap, tap, tap.|Click, clack.|Creak.|Rustle, rustle.] What was
        that? <scared> [Something long and thin moved on the wall.|Two round eyes seemed to
        look in.|A dark shape stood beside the door.] {hero} cries "{parent}!" [{parent}
        came with a [candle|lamp].|{parent} came at once.] {parent} says "[Let's look
        together|A noise always belongs to someone]. Come, we will [find out who it is|go
        and say hello]." {Hero} held {parent_his} {hand} very tightly.

        [It was a branch that tapped on the window. [The wind was moving it up and down.|It
        looked as if it were waving.] {hero} laughs "It only wants to come in because it is
        cold!"|It was an owl with [round eyes|fluffy feathers], sitting outside with two
        babies. {parent} whispers "[It is singing a lullaby|They are awake because it is
        their morning]."|It was a hedgehog who was [eating the apple peels|pushing an empty
        bowl around]. It sneezed, and {hero} had to giggle.|It was only {his} [coat|hat and
        scarf] on a hook and the old boards, which creak when they get cold. {hero} says
        "You silly coat, you scared me."|It was a little mouse that had [found a walnut|lost
        its way]. It was much more frightened than {hero}.]

        {hero} whispers "Good night, [noise|you out there]." <soon> {he} was asleep. [The
        next night, {he} listened for it and was almost sorry when it was quiet.|]
        <moral_brave>
        """,
        weather="any",
    ),
    Plot(
        "the forgotten birthday",
        EITHER,
        """
        <start> {hero} woke up and remembered: it was {his} birthday! [<excited>|] {He}
        [jumped up|washed behind {his} ears|combed {his} hair] and ran to find {parent}. But
        {parent} only said, "[Good morning.|Did you sleep well?] I have a lot to do today."
        [Not a word about the birthday!|That was all.]

        {Hero} went to {friend}. {friend} says "[I can't play now|Sorry, I am busy], maybe
        tomorrow." {He} went to {elder}. {Elder} [was not at home|closed the door
        quickly|was tying up a parcel and hid it behind {elder_his} back]. [<sad>|{hero}
        sighs "Everybody has forgotten me."] {He} walked [around the pond|up and down|to the
        old oak] alone and [kicked a pine cone|threw pebbles into the water].

        When it grew dark, {he} went home. The {home} was dark, too. {He} opened the door.
        [Suddenly there were lights everywhere!|And then a hundred little lights went on!]
        "Surprise!" [they all shouted|everyone cried]. There was {parent}, there was
        {friend}, there was {elder}, and in the middle stood [a cake with candles|a mountain
        of {food}|a cake in the shape of a [star|fish|heart]]. {friend} laughs "[We almost
        could not keep the secret!|You should have seen your face!|Did you really think we
        forgot?]" [{elder} gave {him} {a_thing}. "I finished it only an hour ago,"
        {elder_he} said.|From {friend}, {he} got {a_thing}, wrapped in
        [leaves|newspaper|silver paper].] They [danced|sang|played games] until [the stars
        came out|the candles burned down|nobody could stand any more].

        <happy> [{hero} whispers "This is the best birthday ever."|<end>|<evening>]
        """,
        draws={"thing": "present"},
        weather="any",
    ),
    Plot(
        "the map",
        EITHER,
        """
        <start> {hero} found a piece of paper [in an old boot|under a loose board|in a
        hollow tree|between two stones]. It was a map! There was a dotted line, a [drawing
        of a tower|crooked tree], and a big red cross. {hero} cries "[Treasure|Come and
        see]!" <excited> And [a minute|an instant] later, {friend} stood beside {him}, with
        a spade.

        They followed the line. [Thirty|Forty|Twenty] steps to the [well|big rock], then
        left at the [crooked tree|broken fence], then [through the tall grass|along the
        ditch|over the hill]. <detour> [Once they had to turn around, because they held the
        map upside down.|The last part was [torn off|eaten by mice], so they had to
        guess.|It was hot, and they shared their last [apple|drop of water].] At the place
        with the cross they began to dig. They dug until [it got dark|their backs hurt|they
        were as dirty as moles]. [Clonk!|Thunk!] There was a [box|chest|clay pot].

        [It was full of [buttons|shells|marbles] and an old letter: "We were best friends
        and this was all we had. Now it is yours." {friend} asks "Is that all?" {hero} read
        it again. {he} says "No. [I think it is the best treasure|It is even better than
        gold]." And they put in {a_thing} of their own and buried it again.|In it lay
        nothing but a second map! {friend} groaned. But {hero} was already looking for the
        next cross. They searched all day, from map to map, and the last one led straight to
        {elder}'s door, where [a cake|a kettle of cocoa] was waiting. {elder} laughs "I
        thought you would never come!"|It held a bundle of dry seeds. They did not know what
        they were, so they planted them. In spring, the whole hill was covered with
        <flowers>, and everybody came to see.|Inside there was [a music box|a brass bell|a
        spyglass], [green with age|full of dust]. They cleaned it, and it still worked.
        {elder} stared at it. {elder_he} whispers "I buried that when I was your age."]

        [<happy>|{hero} laughs "What a day for adventurers!"|A good friend is worth more
        than gold.] [<evening>|<end>|]
        """,
        draws={"thing": "small"},
    ),
    Plot(
        "the picnic",
        EITHER,
        """
        <start> {hero} and {friend} packed a basket for a picnic. They put in [bread and
        cheese|<number> boiled eggs|a jar of honey|cucumber sandwiches], [a bunch of
        grapes|a bottle of juice|a bag of nuts|<fruit>] and {a_thing}. Then they walked to
        {place}. <detour>

        They spread out the blanket, and {friend} opened the basket. [It was empty! There
        was a hole in the bottom, and everything had fallen out along the way. [{friend}
        looked as if {friend_he} would cry.|<sad>] {hero} says "[Then we will go back and
        pick it up|Let's follow the crumbs]." But behind them came a long parade: [ants with
        crumbs|sparrows with grapes|two squirrels with nuts|a duck with a sandwich]! They
        had eaten nearly everything and looked very pleased.|The first drop fell. Then the
        second. Then it poured! {friend} cries "<oh_no>!" They crawled [under the
        blanket|under a big tree|into a hay barn] and ate there, [knee to knee|with wet
        noses]. The rain made a curtain all around them. {hero} whispers "[It is like a
        secret room|This is the best table in the world]."|They had forgotten {elder}'s
        advice and sat down right on top of an ant hill. {hero} jumped up as if the ground
        were hot. They hopped around and shook their arms and legs, and anyone who saw it
        thought it was a dance. {friend} laughs "We should call it the ant polka!"|A goat
        came along. It was a very polite goat. First it ate the napkins. Then it ate the
        flowers. Then it looked at the {thing}. {hero} cries "[Shoo|That is ours]!" But the
        goat looked so hopeful that they broke the {thing} into three parts.]

        [In the end, they shared the {thing}.|Never had {a_thing} tasted so good.|On the way
        home, they laughed about it again and again.] {friend} says "[Let us do it again
        tomorrow|Next time, I will carry the basket]." [<end>|<happy>|<moral_share>]
        """,
        draws={"thing": "treat", "place": "outdoor"},
    ),
    Plot(
        "the music nobody wanted",
        EITHER,
        """
        <start> {hero} got {a_thing}. {He} played it in the morning, {he} played it at noon,
        and {he} played it at night. It sounded like [a goose with a cold|a rusty gate|a cat
        in a bucket]. [The milk turned sour.|The neighbors closed their windows.|Birds fell
        silent.] {neighbor} cries "[Stop that noise|Please, my poor ears]!"

        <sad> {Hero} took the {thing} and went far away, [to the top of the hill|to the old
        mill|deep into the woods]. There {he} could practice [without bothering anyone|as
        loudly as {he} liked]. [Every day {he} got a tiny bit better.|{friend} went with
        {him} and put moss in both ears.|Only the [sheep|cows|crows] listened, and they did
        not complain.] [Weeks passed.|The leaves fell, and the buds came.]

        [Then, one foggy evening, {friend} did not come home. Everyone searched and called,
        but the fog swallowed their voices. {hero} climbed the hill and played, long and
        loud. And {friend}, who had lost the path, followed the sound, step by step, until
        {friend_he} stood at the foot of the hill. {friend} says "I would know that {thing}
        anywhere."|Then came the day of the great feast. The musicians were stuck in the mud
        with their wagon, and there was no music. {friend} pushed {hero} forward. {His}
        knees shook, but {he} played. First one foot tapped. Then ten. Then everybody
        danced!|One evening, the wind carried a tune down into the valley. People came out
        of their doors. {neighbor} asks "Who plays so beautifully?" They followed the sound
        and found {hero}. {neighbor} [blushed|took off {neighbor_his} hat]. {neighbor} says
        "Would you come and play at our house?"]

        <ever_after> nobody closed a window when {hero} played. [Some even opened
        theirs.|<proud>|] <moral_try>
        """,
        draws={"thing": "instrument"},
    ),
    Plot(
        "the voice in the hills",
        EITHER,
        """
        <start> {hero} climbed up [into the mountains|to the old quarry|to the big cave] for
        the first time. [<detour>|<sky>|] When {he} reached the top, {he} was so glad that
        {he} shouted, "Hello!" And somebody shouted back, "Hello!"

        {hero} [looked around|turned in a circle], but there was nobody. {he} cries "Who are
        you?" "Are you?" said the voice. {hero} cries "Stop that!" "Stop that!" [it replied
        rudely|it answered, and it sounded angry]. [Now {hero} got angry as well and
        shouted, "Bad voice!" "Bad voice!" came the answer.|{hero} stuck out {his} tongue.
        {He} shouted, "Go away!" "Go away!" it roared back.] <scared> {He} ran all the way
        home.

        {hero} says "[There is a nasty fellow up there|Somebody in the hills does not like
        me]." {elder} [smiled|stirred the soup and smiled]. {elder_he} asks "And what did
        you say first?" {hero} [told it all|thought about it and turned red]. {elder} says
        "Go up once more, and [say something kind|speak as you would to a friend]." So
        {hero} went back the next day with {friend}. {His} heart was pounding. {He} called,
        "I like you!" And from all sides, the hills called back, "Like you, like you, like
        you!"

        {friend} laughs "[It is an echo|It is only your own voice, coming home]!" [They sang
        to it, and it sang along, always a little late.|They taught it <number> songs and a
        joke.] {elder} was right: [as you call into the woods, so it calls back|the world
        often answers in the tone in which you ask]. [<happy>|<end>|<evening>]
        """,
    ),
    Plot(
        "the quarrel",
        EITHER,
        """
        {Hero} and {friend} were the best friends [you can imagine|under the sun|far and
        wide]. They did everything together: they [swam|climbed trees|caught
        snowflakes|built huts], they [sang|told jokes|picked <fruit>], and they shared
        {a_thing}. <lead> they both wanted it [at the same time|for the whole day].

        {hero} cries "[I had it first|It is my turn]!" {friend} cries "[No, it is mine|You
        always have it]!" {Hero} pulled on one side, {friend} pulled on the other, and
        [rip|crack|snap], [the {thing} broke|the {thing} fell into the mud]. Both of them
        stood there. {friend} says "[This is your fault|I don't want to see you any more]."
        And they went home, one to the left and one to the right.

        {Hero} [played alone|went to {place} alone]. {He} [told a joke, but there was nobody
        to laugh|threw a stone into the water, but nobody counted the rings|found the
        biggest [feather|shell|mushroom], and had nobody to show it to]. <sad> {elder} asks
        "Where is your friend?" {hero} [shrugged|did not answer]. {elder} says "[A quarrel
        is like a stone in your shoe. You can carry it, or you can take it out|The one who
        says sorry first is the stronger one]."

        [So {hero} [mended the {thing}|washed the {thing}|wrapped the {thing} in leaves] and
        carried it to {friend}'s door. But the door opened before {he} could knock. There
        stood {friend}, with [a pot of glue|a bunch of <flowers>|red eyes]. They both said,
        "<sorry>," at the very same moment. Then they laughed.|So {hero} went over. Halfway
        there, {he} met {friend}, who was coming the other way. {hero} says "<sorry>. [You
        can have it today|I missed you]." {friend} replies "I missed you more."] [Now they
        take turns: on even days {hero}, on odd days {friend}, and on Sundays both.|They
        mended the {thing} together, and it had a scar, and they liked it even better.]
        <moral_friend>
        """,
        draws={"thing": "toy", "place": "outdoor"},
    ),
    Plot(
        "lost in the fog",
        EITHER,
        """
        <start> {hero} went to look for [mushrooms|nuts|fir cones|firewood] with a basket.
        {parent} says "[Stay on the path|Be back before dark]." At first {he} did. But the
        best ones always grew [a little farther on|behind the next tree|just around the
        bend]. One more, and one more, and then {hero} looked up. [Fog had crept in between
        the trees.|It was getting dark.|Everything looked the same.] Where was the path?

        <scared> {He} called, but only [an owl|the echo|the wind] answered. [{He} walked,
        and after a while {he} came to {his} own footprints. {He} had gone in a circle!|{He}
        ran to the left and landed in a [thorn bush|bog].] {hero} says "Stop. [Running makes
        it worse|Think first]. What would {elder} do?"

        [{He} listened. Very softly, there was the sound of water. {hero} says "The brook!
        It runs past our {home}." {He} followed it, stone by stone, and it
        [chattered|talked] to {him} all the way.|{He} sniffed. There was smoke in the air,
        and the smell of <supper>. {He} followed {his} nose, and the smell got stronger and
        stronger.|{He} looked for moss, because {elder} had said it grows on the side where
        the cold wind comes from. Tree by tree, {he} found the way.|Then an owl flew over
        {him}, sat down on a branch and waited. When {hero} came closer, it flew on to the
        next one. It knew the way.|Then {he} remembered the nutshells. {He} had eaten nuts
        all the way and dropped the shells! {hero} found one, then the next, like beads on a
        string.] [Once {he} stumbled, but {he} got up again.|]

        And there, [between the last trees|at the edge of the wood], was {parent} with a
        lantern. {parent_he} cries "There you are!" {hero} says "[I left the path|<sorry>, I
        did not listen]. But I found my way." [They held on to each other all the way
        home.|{parent} did not scold at all; {parent_he} was much too happy.]
        [<moral_careful>|<evening>|<end>]
        """,
        weather="fog",
    ),
    Plot(
        "building together",
        EITHER,
        """
        <start> {hero}, {friend} and [a few others|some friends] wanted to build a [tree
        house|hut|raft|secret den]. {hero} says "I will make the plan." {friend} says "[No,
        I will|I know better how]." Everyone [talked at once|wanted to be the boss]. In the
        end, each of them built something alone.

        {hero}'s [wall|part] was straight, but it had no [door|roof]. {friend}'s [part|roof]
        was pretty, but it stood on nothing. [A third one had collected all the nails and
        sat on them.|Somebody had used up all the rope for one knot.] Then [the wind came,
        just a small wind|a bird sat down on it], and [crash|rumble, rumble, bump],
        everything fell into one big heap. They looked at each other. <sad>

        [{elder} came by and looked at the heap. {elder_he} says "[I see good boards|I see
        three halves of a house]. What I don't see is a team." And {elder_he} went
        on.|{hero} [picked up a board|was the first to speak]. {he} says "[Your roof is
        better than mine|I can't do it alone]. Will you help me?"] So they started again.
        {hero} [measured|drew the plan], {friend} [tied the knots|hammered], the strong ones
        carried, and the small ones [held the nails|tested whether one could sit in it].
        [They sang while they worked.|They worked until supper and all the next day.] [Once
        it rained, and they found <number> holes, and fixed every one.|]

        <at_last> it was finished. [It had a window toward the sunset.|There was a sign on
        it: "Everyone may come in."|It leaned a little to the left, but it held.] [They all
        squeezed in at once and [ate {food}|told ghost stories].|The first guest was
        {elder}, and {elder_he} brought [a lantern|a rug|a pot of jam].] {friend} says "[It
        would have been nothing without you|Look what we made]." {hero} replies "[It would
        have been nothing without all of us|And it is still standing]!" <moral_help>
        """,
    ),
    Plot(
        "fireflies",
        EITHER,
        """
        <start> {hero} and {friend} were allowed to stay out late. It was so warm that even
        the evening did not get cool. [Crickets chirped.|The first stars came out.] Then a
        tiny light went on in the grass, and another one. {friend} whispers
        "[Fireflies|Look, they are coming]!" Soon the whole [meadow|garden] was twinkling.

        {Hero} fetched [a glass jar|a jam jar]. [One, two, ten, twenty|Carefully, one by
        one], {he} caught them. {hero} says "[Now I have a lamp that never goes out|Now the
        stars belong to me]." {He} put the jar beside {his} bed and [watched it glow|could
        read by its light]. But [after a while, the lights grew weak|the lights went out,
        one after the other]. The fireflies sat on the bottom and [did not move|did not
        shine any more]. {hero} worries "[What is wrong with them|Are they ill]?"

        [{elder} looked in. {elder_he} says "[Light is like a song. It needs room.|Would you
        like to live in a jar?]"|{He} remembered how {he} had once been [locked in the
        shed|stuck in a barrel], and how dark and small it had been.|Outside, in the dark,
        {he} saw other fireflies. They blinked at the window, as if they were looking for
        someone.] <sad> Then {hero} [took the jar outside|opened the window] and took off
        the lid. For a moment, nothing happened. Then one of them [climbed to the
        rim|stretched its wings], and off it flew. The others followed, [like sparks from a
        fire|in a golden spiral].

        {friend} asks "Are you sad?" {hero} replies "[No. Now I have the whole meadow|No,
        they shine more brightly out here]." They lay in the grass until they were called
        in. [One firefly sat down on {his} nose and shone, just for {him}.|The meadow and
        the sky looked exactly the same.] [<happy>|<evening>|Some things are most beautiful
        when you don't hold them.]
        """,
        weather="hot",
    ),
    Plot(
        "hiccups",
        EITHER,
        """
        <start> {hero} woke up with the hiccups. Hic! {He} wanted to say good morning, but
        all that came out was, "Good, hic, morning." [At breakfast, the milk jumped out of
        {his} cup.|At every hic, {he} hopped a little into the air.] {hero} sighs "[This has
        to, hic, stop|I can't, hic, talk like this]."

        {parent} says "[Hold your breath and count to twenty|Drink some water, very
        slowly]." {Hero} tried. [{He} got as far as nineteen. Hic!|{He} turned as red as a
        beet. Hic!] {friend} says "[Stand on your head|Hop on one leg and sing]." {Hero}
        [fell over|sang the whole song]. Hic! {neighbor} knew [an old cure: an onion on the
        nose|something better: three spoons of vinegar]. It was awful, and it did not help.
        [Everybody came with ideas.|Soon there was a long line at the door, and everyone had
        a different cure.] {friend} jumped out from behind [a tree|a door] and shouted,
        "Boo!" {hero} only said, "[I saw you, hic|That was not, hic, scary]."

        [Then a bee landed on {hero}'s nose. {He} stood very, very still. {He} did not even
        breathe. The bee looked at {him}, cleaned its legs, and flew away. Everyone waited.
        Nothing. The hiccups were gone!|At last {elder} asked, "Who ate all the <fruit>?"
        {hero} was so surprised that {he} forgot to hiccup. {elder} laughs "There, gone! An
        honest question often helps."|{hero} began to laugh, because everything was so
        silly. {He} laughed until {he} cried, and {friend} laughed, and the whole line
        laughed. And when they stopped, it was quiet. No hic!|So {hero} gave up and took a
        nap. When {he} woke up, the hiccups had left without saying goodbye.]

        {hero} cries "<hooray>! They are gone!" [There was a small silence. Then {friend}
        went, "Hic!"|Everybody cheered. "Hic!" said {neighbor}.|{friend} opened {friend_his}
        mouth to cheer. What came out was a very loud "Hic!"] [And so it all began
        again.|<end>|]
        """,
        weather="any",
    ),
    Plot(
        "the stone soup",
        EITHER,
        """
        <start> a stranger with a big pot came [over the hill|down the road|out of the
        woods]. It was <stranger> with [a patched coat|a walking stick|a crooked hat]. The
        stranger knocked at each door and asked for something to eat. But it had been a bad
        year. {neighbor} says "[I have nothing but one old onion|I have only a handful of
        beans]." And [the others|the rest] said much the same.

        "Then I will make soup out of a stone," said the stranger, and put the pot over a
        fire. {hero} [came closer|could not believe it]. {he} asks "Out of a stone?" "A very
        good stone," said the stranger, stirring. "It only tastes a bit thin. [If one had an
        onion|If only there were a carrot]..." {Hero} ran home and [fetched three
        carrots|came back with a cabbage]. [{neighbor} brought the onion after all.|{friend}
        found a potato in {friend_his} pocket.] Somebody came with [salt|a bunch of herbs],
        somebody else with [beans|a turnip|a piece of butter|mushrooms]. The pot
        [bubbled|began to sing], and a wonderful smell drifted from door to door.

        [Soon the whole neighborhood sat around the fire.|Everyone brought a bowl and a
        spoon and a stool.] {friend} says "[This is the best soup I ever ate|And all of it
        from a stone]!" They ate and told stories until [the moon came up|the fire was only
        a red glow]. {elder} [played a tune|told the tale of the flood], and people who had
        not spoken for years [sat side by side|laughed together].

        In the morning, the stranger was gone. But the stone lay [on the well|in the middle
        of the square], round and clean. {hero} [picked it up and turned it over|looked at
        it for a long time]. {he} says "[It is only a stone|It was not the stone at all]."
        {elder} [winked|nodded]. {elder_he} replies "[Sometimes that is all you need|No. It
        was all of us]." [<moral_share>|<ever_after> they cooked together every
        [Sunday|month], always with the stone.]
        """,
        weather="any",
    ),
    Plot(
        "something borrowed",
        EITHER,
        """
        <start> {hero} needed {a_thing}, because {he} wanted to [dig a pond|fix the
        roof|bring in the harvest|clear the path]. So {he} went to {neighbor}. {neighbor}
        says "[You may have mine|Take it], but bring it back [tomorrow|before Sunday]."
        {hero} replies "[I promise|Of course]!"

        The work went well. But when it was done, {hero} [left the {thing} in the
        grass|forgot all about it|was too tired to take it back]. [It rained, and rained
        again.|One week passed, and then another.] When {he} saw it again, [it was covered
        with mud, and a part had come off|it was cracked|a family of snails lived on it].
        {hero} worries "<oh_no>! [I promised!|What have I done?]" For a moment {he} thought
        of [saying that it was stolen|hiding it in the bushes].

        But {he} [sat down and cleaned it|carried it home and looked at it from all sides].
        {friend} came by and helped. {friend} [found a new screw|brought some oil|held it
        while {hero} worked]. They [scrubbed|rubbed] and [polished|painted] until it [shone
        in the sun|looked better than before]. {hero} carved a small [star|flower|bird] into
        the handle. Then {he} walked to {neighbor}'s door, very slowly. {hero} says
        "<sorry>. I kept it too long, and I left it in the rain."

        {Neighbor} [turned the {thing} around in silence|put on {neighbor_his} glasses].
        [Then a smile came.|It seemed to take forever.] {neighbor} says "[This was my
        grandfather's, and it never looked so fine|It came back late, but it came back
        better]. [Next time, you can borrow my ladder, too|Come in and have some {food}]."
        [<happy>|<moral_honest>] [<ever_after> {hero} always brought things back the same
        day.|]
        """,
        draws={"thing": "tool"},
    ),
    Plot(
        "helping the old one",
        EITHER,
        """
        <start> {hero} saw that there was no smoke from {elder}'s chimney. That was strange.
        [{He} told {friend}, and they went to look.|{He} put on {his} coat and went over.]
        {elder} was sitting in a chair with a blanket. {elder_he} says "[My back hurts so
        much that I cannot carry wood|My bones are as stiff as sticks today]. [It will
        pass|Don't worry about me]."

        {hero} says "[Then I will do it|You just sit there]." {He} [carried in wood, one log
        at a time|fetched water from the well|swept the floor|cooked a soup that was a bit
        too salty]. It was hard work. [{friend} came and helped.|{His} {feet} ached, but
        {he} went on.] {He} came the next day, too, and the day after, [in the rain|through
        the wind]. [{friend} asks "Why do you go there every day? You could be playing."
        {hero} had to think. {he} replies "I like the stories."|The others played outside,
        and {hero} heard them laughing. Sometimes it was not easy.]

        Because while {he} worked, {elder} told stories: about [the winter when the river
        froze|a whale as big as a hill|the year of the flood|the two brothers and the moon],
        about [ships|wolves who could dance|an island that moved]. [{hero} laughed until
        {he} dropped the broom.|{hero} forgot to stir the soup.] By the time the [snowdrops
        bloomed|swallows came back], {elder} could walk again.

        {elder} says "I have something for you." It was {a_thing}. {elder} says "[It was
        mine when I was small|My mother gave it to me]. It belongs to somebody with a good
        heart." <happy> [But the best present of all was a head full of stories. {Hero} told
        them to everyone, and later to {his} own children.|And on the first warm day, they
        sat on the bench together, and this time {hero} told the story.]
        [<moral_kind>|<end>]
        """,
        draws={"thing": "small"},
        weather="any",
    ),
    Plot(
        "the race",
        EITHER,
        """
        <start> there was going to be a great race. {friend} was the fastest runner anyone
        knew, and {friend_he} [said so every day|never let anyone forget it]. {Hero} was
        [not very fast|rather slow], but {he} wanted to run anyway. {friend} laughs "Against
        me? [You will still be running at supper|A snail would beat you]!" [Some laughed,
        too.|{hero} said nothing and tied a knot in {his} scarf.]

        [Ready, steady, go!|The starting bell rang.] {Friend} shot off and was gone in a
        cloud of dust. {Hero} ran at {his} own pace, [not too fast, not too slow|one step
        after the other], past [the mill|the big oak], over [the bridge|the hill]. [{elder}
        stood by the road and gave {him} a sip of water.|{He} hummed a tune to keep the
        rhythm.] <soon> {he} came around a bend and saw {friend} [sitting on the ground with
        a twisted ankle|stuck in a muddy ditch|under a tree, fast asleep]. [The finish was
        so near! {hero} could win!|It was so quiet that {he} could hear the crowd.]

        [{hero} stopped. {he} asks "Can you walk? [Lean on me|Give me your {hand}]."
        {friend} replies "[But you could win!|Why do you stop?]" {hero} says "[It is no fun
        to win like this|A race comes every year, a friend does not]." And so they crossed
        the line together, the very last ones. And yet [the cheering was louder than for the
        winner|everyone stood up and clapped].|{hero} called, "Are you all right?" {friend}
        only [groaned|blinked] and waved {him} on. So {hero} ran on, sent help, and then, a
        few steps before the goal, looked back once more. And {he} won, by the length of a
        nose! Nobody could believe it, least of all {hero}.]

        In the evening, {friend} came with [a bunch of <flowers>|half of a cake]. {friend}
        says "<sorry>. [I talked too much|I was a show-off]. You are the [better
        runner|better friend]." [<proud>|<happy>] [{hero} laughs "Shall we practice
        together?"|Since then, they run side by side.|<moral_kind>]
        """,
    ),
    Plot(
        "afraid of the shadow",
        EITHER,
        """
        <start> {hero} noticed something for the first time. Somebody was following {him}!
        It was [long and thin|dark and flat], and it was right behind {him}. When {he} ran,
        it ran. When {he} stopped, it stopped. When {he} lifted one {foot}, [it did the
        same|it mocked {him}].

        {hero} cries "[Go away|Leave me alone]!" It did not go away. <scared> {He} [climbed
        over a wall|jumped across a ditch], but it came along [without any trouble|as if it
        were nothing]. {He} [threw an apple at it|offered it {food}], but it did not even
        blink. [{friend} asks "Who are you running from?" {hero} whispers "[From that|The
        dark one, down there]."|At last {he} ran into {elder}, who asked what was the
        matter.] [{friend} wanted to laugh, but did not.|]

        [{elder} says "Ah, that one! I have one, too. Look." And really, behind {elder}
        there was a second one, [with a hat|much bigger]. {elder_he} says "[It only means
        that the sun is shining on you|It is made of the light that you stop]."|{friend}
        says "[Watch|It can do tricks]." And {friend} held up both {hand}s and made [a
        bird|a rabbit|a barking dog] on the wall. {hero} stared. Then {he} tried, and made
        [a snail|a crocodile|something that was almost a swan].|A cloud moved in front of
        the sun, and it was gone. {hero} was glad. But then it was a bit lonely. When the
        sun came out, there it was again. {hero} says "[Hello|Oh, you came back]." {He}
        waved. It waved back.]

        <ever_after> they [danced|played tag|had races] together, and [nobody ever won|it
        was always a tie]. [At noon, it was short and fat and made {him} laugh, and in the
        evening it was as tall as a tree.|{hero} gave it a name, which only the two of them
        knew.] [<moral_brave>|<happy>|<end>]
        """,
        weather="sunny",
    ),
    Plot(
        "the promise to the tree",
        EITHER,
        """
        <start> a terrible thing was to happen: the old [oak|lime tree|apple tree|walnut
        tree] {in_place} was going to be cut down. {Hero} had [climbed it a hundred
        times|learned to walk under it|slept in its shade]. {neighbor} says "[It is dead|It
        has had no leaves for a year]. It takes away the light."

        {Hero} put {his} {hand} on the bark. [It was rough and warm.|Somewhere inside,
        something ticked.] {hero} whispers "[I don't believe it.|You are only asleep, aren't
        you?]" {He} ran to {neighbor}. {hero} says "[Please wait|Give it one more spring]. I
        will take care of it!" {Neighbor} [scratched {neighbor_his} head|grumbled, but
        nodded]. "Until [May|the cherry blossoms]. Not one day longer."

        All winter, {hero} [carried water|brought leaves to keep the roots warm|scraped off
        the brown fungus]. {friend} asks "[Why do you talk to a tree|Do you think it can
        hear you]?" {hero} replies "[Would you get better if nobody talked to you?|It can't
        hurt.]" [{friend} laughed, but helped.|The others shook their heads.] April came,
        and [there was not one bud|the branches were bare]. <sad> [On the last day of
        April|On the very last evening], {hero} sat at the foot of the tree and told it [a
        story|goodbye].

        Then [something fell on {his} nose. It was the tiny brown shell of a bud!|a bird
        landed on the highest branch, and where it landed there was a green spot.] {hero}
        cries "[It lives|Come, quick, come and see]!" There was one leaf, then ten. By
        [June|summer], there were thousands, and {neighbor} sat in the shade and [read the
        newspaper|drank lemonade]. {neighbor_he} says "[I was wrong|I am glad I waited]."
        [In autumn, its leaves were the most golden of all.|And when the wind blows through
        it, it sounds as if it said {hero}'s name.] [<moral_patient>|<happy>]
        """,
        draws={"place": "outdoor"},
        weather="mild",
    ),
)
