"""Plots about animals for the built-in stories.

What enters: nothing. What leaves: `ANIMAL_PLOTS`, in the language that `stories.py` explains.

>>> {plot.worlds for plot in ANIMAL_PLOTS}
{('animal',)}
"""

from tilth.corpus.story_plots import Plot

ANIMAL = ("animal",)

ANIMAL_PLOTS = (
    Plot(
        "the winter store",
        ANIMAL,
        """
        <start> the first cold wind blew, and all the animals gathered food. {Hero} gathered
        {food}, basket after basket. {friend} [played in the leaves|slept in the sun|chased
        feathers]. {hero} says "[Winter is coming|You should gather something, too]."
        {friend} laughs "[There is plenty of time|Tomorrow, tomorrow]!"

        Then the snow came. It fell for [three days|a whole week]. {Hero} [sat in {his} warm
        {home}|rolled up under a blanket of leaves] and had more than enough. [One evening,
        there was a knock, so soft that it might have been the wind.|In the middle of the
        night, {he} heard somebody sniffle outside.] It was {friend}, [thin and cold|with
        snow on both ears]. {friend} whispers "[I have nothing left|I should have listened].
        [May I warm my paws a little?|I am so hungry.]"

        [{Hero} could have said, "I told you so." But {he} opened the door wide.|For a
        moment, {hero} was angry. Then {he} saw how {friend} shivered.] They shared the
        {food}, [and the blanket as well|one for you and one for me]. [It was enough for
        two, but only just.|The store got smaller and smaller, and {hero} worried.] But the
        evenings were not long any more: {friend} knew a hundred [songs|riddles|stories
        about the summer], and the whole {home} was full of laughter. {hero} says "[I had
        food, but no songs|Last winter I was never cold, but I was bored]."

        When the snow melted, {friend} was the first one out. All [spring|summer], {friend}
        gathered [twice as much as anyone|from morning to night], and in autumn there was a
        huge pile in front of {hero}'s door. {friend} says "[Half of it is yours|That is for
        the winter]. And I have learned <number> new songs." [<moral_share>|<happy>|<end>]
        """,
        weather="autumn",
    ),
    Plot(
        "room for one more",
        ANIMAL,
        """
        <start> it began to rain, and {hero} ran under a big mushroom. It was just large
        enough for one. [Drops fell all around, plip, plop.|It was dry and cozy there.] Then
        an ant came by, all wet. "May I come in?" asked the ant. {hero} says "[It is a bit
        tight|There is hardly any room], but come in." So they [moved closer
        together|squeezed up].

        Then came a [butterfly|moth|beetle] with soaked wings. Then came a [frog|cricket]
        with a cough. "[Is there room for me|Just a tiny corner], please?" And each time,
        {hero} said, "[We will manage|Breathe in, everyone]." Last of all came {friend} the
        {friend_kind}, dripping from nose to tail. The ant cried, "[Now it is full|There is
        no room for anyone else]!" {friend} sighs "[I understand|Then I will sit in the
        rain]." {Hero} looked at {friend}, and {he} looked at the mushroom. <thinking>

        {hero} says "[Come in. If we all hold our breath, it works|Come. You in the middle,
        the small ones on top]!" They [pushed and pulled|climbed onto each other's
        shoulders]. A leg was here and an ear was there, and nobody knew whose it was. But
        [they were warm|all of them were under the roof]. [Somebody told a joke, and
        everyone shook so much that they nearly fell out.|Then a hungry stork came along and
        asked if anyone had seen a frog. "No frogs here," said twelve voices at once, and
        the stranger was so surprised to hear a talking mushroom that it ran away.|They sang
        a song about the rain, in four voices.] [<soon>|After an hour,] the rain stopped.

        They crawled out and looked. {friend} asks "How could we all fit under that little
        thing?" The mushroom was [twice as big as before|now as big as a table]! {elder}
        laughs "[Mushrooms grow in the rain.|Don't you know what rain does to mushrooms?]"
        And {hero} [thought that hearts do the same|smiled, because that was not the whole
        answer]. <moral_share>
        """,
        weather="rain",
    ),
    Plot(
        "the bird that would not fly",
        ANIMAL,
        """
        In a nest [high up in the beech|above the waterfall|on the church roof] lived a
        young [swallow|owl|starling|falcon] named {hero}. [{His} brothers and sisters flew
        around all day.|All the other young birds could fly already.] But {hero} stayed in
        the nest. {he} says "[It is so far down.|What if my wings don't work?]" {Parent}
        [did not push|brought {him} worms and waited].

        [From up there, {he} knew everything: who was late for dinner, where the <fruit>
        were ripe.|{He} knew each twig of the nest.] But {he} was often alone. [{His} friend
        {friend} the {friend_kind} called from below, "Come down and play!"|{Friend} the
        {friend_kind} climbed up to visit {him}, which took all morning.] {hero} sighs
        "[Tomorrow, perhaps|I am not ready yet]." {friend} says "[I can't fly at all|I would
        give my tail for wings like yours]."

        Then, one [stormy|windy|gray] day, {hero} saw from above that [the river was rising,
        and {friend} was asleep on the bank|{friend} was sitting on a piece of ice that had
        broken loose|a cart was rolling straight toward {friend}, who was looking the other
        way]. {He} called, but the wind was too loud. Nobody else was there. {hero} did not
        think. {He} jumped.

        For one moment {he} fell. Then {his} wings opened, all by themselves, and the air
        [carried {him}|was like a hand]. {He} swooped down and cried, "{friend}!
        [Run|Jump|Watch out]!" And {friend} jumped to safety just in time. They sat in the
        grass and panted. {friend} says "[You flew!|Do you know what you just did?]" {hero}
        looked up at the nest. [It was very high.|It looked very small.] {hero} says "[So I
        did|I forgot to be afraid]." [And in the evening, there was one more bird in the
        sky.|<proud>|] <moral_brave>
        """,
        weather="wind",
    ),
    Plot(
        "the duckling and the pond",
        ANIMAL,
        """
        <start> {hero} stood at the pond and watched {friend} the duckling, who had just
        learned to swim. {friend} cries "[Come in|The water is lovely]!" {hero} [put in one
        paw and pulled it out again|shook {his} head]. {hero} says "[I am a little afraid of
        deep water|I will watch from here]."

        So they met on the shore every day. {friend} told {him} about [the green world under
        the lilies|fish with golden tails], and {hero} told {friend_him} about [the tunnels
        under the hill|the tops of the trees]. {friend} sighs "[I wish I could show you|You
        should see it just once]." [<thinking>|] Then {hero} found [an old wooden bowl|a
        piece of bark as big as a door|a straw hat without a hole]. {he} asks "[Could that
        be a boat|Would that float]?"

        They [pushed it into the water|tied a string to it]. It rocked, and {hero} [held on
        with all four paws|shut both eyes]. {friend} took the string in {friend_his} beak
        and pulled. [Slowly, they glided out|And off they went, past the reeds], over the
        dark deep water. {hero} opened one eye. Below {him} [swam a school of silver
        fish|lay the clouds, upside down|grew a whole forest of weeds]. {hero} whispers "[It
        is like flying|You never told me it was this beautiful]."

        [On the way back, a wave tipped the boat, and splash, {hero} was in the water! {He}
        paddled with all {his} paws, and, what do you know, {he} did not sink. {friend}
        laughs "You are swimming!"|A frog hopped in, and then a second one, and the boat
        went down with a gurgle. But the water only came up to {his} chin.|In the middle of
        the pond, the string broke. {hero} used {his} tail as [an oar|a rudder], and they
        got home all the same.] [The next day, {hero} took {friend} along to see the hill
        from inside. It was only fair.|<ever_after> the pond was no longer a wall between
        them.] [<happy>|A good friend is worth more than gold.]
        """,
    ),
    Plot(
        "the moon in the well",
        ANIMAL,
        """
        <start> nothing special happened. But at night, {hero} looked into the
        [well|pond|rain barrel] and got a fright. The moon had fallen in! It lay at the
        bottom, [pale and round|trembling]. {hero} cries "[Help, everyone|Wake up, the moon
        is drowning]!" [Doors opened, and sleepy faces looked out.|All the animals came
        running.]

        {friend} says "[We need a rope|We have to fish it out]." They let down [a bucket|a
        basket|a net]. They pulled it up, full of moonlight, but when they looked, there was
        only water. [{neighbor} leaned over too far and nearly fell in.|They tried with a
        spoon, a hat and a fishing rod.] Then they made a chain: {friend} held {neighbor},
        {neighbor} held {hero}, and {hero} reached down, down, down. {His} paw touched the
        water. The moon [broke into a thousand pieces|shivered and fell apart]! {hero}
        worries "[I broke it!|What have I done?]" <sad>

        They all sat there in the dark and did not know what to say. [Then {elder} came with
        a stick and a yawn.|After a while, {elder} arrived, a little late, as always.]
        {elder} asks "What are you all looking for down there?" {hero} sighs "[I broke the
        moon|The moon is gone]." {Elder} did not answer. {Elder_he} only [pointed up with
        one toe|looked up]. And they all looked up. There it was, round and whole, between
        the branches.

        [For a while it was very quiet.|{friend} coughed.] {hero} laughs "[We pulled so hard
        that it flew back up|So we saved it]!" [And because nobody knew better, they gave a
        party.|Nobody dared to say anything else, and so it is told to this day.|{elder}
        [winked at the moon|only smiled], and some say the moon winked back.] When the water
        was calm again, [it was in there, too|there were two of them]. {friend} says "[One
        for the sky and one for us|Leave it in there. It likes to bathe]."
        [<end>|<evening>|]
        """,
    ),
    Plot(
        "the biggest of them",
        ANIMAL,
        """
        <start> a new animal moved in at the edge of the forest. It was [a moose|an elephant
        who had left the circus|a huge bison|a very large bear]. [The ground shook when it
        walked.|It was as big as a hill.] All the others hid. {friend} whispers "[It eats
        small animals for breakfast|I heard that it can crush a tree]." Nobody had ever
        talked to it.

        {Hero} was [curious|not so sure about that]. {He} [watched from behind a bush|crept
        closer day by day]. The big one [sat alone by the lake|sang to itself in a deep
        voice|picked one single daisy and smelled it]. And once {hero} saw a tear, as big as
        an apple. <thinking>

        So {he} [stepped out of the bushes|walked right up to one of the huge feet]. {His}
        voice was thin. {hero} asks "[Why are you crying|Would you like some {food}]?" The
        big one [jumped|was so startled that it sat down with a bump]. "A mouse! A snake!
        Oh, it is only you. [You gave me a fright|Please don't hurt me]," it said. {hero}
        [had to laugh|could not believe it]. {he} says "[You are afraid of me|But I am so
        small]!" "Everyone runs away from me," said the big one. "[I thought you were all
        angry with me|I don't even know why]."

        [{hero} climbed up on its back and called the others. One by one, they came
        out.|{hero} says "Come with me. I will tell them your name."] [From then on, the big
        one carried the little ones across the river, nine at a time.|In the next storm,
        they all sat under its belly and stayed dry.|When a tree fell across the path, the
        big one lifted it away like a straw, and everybody cheered.] {friend} says "[I was
        wrong|I should have asked first]." [One should never judge somebody by their
        shadow.|<happy>]
        """,
    ),
    Plot(
        "the honey thief",
        ANIMAL,
        """
        <start> {hero} smelled honey. It came from a hole in [a dead tree|an old stump|a
        cliff]. {friend} says "[Don't touch it|That belongs to the bees]!" But {hero} said,
        "[Only a drop|They will not notice]," and reached in with one paw. Mmm! One drop
        became two, and two became ten.

        And then {his} paw was stuck. {He} pulled. {He} twisted. [It was holding a big lump,
        and {he} did not want to let go.|The hole had become smaller, or {his} paw bigger.]
        Bzzz, it went from inside. [The bees were coming home.|One bee came out, then a
        hundred.] <scared> {friend} cries "Let go of the honey, then your paw will be thin
        enough!" {hero} sighs "[But it is so sweet|I can't]!" Bzzz! [Then {he} opened {his}
        paw and ran, straight into the pond. Only the tip of {his} nose stuck out.|At last
        {he} let go, and out came the paw, sticky and empty, and {hero} ran three times
        around the hill.]

        [The next day, {hero} came back. {He} stood at a polite distance and bowed. {hero}
        says "<sorry>. [I took something that was not mine.|May I make up for it?]" The
        queen of the bees buzzed for a while. "Our meadow is dry," it said, or so it
        seemed.|{elder} says "Bees are not mean. They are busy. What do they need most?"
        {hero} thought about that all night.] So {hero} and {friend} planted <flowers>, [a
        whole meadow full|as far as one could see], and watered them all spring. The bees
        had never had so many flowers so near.

        [At the end of summer, there was a little comb of honey on {his} doorstep, wrapped
        in a leaf.|In autumn, the bees let one drop fall into {his} open mouth, and then
        another, and one for {friend}.] {hero} says "[It tastes much better than the first
        one|This one is not sticky at all]." [<moral_share>|<moral_honest>|<end>]
        """,
        weather="sunny",
    ),
    Plot(
        "spring is late",
        ANIMAL,
        """
        {weather} It should have been spring long ago, but the snow would not go. In {his}
        {home}, {hero} the {kind} [counted the last of the {food}|looked out every morning].
        [{friend} had a cold.|Everyone was in a bad mood.] {hero} says "[Somebody has to go
        and look for spring|Maybe it has lost its way]." {elder} says "[Go south|Follow the
        brook], and take a warm scarf."

        So {hero} and {friend} the {friend_kind} set out. They walked [over the white
        hills|through the silent forest] for [a day|two days and a night]. [They asked the
        pine tree, but it only dropped snow on their heads.|They asked the wind, but it only
        whistled.|They asked a crow. It said, "Not here."] At night they [slept back to
        back|dug a hole in the snow]. {friend} sighs "[Perhaps there is no spring any
        more|My paws are frozen]." {hero} replies "[One more hill|Just a little farther]."

        Behind the last hill, they found [one small snowdrop|a single yellow flower|a tiny
        violet, half asleep]. {hero} whispers "[Are you the spring?|Here you are!]" [They
        did not pick it. They dug it up, with all its roots and earth, and carried it home,
        taking turns.|{hero} took one seed of it and held it in {his} paw, to keep it
        warm.|They breathed on the snow around it, and a little stream began to run. They
        followed the stream, and it followed them, all the way home.] [It was a long way
        back, but wherever they had walked, the snow had melted behind them.|And behind
        them, without a sound, came the first warm wind.]

        When they got home, [the icicles were dripping|the first bird was singing]. Everyone
        [ran out|threw off their scarves]. {friend} says "[Did we bring it|Was that us]?"
        {elder} [smiled|looked at the footprints, which were full of <flowers>]. {elder}
        replies "[Who else?|Sometimes spring only waits for someone to come and get it.]"
        [<proud>|<happy>| <end>]
        """,
        weather="snow",
    ),
    Plot(
        "the night watch",
        ANIMAL,
        """
        <start> {hero} heard the news: tonight it was {his} turn to keep watch while the
        others slept. It was {his} first time. {elder} says "[If something happens, ring the
        bell|Keep your eyes open and your ears up]." {hero} [sat down on the stump|stood as
        straight as a candle]. {he} says "[You can count on me|I won't even blink]!"

        The night was [long|very long and very quiet]. The moon [went behind a
        cloud|wandered from tree to tree]. {hero} [yawned|counted stars|pinched {himself}].
        Then [there was a howl|something glowed between the trees|a branch broke]. <scared>
        {He} rang the bell with all {his} might. Everyone [ran out|tumbled out of bed], with
        sticks and pots. But it was only [the wind in a hollow log|a rotten stump that glows
        in the dark|an old badger on the way home]. {neighbor} [grumbled|yawned], and they
        all went back to bed. [An hour later, {he} rang again, and it was only a falling
        star.|It happened again, because of a toad.] Now they were really cross. {friend}
        says "[Please, let us sleep|One more time, and I will hide the bell]."

        Then, just before dawn, {hero} smelled something. [Smoke!|It smelled of smoke.] {He}
        was not sure. [What if it was nothing again?|They would laugh at {him}.] {hero} held
        the bell and did not dare. Then {he} thought, "[Better to be laughed at than to be
        sorry|I would rather be wrong a third time]," and rang and rang. This time, it was
        real: [a spark had set the dry leaves on fire|the hay was burning]. They made a
        chain with buckets, from the brook to the fire, and [put it out|in no time it was
        out].

        Everyone stood there, [black with soot|wet and out of breath]. {neighbor} [cleared
        {neighbor_his} throat|took {his} paw]. {neighbor} says "[If you had not rung, we
        would have no roof|Ring as often as you like]." [And they let {him} sleep until
        noon.|<proud>] [<moral_brave>|<end>]
        """,
        weather="mild",
    ),
    Plot(
        "the too small shell",
        ANIMAL,
        """
        At the bottom of the [bay|harbor|warm blue sea] lived a hermit crab named {hero}.
        {hero} [loved {his} shell|had lived in the same shell since {he} was tiny]. It was
        [striped|pink|as white as milk], and {he} knew every corner of it. But {hero} grew.
        [First it pinched a little.|{He} could no longer turn around in it.] Then, one
        morning, {he} could not get in at all.

        {hero} sighs "[I don't want another one|It has always been my home]." "[Everyone
        grows|Come, we will look for a bigger one]," said {friend} the snail. So they
        [crawled over the sand|asked around]. There was [a tin can, but it echoed|a bottle,
        but everyone could look in|a shoe, but it smelled]. There was [a big golden shell,
        but somebody with large claws already lived in it|a lovely green shell, but it had a
        hole]. And all the time {hero} was without a house, [soft and naked|and every shadow
        made {him} jump]. A [big fish|hungry gull] came nearer and nearer. <scared>

        [{friend} cries "Quick, under here!" And they squeezed under {friend}'s own little
        house, until the danger was gone.|{hero} hid under a leaf of seaweed and did not
        move a leg.] When they looked up, they saw that the [seaweed|sand] had hidden
        something. It was a shell, [brown and plain|covered with weeds]. [It was not
        beautiful.|It looked like nothing.] {hero} tried it, first one leg, then the rest.
        It was [cool and quiet inside|round and smooth], and there was room to grow. {hero}
        whispers "[It hums|It fits]."

        {friend} helped {him} [plant a red sea flower on top|polish it with sand]. And the
        old shell? A tiny crab came by, [no bigger than a pea|so small one could hardly see
        it], and looked at it with shining eyes. {hero} says "[Take it|It is yours]. It is
        [a bit tight at the window, but very cozy|the best shell in the sea]." [Then {he}
        moved on and did not look back, or only once.|And {hero} was glad that somebody
        loved it.] [<moral_share>|<end>|It is not easy to grow, but it is worth it.]
        """,
        weather="sunny",
    ),
    Plot(
        "the choir of frogs",
        ANIMAL,
        """
        At the pond lived a young frog named {hero}. Each evening, the frogs sang together,
        and it sounded like [a hundred bells|deep drums]. But when {hero} opened {his}
        mouth, a [squeak|peep|whistle] came out, [high and thin|as thin as a hair]. The
        conductor, {elder}, [tapped with a reed|frowned]. {elder} says "[Who was
        that?|Somebody is squeaking.]"

        {Hero} [practiced under water|ate mud to get a deeper voice|tried with a pebble in
        {his} cheek]. It did not help. [The others giggled.|So {he} only moved {his} lips.]
        <sad> "[I like your voice|Your voice is like starlight]," said {friend} the
        dragonfly. {hero} sighs "[It does not fit in anywhere|Frogs must croak]."

        [Then came a night of thick fog. The little ones had gone too far out on the lake
        and could not find the shore. The big frogs called, but their deep voices came from
        everywhere and nowhere. {hero} jumped on the highest lily leaf and whistled. It cut
        through the fog like a needle. And there they came, one by one, straight toward the
        sound.|Then the great summer concert came. All the animals sat on the shore. In the
        middle of the song, the first singer lost {elder_his} voice. There was a terrible
        silence. {hero} did not think, {he} simply sang. High and clear, the tune rose up
        over the deep voices, like the moon over the hills. Even the owls stopped
        blinking.|One night, a nightingale landed in the willow. It listened, and then it
        answered {him}. They sang to each other until morning, and all the frogs sat there
        with open mouths.]

        [Nobody said a word.|The applause went around the pond <number> times.] Then {elder}
        [bowed|came over]. {elder_he} says "[We have many who can croak|I was deaf with both
        ears]. We have only one who can do that." <ever_after> there was a solo in every
        song. [<proud>|<happy>|One does not have to sound like all the others.]
        """,
        weather="hot",
    ),
    Plot(
        "the traveler",
        ANIMAL,
        """
        <start> {hero} wanted to see the world. {He} packed [a bundle|a tiny suitcase] with
        {food} and said goodbye to {friend}. [{friend} asks "How far is the world?" {hero}
        replies "I will know when I get there."|{friend} asks "When will you be back?"
        {hero} replies "When I have seen it all."] And {he} marched off, [past the last
        tree|over the bridge].

        {He} saw [a town with a thousand lights|a tower that touched the clouds|a road as
        wide as a river]. {He} saw [the sea, which never stopped moving|a ship with white
        sails|a field of yellow flowers up to the sky]. {He} slept [in a haystack|in a
        boot|under a bridge], and {he} met [a cat who could count|a rat who had been to
        China|a lame pigeon with good stories|a very old tortoise]. And everyone asked,
        "What are you looking for?" {hero} replies "[The most beautiful place in the world|I
        don't know yet]." [Each evening {he} wrote a letter to {friend} and gave it to the
        wind.|In each place {he} put a pebble into {his} bundle.]

        But [one night, when it rained, {he} thought of {his} {home}, and how the rain
        sounded there|one evening, {he} smelled clover, just like the clover at home].
        Something pulled at {his} heart. {hero} whispers "[I have seen so much, and nobody
        to tell it to|I wonder what {friend} is doing]." {He} turned around. [The way back
        was shorter than the way out.|{He} walked faster and faster, and the last part {he}
        ran.]

        There stood {friend} [at the old tree|at the gate], as if no time had passed.
        {friend_he} asks "And? [Did you find it, the most beautiful place|What was it
        like]?" {hero} looked at the [brook|little valley], the smoke above the {home}, the
        face of {his} friend. {hero} laughs "[Yes. Just now|I had to go all the way around
        to see it]." [They talked until the stars went out.|And {he} emptied {his} bundle,
        and there was a story for each pebble.] [<evening>|<end>|]
        """,
    ),
)
