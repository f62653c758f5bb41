"""Plots about children for the built-in stories.

What enters: nothing. What leaves: `CHILD_PLOTS`, in the language that `stories.py` explains.

>>> {plot.worlds for plot in CHILD_PLOTS}
{('child',)}
"""

from tilth.corpus.story_plots import Plot

CHILD = ("child",)

CHILD_PLOTS = (
    Plot(
        "the thing in the tree",
        CHILD,
        """
        <start> {hero} got {a_thing} [for {his} birthday|from {elder}|as a surprise].
        [<excited>|] It was the perfect day to try it out, so {he} ran [to the hill|to the
        park|to the field behind the house]. [{Friend} came along.|]

        [At first|For a while], it flew [beautifully|higher than the church tower|like a
        bird]. Then [a strong gust came|the wind turned|{hero} let go for one second], and
        the {thing} [sailed|went] straight into [a tall oak|a huge chestnut tree|the highest
        pine|an old apple tree]. It hung there and would not come down. {hero} cries
        "<oh_no>!" <sad>

        [{He} shook the trunk, but only [leaves|an acorn|a beetle] fell down.|{He} jumped
        and jumped, but the branch was too high.|{He} threw a stick, and now the stick was
        in the tree, too.] [{hero} wanted to climb up. {parent} says "No, that branch is too
        thin. [Let's think|Let's find another way]." They [fetched a long ladder|tied two
        broomsticks together|asked {neighbor}, who had a ladder], and with [a careful push|a
        little poke], the {thing} came loose.|A [squirrel|crow| woodpecker] [sat on the
        branch|lived in that tree] and looked down at {him}. {hero} asks "Could you help me,
        please?" Nobody knows whether it understood. But it [nibbled|tugged|pecked] at the
        twig, and [snap|crack], the {thing} floated down.|{neighbor} came by with a [fishing
        rod|garden hose|very long rake]. {neighbor_he} says "Stand back, please!" [One try,
        two tries|It took three tries], and down it came.|{hero} went home without it. But
        in the night the wind blew and blew, and in the morning the {thing} lay [on the
        doorstep|in the garden|under the tree], as good as new.]

        [It had a small [hole|tear], and {parent} mended it with [tape|a patch|a needle and
        thread].|Only one corner was bent.|] [<happy>|{hero} laughs "You are back!"]
        [<ever_after> {hero} [looked for trees first|flew it only in the open
        field].|<moral_help>|<evening>]
        """,
        draws={"thing": "flyer"},
        weather="wind",
    ),
    Plot(
        "learning something new",
        CHILD,
        """
        <start> {hero} made up {his} mind to learn to [[ride a bicycle|ride the old blue
        bicycle]. The first time, {he} rolled <number> feet and [fell into a hedge|landed in
        the grass|bumped into a bush]. The second time, {he} [hit the mailbox|rode in a
        circle|forgot to steer].|roller skate. {He} held on to [the fence|the
        wall|{parent}], but {his} feet went [one to the left, one to the right|forward
        without {him}], and plop, {he} sat on the ground.|swim. [The water was cold|The
        water went up {his} nose], and {he} sank [like a stone|like a spoon] every time {he}
        [lifted {his} feet|let go].|juggle. {He} threw up three [apples|socks|lemons], and
        [three|all three] came down on {his} head. [Plop, plop, plop!|The cat ran
        away.]|whistle. {He} blew and blew, but only [air|a wet hiss|a silly sound] came
        out. [Even the birds stopped to listen.|{parent} tried hard not to laugh.]|tie {his}
        shoes. The laces turned into [a knot|a bird's nest|spaghetti], and {he} [tripped
        over them|had to hop to the door].|skip rope. The rope got caught [on {his}
        heels|around {his} ears|in the bushes] each time.]

        [<sad>|{hero} sighs "I will never learn this."|{hero} cries "This is too hard!"]
        [{elder} sat down beside {him}. {elder} says "[Do you know how often I fell when I
        was small|Do you think I could do it on the first day]? A hundred times, at
        least."|{friend} says "<try_again>. It took me a whole summer."|{parent} says "You
        are learning, even when it looks like falling."] [So {hero} practiced [before
        breakfast|after school|every single day]. On Monday it was bad. On Tuesday it was
        less bad. On [Thursday|Friday], [something clicked|something was different].|{He}
        got up, [brushed off {his} knees|wiped {his} nose], and tried again. And again. And
        then once more.|{friend} showed {him} a trick: go slowly first, and count to four.
        {hero} counted and counted.]

        [And suddenly it worked!|<at_last> it happened: it worked!|Then, when {he} had
        almost stopped thinking about it, {he} did it!] {hero} cries "[Look, look!|Did you
        see that?|Watch me!]" [{parent} cheered so loudly that the pigeons flew up.|Everyone
        clapped.|{elder} [wiped away a tear|threw {elder_his} hat into the air].] [<proud>|]
        <moral_try>
        """,
    ),
    Plot(
        "baking",
        CHILD,
        """
        <start> {hero} and {elder} wanted to bake [a cake|a big cake|an apple cake|a
        chocolate cake|a lemon cake] for [{parent}'s birthday|the school fair|{neighbor},
        who was ill|Sunday]. They put on [aprons|white aprons|old shirts], washed their
        hands and lined up the flour, the [butter|milk], the eggs and the sugar.

        [{Hero} cracked an egg, and it ran down {his} sleeve.|{Hero} stirred so hard that
        flour snowed on the cat.|{Elder} read the recipe, and {hero} measured everything
        [twice|with great care].] But then [they saw that there was no [sugar|butter|milk]
        left. {hero} worries "[What now?|We can't bake without it!]" {elder} says "[Run over
        to {neighbor}|Ask next door]." {Neighbor} had some [and gave {him} a whole bag|in a
        blue jar], but {neighbor_he} wanted [to come along and help|a slice in return]. So
        now there were three bakers.|{hero} mixed up the salt and the sugar. {elder} tasted
        the dough and made a terrible face. {hero} sighs "I ruined it." {elder} replies
        "[Then we start again|We have flour enough for ten mistakes]." And this time {hero}
        tasted first.|{hero} and {elder} started a game of [cards|checkers] and forgot the
        time. A black cloud came out of the oven. The cake was burned! {hero} wanted to cry,
        but {elder} [cut off the dark part|scraped off the black crust]. Inside, it was
        golden and soft.|the dough grew and grew. It [crept over the edge of the bowl|lifted
        the lid|rolled onto the table]. {hero} cries "It is [alive|running away]!" They had
        used [far too much yeast|ten spoons of baking powder instead of one]. They laughed
        until their sides hurt, and baked [three|four] cakes instead of one.]

        <at_last> it stood on the table, a little crooked, with [<color> icing|<fruit> on
        top|a mountain of cream]. [{neighbor} said it was the best cake in the
        world.|{parent} took a second piece, and then a third.|Nobody minded that it leaned
        to one side.] {hero} laughs "[The secret is a pinch of luck|Next time we will bake a
        bigger one|I baked it myself, almost]!" [<proud>|<evening>|<moral_try>]
        """,
        weather="any",
    ),
    Plot(
        "a rainy day",
        CHILD,
        """
        <start> {hero} and {friend} wanted to [go to the playground|have a picnic|ride their
        bikes|play ball]. But it rained. They pressed their noses against the window.
        {friend} sighs "[This is the most boring day in the world|It will never stop|Our
        whole day is spoiled]."

        {Hero} looked around the room. In the corner stood [an empty box|two chairs and a
        blanket|a pile of cushions|a big laundry basket]. <idea> {hero} says "That is not
        [what you think|what it looks like]. That is [a ship|a castle|a rocket|a submarine|a
        train]!" [They painted portholes and flags on it.|They hung up a sheet and found two
        wooden spoons.|They put on pots for helmets.] [First they sailed to an island of
        [parrots|pillows], and a [shark|whale], who looked a bit like the cat, swam beside
        them.|They flew past the moon and waved at the [astronauts|moon cows], and {friend}
        drew a map of every star.|A dragon came, but the dragon was only
        [hungry|tired|lonely], and they gave it [tea|a cookie].|They dived down to the
        bottom of the sea and counted [pearls|octopuses] until supper.]

        [<suddenly> there was a crash, and the whole thing fell down on top of them. For a
        second it was quiet. Then they both began to laugh. {friend} says "We have been
        shipwrecked! Let's build a bigger one."|Then {parent} opened the door. {parent_he}
        asks "May I come aboard?" {hero} replies "Only if you bring
        [provisions|cookies|something to eat]." So {parent} came back with <supper>.|In the
        middle of it, the lights went out. {friend} [squeaked|grabbed {hero}'s arm]. But
        {hero} found a flashlight, and now they had [a lighthouse|the moon] as well.]

        When they looked out of the window again, [the sun was shining|the rain had
        stopped|there was a rainbow], but nobody [wanted to go outside|had noticed]. {hero}
        says "[I hope it rains again tomorrow|Rain is not so bad]." [<evening>|<end>|]
        """,
        weather="rain",
    ),
    Plot(
        "the new child",
        CHILD,
        """
        <start> there was a new {friend_kind} in {teacher}'s class. {Friend_his} name was
        {friend}, and {friend_he} [came from another country|had moved here from the
        mountains|had come with the circus|did not speak much]. At lunch, {friend} sat alone
        [by the wall|under the tree|at the last table].

        {Hero} [watched from far away|wanted to say something, but {he} was shy|looked over
        again and again]. Nobody knew what to say. {hero} remembered {his} own first day.
        [Nobody had talked to {him}, either.|{He} had cried in the cloakroom.] So {he} took
        [{his} sandwich|{his} apple|a deep breath] and walked over. {hero} asks "[May I sit
        here|Do you like {food}|Would you like half of mine]?" [{friend} only
        nodded.|{friend} whispers "Yes, please."|{friend} looked up, surprised.]

        [Then {hero} saw the drawings in {friend_his} notebook:
        [horses|ships|dragons|whales], [so real that they almost moved|page after page of
        them]. {hero} cries "Did you draw these? [They are amazing|Please show me how]!" And
        {friend} took out a pencil, and soon half of the class stood around the
        table.|{friend} did not know the game that the others played, so {hero} explained it
        with [stones|hands and feet|nuts]. And it turned out that nobody could
        [run|throw|jump|catch] like {friend}! Suddenly everyone wanted {friend_him} on their
        team.|{friend} taught {him} a word in {friend_his} language, and {hero} taught
        {friend_him} one in return: [friend|thank you|snow|lunch|apple]. They collected
        words all week, until they had [a hundred|a whole notebook full].|{friend} knew a
        [clapping game|magic trick|string trick] from home. {friend} showed it once, twice,
        three times, and then the whole class tried it, even {teacher}.]

        On the way home, they [walked side by side|found out that they lived on the same
        street|raced to the corner]. {friend} laughs "I was so afraid of today, [but now I
        am glad|and now I can't wait for tomorrow]." [<moral_kind>|<happy>|{hero} laughs
        "See you tomorrow!"]
        """,
    ),
    Plot(
        "the dog without a home",
        CHILD,
        """
        <start> a strange {pet_kind} sat in front of the [school|bakery|house|gate].
        {Pet_he} had [a <color> collar|muddy paws|one white ear|a torn ribbon around
        {pet_his} neck], but nobody was with {pet_him}. When {hero} came closer, {pet_he}
        {pet_sound} [once|softly|sadly].

        {hero} asks "[Are you lost|Where do you belong|Who are you]?" The {pet_kind} [put
        {pet_his} head on {his} knee|licked {his} hand|looked up with big eyes]. {hero} ran
        to {parent}. {hero} asks "Can we keep {pet_him}? [Please, please|I will feed
        {pet_him} every day]!" {parent} replies "[Someone may be looking for {pet_him}|Think
        how you would feel if {pet_he} were yours]. First we must find out."

        So they [painted signs and hung them on every tree|asked at every door in the
        street|went to the market and asked around]. [The baker did not know {pet_him}. The
        mailman did not know {pet_him}.| Everyone shook their heads.] [Days went by, and
        {hero} gave {pet_him} {pet_treat} each morning and began to hope. Then {neighbor}
        stood at the door. {neighbor_he} cries "{pet}! [There you are|I looked for you
        everywhere]!" The {pet_kind} [danced|jumped up and down] for joy. <sad> But
        {neighbor} said, "I am getting old, and {pet} loves to run. Would you [take
        {pet_him} for walks|visit us] every day?"|On the third day, a small [boy|girl] came
        around the corner, saw the {pet_kind} and burst into happy tears. {hero} felt sad
        and glad at the same time. A week later there was a basket at the door. In it slept
        a tiny [puppy|kitten], and on a card it said: "For the one who brought {pet}
        home."|Nobody came. After two weeks, {parent} said, "I think {pet_he} has chosen
        us." {hero} cries "[Really? Really|Oh, yes]!" They named {pet_him} {pet}, because
        that was the only name {pet_he} answered to.]

        [<happy>|] [<ever_after> the two of them were always seen together.|And {pet}
        {pet_sound}, which surely meant thank you.|It is not always easy to do the right
        thing, but {hero} was glad {he} had.]
        """,
    ),
    Plot(
        "the sand castle",
        CHILD,
        """
        <start> {hero} and {friend} went to the beach with {parent}. [The sea was blue and
        calm.|Gulls cried, and the waves went hush, hush.|The sand was so warm that they had
        to hop.] They began to build the biggest castle in the world. It had [four towers|a
        gate of driftwood|a wall with windows], [shells all around|a flag made of seaweed|a
        bridge made of sticks], and a moat.

        [Then the tide came in. One wave [licked at the wall|filled the moat]. The next one
        was bigger. {hero} cries "Stop, sea! [Go back|Not our castle]!" But the sea does not
        listen to children. [Swoosh!|Splash!] Half of the castle was gone. <sad> {friend}
        [had an idea|thought for a bit]. {friend_he} says "[The sea wants to play, too|We
        can build it again, farther up]. Let's dig a long canal." They dug, and now each
        wave [ran around the castle|brought them fresh water for the moat|carried a leaf
        boat to the gate].|Then a big dog ran along the beach and right through the middle.
        All the towers fell down. {hero} cries "[Oh no, our castle|A monster]!" The dog
        [wagged its tail|shook itself and made them both wet]. Its owner, {neighbor}, was
        very sorry. {neighbor} says "[I built houses all my life|I have a big shovel]. May I
        help you?" And with three it went much faster.|But they quarreled. {friend} wanted a
        [harbor|garden], {hero} wanted another tower. {friend} stamped off and built alone,
        and {hero} built alone, too. It was [quiet|lonely|dull]. After a while {hero}
        [looked over|went over]. {he} says "Your harbor needs a castle." {friend} replies
        "And your castle needs a harbor." So they dug a road between the two.]

        In the evening, the castle stood [golden in the last sun|shining in the sunset]. A
        [tiny crab|sandpiper|baby crab] walked in [through the gate|sideways] and [looked
        around like a king|sat down in the courtyard]. {hero} whispers "[It has a king
        now|Now somebody lives in it]." [<happy>|They rode home with sand [in their shoes|in
        their hair|between their toes].] [<end>|]
        """,
        weather="sunny",
    ),
    Plot(
        "the snowman",
        CHILD,
        """
        <start> everything was white. {Hero} [pulled on {his} boots|forgot {his}
        breakfast|put on two sweaters] and ran outside with {friend}. They rolled a big
        ball, a middle ball and a little ball, and put one on top of the other. It was a
        snowman! They gave it [buttons of coal|eyes of black stones|two sticks for arms] and
        [a broom|an old pot for a hat|{neighbor}'s old hat].

        But [it had no nose. [There were no carrots at home.|The carrot was nowhere to be
        found.] {hero} says "A snowman without a nose [can't smell the snow|looks sad]."
        They tried [a pine cone|a spoon], but it fell off. They tried [a potato|an icicle],
        and it looked very silly. Then a [rabbit|hare] came hopping by. In its mouth it had
        a carrot! It looked at the snowman, put the carrot down, and hopped away. {friend}
        whispers "[Did you see that?|Nobody will believe us.]"|{friend} was worried.
        {friend_he} says "It will be so lonely out here at night." So they built a second
        one [right beside it|holding its hand], and a small one, and a very small snow dog.
        By dark, a whole family stood in the garden, and not one of them looked lonely.|the
        sun came out, and the snowman began to drip. {hero} cries "It is melting!" They
        fanned it with [a newspaper|their hats] and [hung up a blanket for shade|put snow on
        its head]. It helped a little, but not much. {parent} says "A snowman never really
        goes away. [It becomes water, and then a cloud, and then snow again|It only
        travels]." {hero} waved. {he} cries "Come back next winter!"|somebody had taken the
        scarf overnight. {hero} found tracks in the snow, [very small ones|three toes each],
        and followed them to the hedge. There lay a [thin cat|small hedgehog|mother hare]
        with the scarf around it, fast asleep. {hero} whispers "[You need it more|Keep it]."
        And the snowman did not mind at all.]

        [When their noses were red and their mittens wet, they went in for [hot
        chocolate|warm milk|tea with honey].|{parent} called them in, and there was
        <supper>.] [<evening>|<happy>|<end>]
        """,
        weather="snow",
    ),
    Plot(
        "the page",
        CHILD,
        """
        <start> {hero} borrowed {a_thing} from the library. It was so [exciting|good|funny]
        that {he} read it [in bed|at the table|under the table|in the bathtub]. And then it
        happened: [a page tore|a drop of jam fell on the picture of the [lion|queen]|{pet}
        the {pet_kind} chewed one corner]. <scared>

        {hero} worries "[What will {teacher} say?|They will never lend me a book again!]"
        First, {he} wanted to [put it back on the shelf and say nothing|hide it under {his}
        pillow]. But each time {he} looked at it, {he} felt [worse|a little smaller]. So
        {he} [walked to the library very slowly|put the book in a bag and went there].
        {Teacher}, who took care of the books, looked at the page over {teacher_his}
        glasses. {hero} sighs "<sorry>. [It was an accident|I was not careful]."

        [{teacher} took out a roll of clear tape and a pair of scissors. {teacher_he} says
        "Books get hurt when they are loved. [Come, I will show you how to mend them|You may
        be my book doctor]." That afternoon {hero} mended <number> books, and {he} was very
        good at it.|{teacher} turned to the last page. There, in crooked letters, it said:
        "Sorry about the soup. {teacher}, age seven." {hero} laughed out loud. {teacher}
        says "[Now write your name below mine|Nobody has ever told me so quickly as
        you]."|{teacher} says "Thank you for telling me. Would you help me read to the
        little ones on [Friday|Wednesday]? That will make it good again." And so {hero} sat
        on the big chair and read aloud, and <number> small children listened with open
        mouths.]

        <ever_after> {hero} [washed {his} hands before reading|used a bookmark|kept books
        away from the jam]. [<moral_honest>|<proud>] [{He} still loved that {thing} best of
        all.|]
        """,
        draws={"thing": "book"},
        weather="any",
    ),
    Plot(
        "three coins",
        CHILD,
        """
        <start> {elder} gave {hero} three coins for the market. {elder} says "[Buy whatever
        you like|Spend them well]." {Hero} held them tight in {his} pocket. The market was
        full of [noise and color|wonderful smells]: [cheese as big as wheels|towers of
        oranges|baskets of <fruit>|honey in glass jars], [pots and pans|silk ribbons|live
        chickens|wooden toys], and a man who sold [balloons|candied nuts|roasted almonds].

        [{Hero} wanted a [paper windmill|sugar mouse|striped balloon]. It cost exactly three
        coins. But|{He} was on the way to the [candy stand|toy stand]. Then] {he} saw [an
        old woman whose basket had tipped over. The <fruit> rolled everywhere, and people
        stepped over them.|a small child who had dropped a milk bottle and did not dare to
        go home.|a street musician who played the fiddle so beautifully, and whose hat was
        still empty.] [{Hero} stopped.|{Hero} looked at the three coins for a long time.]
        {hero} says "[Wait, I will help|Here, take these]." [{He} gave away one coin, then
        the second, and, after a long breath, the third.|And then {his} pocket was empty and
        {his} heart was full.]

        [When the market was over, the man with the balloons had only one left. "Nobody
        wants it, because it is [purple|a bit crooked]," said the man. "Would you take
        it?"|On the way home it began to rain. The first cart that passed stopped.
        {neighbor} says "[Climb up|I saw what you did]. And have [a warm roll|a pear], I
        have too many."|At home, {elder} asked, "What did you buy?" {hero} replies
        "[Nothing|Something you can't see]." And {he} told the whole story. {elder} [said
        nothing and hugged {him} for a long time|found that it was the best thing money
        could buy].]

        [<moral_kind>|<happy>|<end>]
        """,
    ),
    Plot(
        "the loose tooth",
        CHILD,
        """
        <start> {hero} had a loose tooth. It [wiggled|wobbled] when {he} [talked|laughed|ate
        {food}]. {He} [pushed it with {his} tongue|showed it to everyone] all day long.
        [{friend} had lost two teeth already and said it did not hurt.|{friend} says "Tie it
        to a door!" But {hero} did not like that idea.]

        Then, [in the middle of [a math lesson|a song|dinner]|while {he} was eating an
        apple|when {he} sneezed], the tooth was gone! {hero} cries "[My tooth!|Where did it
        go?]" [It was not on the plate.|It was not on the floor.] {He} crawled under the
        table. {friend} helped, and {parent} brought a lamp. They found [a crayon|a raisin|a
        blue bead|a spider], but no tooth. <sad> {hero} sighs "Now the tooth fairy [won't
        come|will think I made it up]."

        [{parent} gave {him} a pencil. {parent} says "Write a letter. Fairies can read." So
        {hero} wrote: "Dear fairy, I had a tooth, but it is lost. Here is a drawing of it."
        In the morning, there was [a coin|a tiny book|a silver bell] under the pillow, and
        on the back of the letter stood, in very small writing, "What a fine drawing!"|Just
        then, {pet} the {pet_kind} sneezed. Something white flew across the floor. There it
        was! {Pet} looked [guilty|very proud]. They laughed so much that {hero} almost lost
        a second tooth.|At bedtime, {hero} took off {his} sock, and out fell the tooth!
        Nobody ever found out how it got there. {parent} says "[Your tooth likes to
        travel|That is a very clever tooth]."]

        [{Hero} looked in the mirror and smiled. There was a little window in {his}
        smile.|Now {he} could whistle through the gap.|{He} said six and seven a hundred
        times, just because it sounded so funny.] [<proud>| <happy>|<end>]
        """,
        weather="any",
    ),
    Plot(
        "the school play",
        CHILD,
        """
        <start> {teacher} told the class that they would put on a play. [<excited>|] {Hero}
        was going to be [the moon|a tree|the old king|the lion|the wind|a talking carrot].
        {He} had only [two lines|one long line|three sentences], but {he} practiced them [in
        the bath|on the bus|in front of the mirror|for the cat] until [everyone at home knew
        them, too|the neighbors knew them by heart].

        Then the big evening came. [The hall was full.|The curtain went up, and there were
        so many faces!] {Hero} stepped into the light, opened {his} mouth, and [nothing came
        out|every word was gone|{his} head was as empty as a drum]. <scared> It was so quiet
        that [someone's chair creaked loudly|you could hear the clock].

        [Behind the cardboard tree, {friend} whispered the first word. Only one word! And
        all the other words came back, like [beads on a string|ducks in a row]. {Hero} said
        them loudly and clearly.|Then {his} [crown|hat|paper beard] slid down over {his}
        eyes. Somebody laughed, and {hero} had to laugh, too. {he} says "I forgot my words,
        but [I can tell you what happened|I will sing them instead]!" And {he} did, and it
        was even better than in the book.|In the third row sat {elder}, moving {elder_his}
        lips without a sound. {hero} looked at them, took a deep breath, and it all came
        back.|So {he} did the only thing that came to {his} mind: {he} danced. {friend}
        understood at once and danced, too, and soon all the [trees| animals|stars] were
        dancing. {teacher} played the piano faster and faster.]

        [Everybody clapped and clapped.|The people stood up and cheered.|{parent} clapped
        the longest.] {teacher} laughs "[That was not in the script, but it was wonderful|I
        am proud of all of you]." {hero} says "[Next time I want ten lines|My heart is still
        jumping]!" [<moral_brave>|<moral_help>|<evening>]
        """,
        weather="any",
    ),
    Plot(
        "the lighthouse",
        CHILD,
        """
        {Hero} lived in a lighthouse [on a rock|at the end of the land|on a tiny island].
        Every evening, {elder} climbed the [ninety-nine|hundred|hundred and
        twenty|sixty-two] steps and lit the great lamp, so that the ships could find their
        way. {Hero} [carried the oil|polished the glass|counted the ships]. [<about>|]

        One evening, [{elder} slipped on the stairs and hurt {elder_his} foot|{elder} lay in
        bed with a fever|{elder} was still on the mainland, and the last boat had gone]. And
        [fog was rolling in, thick as wool|a storm was coming up, and the waves were as high
        as houses]. Far out on the water, {hero} saw [a small light|a fishing boat|a sail].
        It was coming straight toward the rocks. <scared>

        {hero} says "[Somebody has to light the lamp|I know how it is done], and there is
        only me." {He} ran up the stairs, round and round, until {his} legs shook. [The
        first match went out. The second one, too. Only one was left. {He} held it with both
        hands, and the lamp caught fire.|The wheel was heavy and would not turn. {He} leaned
        against it with {his} whole weight, and slowly, slowly it began to move.|The lamp
        would not burn, so {he} rang the bell instead, on and on, until {his} arms ached.]
        Then {he} waited. [The little boat stopped.|The light outside swung to the left.] It
        turned away from the rocks and [found the harbor|sailed safely by]!

        <next_day> a [fisherman|captain|sailor] knocked at the door with [a basket of
        fish|an orange for {hero}|a ship in a bottle]. "Who lit the lamp last night?" asked
        the visitor. {elder} [smiled and pointed|put a hand on {hero}'s shoulder]. {elder}
        says "[The new keeper of the lighthouse|This one here]." [<proud>|<moral_brave>]
        [<ever_after> there were two names on the door.|<end>|]
        """,
        weather="wind",
    ),
    Plot(
        "the hen that hid her eggs",
        CHILD,
        """
        <start> {hero} came to stay at {elder}'s farm. [There were cows and pigs, two horses
        and a very loud rooster.|It smelled of hay and warm milk.] Each morning {he} was
        allowed to collect the eggs. There were always <number>. But one hen, the
        [speckled|white|little brown] one, never laid any.

        {elder} says "[It is too old, I think|That hen is up to something]." {Hero} was not
        so sure. [{He} had seen the hen slip behind the barn.|The hen always vanished after
        breakfast.] {hero} whispers "[I will find out|I will be a detective]." {He} [hid
        behind the rain barrel|lay down in the tall grass|followed the hen on tiptoe]. The
        hen walked past [the duck pond|the pig pen|the old tractor], looked left, looked
        right, and squeezed through [a hole in the fence|the nettles|a broken board].

        [{Hero} crawled after it and got [hay in {his} hair|scratches on both knees].|{He}
        got stuck halfway and had to wriggle.] And there, in [an old wagon|a forgotten straw
        hat|a broken basket], was a nest with <number> eggs! [{hero} wanted to call {elder},
        but then one of the eggs moved. Crack! A tiny beak came out.|{He} came back every
        day and told nobody, and on the ninth day it went peep, peep.|{elder} said they
        should let it be. They waited, and <number> days later the shells began to crack.]
        Soon the nest was full of yellow fluff. {hero} whispers "[Hello, little ones|Oh,
        they are so soft|Welcome to the world]."

        [One chick walked straight to {him} and sat down on {his} shoe.|The last one was so
        small that it got a name at once: [Dot|Pea|Crumb|Button].] {elder} laughs "So that
        was the secret!" [<happy>|] [When summer was over, <number> hens knew {hero} by
        {his} whistle.|<end>]
        """,
    ),
    Plot(
        "the night in the tent",
        CHILD,
        """
        <start> {hero} and {parent} packed [a tent|two sleeping bags|a big bag] and walked
        into the woods. [They crossed <number> streams.|The way was long, and the bag was
        heavy.] [<detour>|] They put up the tent [by a lake|under tall pines|in a clearing],
        and it only fell down [once|twice|three times]. They made a small fire and toasted
        [bread on a stick|marshmallows|sausages|apples].

        When it got dark, [something went crunch outside|there was a snuffling noise|a twig
        snapped]. {hero} whispers "[Is that a bear|Did you hear that|Who is there]?"
        <scared> [{parent} turned on the lamp. On the tent wall there was a huge shadow with
        [long ears|a round belly]! It came closer and grew smaller and smaller. In the end,
        it was only a [rabbit|hedgehog|mouse], and it was eating their bread.|They peeped
        out. Two green eyes looked back. They belonged to a [fox cub|raccoon], which grabbed
        a shoe and ran. {hero} cries "Hey, bring that back!" In the morning, the shoe lay
        beside the path, with tiny bites in it.|But it was {friend}, who camped nearby with
        {friend_his} family and had smelled the [toast|marshmallows]. {hero} laughs "I
        thought you were a bear!"]

        After that, nobody could sleep. So they lay on their backs in the grass and looked
        up. [There were more stars than {hero} had ever seen.|The sky was so full of stars
        that it almost hummed.] {parent} showed {him} [the Big Bear|the Milky Way|the North
        Star]. [A shooting star fell. {hero} made a wish, and it was a secret.|{hero} says
        "They look like [sugar|crumbs|holes in a blanket]."|{hero} found a new shape and
        named it the [Teapot|Sock|Running Dog].]

        [In the morning, there was dew on everything, and the lake [steamed|was pink].|They
        slept until the sun made the tent as warm as an oven.] {hero} asks "Can we stay one
        more night?" [<end>|<moral_brave>|]
        """,
    ),
    Plot(
        "a day in bed",
        CHILD,
        """
        <start> {hero} woke up with [a hot head|a sore throat|red spots on {his} tummy|a
        cough that shook the bed]. {parent} [felt {his} forehead|looked at {his} tongue].
        {parent} says "[You must stay in bed|No school for you today]. Sleep is the best
        medicine." And this was the day of [the class trip|{friend}'s party|the big race|the
        puppet show]!

        {Hero} [looked at the ceiling and counted the cracks|turned over and over|heard the
        others laughing outside]. [{He} pulled the blanket over {his} head.|{hero} sighs
        "This is so unfair."|] [The soup tasted of nothing.|Even {his} toys looked tired.]
        [Then something hit the window. It was a paper plane! On it was written, "Get well
        soon! {friend}." {hero} wrote an answer and sent it back, and the planes flew to and
        fro [all afternoon|until it got dark].|Then {elder} sat down on the edge of the bed
        and began to tell a story about [a pirate with a cold|a bear who could not
        sneeze|the blanket mountains]. {Hero}'s knees became [hills|islands], and a
        [button|thimble] sailed around them.|In the afternoon, a shadow moved on the wall.
        Outside, {friend} and the others held up [puppets|paper animals] and played a whole
        show for {him}, right in front of {his} window.|{pet} the {pet_kind} jumped onto the
        bed, turned around three times and lay down on {his} feet. {Pet} stayed there all
        day and was warmer than any blanket.]

        <next_day> {he} felt [much better|a bit better]. {hero} asks "[May I get up|Am I
        well now]?" {parent} replies "[Tomorrow|First, eat your breakfast]." {hero} laughs
        "[Being ill is boring, but being spoiled is nice|I have the best friends in the
        world]." [The week after, {friend} had a sore throat, and guess who threw the first
        paper plane!|<moral_kind>|<end>]
        """,
        weather="any",
    ),
    Plot(
        "the messy room",
        CHILD,
        """
        <start> {parent} stood in the door of {hero}'s room. [There were toys on the floor,
        socks on the lamp and crumbs in the bed.|You could not see the floor any
        more.|Somewhere under all the things there was a carpet.] {parent} says "[It is time
        to clean up|I think something is living in there]." {hero} sighs "[That will take a
        hundred years.|Where should I even start?]"

        [{friend} came by and wanted to play. {hero} says "I can't, I am buried." {friend}
        laughs "Then we will [play treasure divers|dig you out]!" So they dived into the
        heap.|{parent} says "Begin with one corner. [Then the corner grows|The rest will
        follow]." {Hero} began with the corner behind the door.|{hero} pushed everything
        under the bed. That was quick! But at night the bed [stood crooked|squeaked and
        would not stay still], and a [ball|toy car] rolled out, and then everything else.]
        The first thing they found was [an apple core|a birthday card|an old sandwich, green
        and furry]. Then came [<number> lost socks|a puzzle piece|the missing library book].
        And at the very bottom, there was {a_thing}! {hero} cries "[I looked for that for a
        whole year|There you are]!"

        [{He} [hugged it|wiped off the dust].|It was like meeting an old friend.] [They
        sorted everything into boxes: one for [blocks|cars], one for [dolls and
        bears|crayons], and one for things that nobody knew.|{He} found so many toys that
        {he} gave a whole box to the children's home.|By supper, the floor was there again,
        and one could even dance on it.] {parent} [came in and rubbed {parent_his}
        eyes|could not believe it]. {parent} asks "[Am I in the right house|Who lives
        here]?" [<proud>|<happy>] [It stayed tidy for almost a week.|<end>|]
        """,
        draws={"thing": "toy"},
        weather="any",
    ),
    Plot(
        "the sled",
        CHILD,
        """
        <start> all the children took their sleds to the big hill. {Hero}'s sled was [old
        and slow|a hand-me-down from {elder}|made of an apple crate], and [some of the
        others giggled|one runner was bent]. {friend} had a new <color> one that went like
        an arrow.

        {Hero} [started from the top|pushed off with both feet]. Halfway down, there was a
        [bump|root], and crack, the sled broke in two. [{He} rolled the rest of the way and
        looked like a snowball.|{He} landed headfirst in a snowdrift.] <sad> {friend} pulled
        {him} out. {friend} asks "Are you hurt?" {hero} replies "No, but my sled is."
        [{friend} says "Then sit behind me. Two are heavier, and heavy is fast!" They flew
        down the hill so fast that their hats stayed behind.|{hero} looked around and saw
        [an old tea tray|a plastic tub|a piece of cardboard] beside the [shed|bakery].
        <idea> {He} sat down on it, and whoosh! It spun around and around, backward and
        forward, and everyone wanted a turn.|{neighbor}, the carpenter, came by with a saw
        under {neighbor_his} arm. {neighbor} says "Give me one hour and [two boards|a hot
        cup of tea]." And after an hour, there was a sled with room for three.]

        [They made a long train with all the sleds and screamed all the way down.|They went
        up and down until the lamps were lit.|Even {teacher} tried it once, and lost a
        boot.] {hero} cries "[Again|Once more|Faster]!" [When they could not feel their toes
        any more, they went home to <supper>.|Nobody giggled now.] [<happy>|<end>|
        <evening>]
        """,
        weather="snow",
    ),
    Plot(
        "the wish",
        CHILD,
        """
        <start> {hero} found [an old bottle in the sand|a rusty lamp in the attic|a ring
        under a stone|a <color> shell on the beach]. When {he} [rubbed it|picked it up|wiped
        off the dust], a [small|deep|silvery] voice said, "You may have [one wish|three
        wishes]. [Think well|Be careful what you say]!"

        [{hero} says "I wish for all the candy in the world!" Candy began to fall from the
        sky. It filled the street, it filled the house, it stuck to the cat. After the tenth
        piece, {hero} felt ill. [Nobody could open a door.|The birds were glued to the
        roof.] {hero} cries "Stop! I wish it were gone!" [And it was.|Poof!]|{hero} says "I
        wish that it were my birthday every day!" The first day was wonderful. The second
        was nice. On the [sixth|seventh], {he} was [tired of cake|a very old child of
        eleven], and {friend} had no pennies left for presents. {hero} sighs "I wish it were
        an ordinary day again."|{hero} says "I wish I were as big as a tower!" At once {he}
        grew and grew. {He} could see the sea, but {his} friends were as small as ants, and
        [nobody could hear what they said|{he} did not fit through any door]. It was lonely
        up there. {hero} says "Please make me small again."|{hero} says "I wish I could
        fly!" And up {he} went, over the roofs. It was [glorious|cold and wonderful]. But
        {he} did not know how to come down! {He} sat on the church tower until the pigeons
        got used to {him}. {hero} sighs "I wish I had both feet on the ground."]

        {friend} asks "[Do you have a wish left|And what now]?" {Hero} thought of {friend},
        whose [mother was ill|dog had run away|garden was dry], and whispered something.
        [<next_day>|In the same hour,] there was joy in {friend}'s house. The voice said,
        "That was the best wish of all." [And it was never heard again.|]
        [<moral_share>|<happy>|<end>]
        """,
    ),
    Plot(
        "the baby",
        CHILD,
        """
        <start> there was a new baby in {hero}'s house. Everybody came to look at it. [They
        brought tiny socks and rattles.|They all said, "How sweet!"] The baby was [red and
        wrinkled|very small|bald], and it [cried all night|slept all day]. {hero} asks
        "[When can it play with me|Can it do anything else]?" {parent} replies "You have to
        be patient."

        [Nobody had time for {hero} now.|{parent} was always tired.] {He} built [a tower|a
        zoo], and nobody looked. {He} told a joke, and somebody said, "Shh!" [<sad>|{hero}
        put {his} teddy bear in the wagon and moved into the garden.|{hero} says "I would
        like to trade it for a [puppy|bicycle]."] Then [one afternoon, the baby cried and
        cried. {parent} sang, {elder} rocked it, but nothing helped. {hero} came in and made
        {his} famous [duck noise|walrus face]. The baby stopped. It looked. And then it
        laughed! It had never laughed before.|{elder} came, and not for the baby. {elder_he}
        says "[I came to see you|Babies are boring at first]. When you were born, you looked
        like an old potato, too." {hero} laughed for the first time that week. They [looked
        at old photos|baked a cake], and there {he} was, just as red and wrinkled.|{hero}
        leaned over the crib to look for what was so special. The baby took hold of {his}
        finger and would not let go. It was so small and so strong. Something warm went
        through {hero}.]

        {hero} says "[I think it likes me|I will teach it everything I know]." [So {he}
        became the one who could make it laugh.|{He} showed it the moon, the cat and {his}
        best marble.|And {parent} took {him} on {parent_his} lap and said, "I have two arms,
        one for each of you."] [<proud>|<happy>|<end>]
        """,
        weather="any",
    ),
    Plot(
        "lost in the crowd",
        CHILD,
        """
        <start> {hero} went with {parent} to the [fair|big store|train station|harbor
        festival]. There were so many people! {Hero} stopped to look at [a man on stilts|a
        shop window full of clocks|a tiny train that went around a mountain|a monkey on a
        drum]. It was only a moment. When {he} turned around, {parent} was gone.

        There were only legs, [long legs, fat legs, striped legs|and bags, and more legs].
        <scared> [{He} ran a little to the left, then to the right.|{He} called, but it was
        too loud.] {hero} sighs "[Where are you?|I want to go home.]" Then {he} remembered
        what {elder} had told {him}: "[If you are lost, stay where you are|Do not run
        around, or you will miss each other]." So {he} [hugged a lamppost|sat down beside
        the fountain|stood still like a tree].

        [A woman with a [yellow vest|big drum|stack of hats] bent down. "Is someone missing
        you?" {hero} replies "Yes, {parent}. [I know my name and my street|We live next to
        the bakery]." "[Very clever|Well done]," said the woman, and [lifted {him} up so
        that {he} could see over all the heads|called the name through a big trumpet].|{He}
        began to sing the song that {parent} always sang, as loudly as {he} could. People
        smiled, and some sang along. And from far away, another voice joined in. It was
        {parent}!|Next to {him} stood {friend}, who was lost, too. So they were only half as
        afraid. They shared [a pretzel|a handkerchief] and played [I spy|a guessing game]
        until {neighbor} saw them both.] And there came {parent}, running, [with
        {parent_his} hat in {parent_his} hand|quite pale].

        They hugged for a long time. {parent} says "You did everything right." [Then they
        walked home, hand in hand.|And they bought [a bag of roasted nuts|two balloons],
        tied together so that neither could get lost.] [<moral_careful>|<end>|<evening>]
        """,
    ),
    Plot(
        "the carrot thief",
        CHILD,
        """
        <start> {hero} went into {his} garden to look at {his} carrots. [{He} had watered
        them every day.|{He} was very proud of them.] But the first row was gone! There were
        only <number> holes. The day after, [the second row was missing|more holes had
        appeared]. {hero} cries "A thief! [I will catch you|Just you wait]!"

        {friend} helped. They [built a scarecrow out of an old coat. The crows sat on it and
        enjoyed the view.|hung bells on strings. All night the bells were quiet, but in the
        morning more carrots were gone.|spread flour on the ground to see the tracks. They
        were small and round, like buttons.] So at night they hid [behind the rain barrel|in
        the wheelbarrow under a blanket] with [a flashlight|a lantern]. They waited. An owl
        called. {friend} [yawned|almost fell asleep]. And then the leaves [moved|rustled].

        {friend} turned on the light. There sat [a mother rabbit with five babies|a thin old
        donkey|a family of hares], [blinking|with a carrot still between the teeth], and too
        hungry to run. {hero} wanted to be angry, but [the smallest one trembled so
        much|those eyes were so sad] that {he} could not. {hero} whispers "[Eat|Don't be
        afraid], there is enough." [{friend} says "But what about your carrots?" {hero}
        replies "I will plant another row, just for them."|The next day {he} put up a sign:
        "This row is yours, that row is mine." They could not read, but strangely enough, it
        worked.|They carried them [to {elder}'s meadow|to the clover field], where there was
        food for all.]

        [In autumn, {hero} had fewer carrots than {neighbor}, but much more company.|And
        each spring, there were a few more ears behind the hedge.]
        [<moral_share>|<moral_kind>|<happy>]
        """,
        weather="mild",
    ),
    Plot(
        "the bag on the bus",
        CHILD,
        """
        <start> {hero} was allowed to take the bus to {elder}'s house all alone. {parent}
        says "[Get off at the sixth stop|Sit near the driver]." In {his} bag {he} had [a jar
        of jam|a cake for {elder}|{his} pajamas], a drawing and {a_thing}. {Hero} counted
        the stops: one, two, three...

        [A little dog on the next seat made {him} laugh|{He} looked at the [cows|boats]
        outside], and suddenly it was the sixth stop! {He} jumped off. The doors closed, and
        the bus drove away with the bag. {hero} cries "<oh_no>! [My bag|Stop, please stop]!"
        <sad>

        [{Friend} came by on a bicycle. {friend_he} cries "Hop on!" And they raced after the
        bus. At the traffic light they almost had it. At the [bridge|church], they did! The
        driver laughed and handed the bag out of the window.|{elder} was waiting at the stop
        and heard the whole story. {elder_he} says "Don't worry. The bus goes to the end,
        turns around, and comes back, like a [yo-yo|swing]." So they sat on the bench and
        told jokes, and after [half an hour|forty minutes], the bus came back. The bag was
        sitting beside the driver, with a seat belt on!|{He} ran to {elder}'s house and told
        everything. {Elder} called the bus company, and in the evening the bell rang. There
        stood the driver with the bag. "It rode with me all day," said the driver. "[It was
        a very quiet guest|It has seen more of the town than you have]."]

        They all ate [jam|cake] together, [with the windows open|until it got dark], and the
        {thing} [sat on the table|got the best seat]. {hero} laughs "[My bag had a longer
        trip than I did|Next time I will tie it to my wrist]."
        [<moral_careful>|<end>|<evening>]
        """,
        draws={"thing": "toy"},
    ),
    Plot(
        "a message in a bottle",
        CHILD,
        """
        <start> {hero} wrote a letter: "Hello! My name is {hero}. I like {food}. Who are
        you?" {He} rolled the paper up, put it in a [green|clear|brown] bottle, and [pushed
        the cork in tightly|sealed it with wax]. Then {he} threw it into the [sea|river].
        {friend} says "[It will sink|A fish will read it|Nobody will ever answer]." {hero}
        replies "[You never know|Wait and see]."

        [Weeks went by.|The leaves turned red, and the first snow fell.|The whole summer
        went by.] {Hero} walked along the [shore|bank] each [Sunday|day]. {He} found
        [driftwood|an old shoe|a blue crab|a broken oar], but no bottle. [{hero} almost
        forgot about it.|<sad>]

        Then, one [stormy|gray|quiet] morning, [something clinked between the
        stones|something glittered in the seaweed]. It was [a different bottle|a bottle with
        a red ribbon]! {His} fingers trembled as {he} pulled out the paper. It said:
        "[Hello, {hero}! I am a fisherman, and I am ninety years old. I like {food}, too.
        Nobody has written to me for a long time.|Dear {hero}, I live on an island with one
        hundred sheep and no children. Will you be my friend?|Hi! I live across the water.
        If you look over at night, you can see my lamp. I will blink three times.]" {hero}
        cries "{friend}, {friend}, come quickly!" [They read it <number> times.|They danced
        on the sand.]

        [And so they wrote to each other, all year long, and {hero} learned about
        [storms|boats and stars|knots and nets].|That night {hero} stood at the window with
        a candle. Far away, a small light blinked: once, twice, three times.|The next
        summer, a boat came into the harbor. Someone stood at the front and waved, and
        {hero} knew at once who it was.] [<happy>|<end>|The sea is wide, but a letter is
        stubborn.]
        """,
        weather="breezy",
    ),
    Plot(
        "the chain of kindness",
        CHILD,
        """
        <start> {hero} [slipped on the wet steps|dropped all {his} books|stood in the rain
        without a coat], and a stranger stopped and helped {him}. {hero} asks "How can I
        thank you?" The stranger smiled and said, "Just [help somebody else|pass it on]."
        And then the stranger was gone.

        {Hero} thought about it all the way. [At the corner|Near the bakery], {he} met
        {neighbor}, who was [carrying heavy bags|looking for {neighbor_his} glasses|trying
        to get {neighbor_his} cat down from a wall]. {hero} says "[Let me help you|Wait, I
        will do that]." [It took only a minute.|It took the whole afternoon, but it was
        fun.] {neighbor} asks "What do I owe you?" {hero} replies "Nothing. Just pass it
        on!"

        So {neighbor} [gave {neighbor_his} seat on the bus to a tired nurse|paid for the
        bread of a young father|fixed the swing in the park without telling anyone]. The
        next one [wrote a letter to an old friend|shoveled the snow from a whole
        street|shared an umbrella with the mailman|brought flowers to the school cook]. It
        went [around the whole town|from street to street], over the bridge and back again.
        Nobody knew where it had started.

        [<next_day>|A week later,] [{hero} had a terrible day. {His} [sandwich fell in the
        mud|homework blew away|bicycle had a flat tire].|{hero} sat on a bench, and
        everything went wrong.] Then {friend} stopped beside {him}. {friend} says "[Somebody
        helped me this morning|Somebody was kind to me today], and I have to pass it on.
        What can I do?" {hero} [began to laugh|understood at once]. {he} laughs "[It came
        back|It went once around the world]!" [And then they both looked for someone else to
        help.|<moral_kind>|] [<end>|]
        """,
        weather="any",
    ),
    Plot(
        "the scarecrow",
        CHILD,
        """
        <start> {hero} made a scarecrow with {elder}. It had [a pumpkin head|a head of
        straw], [{elder}'s old jacket|a <color> coat] and [buttons for eyes|a painted
        smile]. They set it up in the middle of the [wheat|corn] field. {elder} says "[Now
        the birds will stay away|You have one job, my friend]." But {hero} thought it looked
        [lonely|sad], all alone out there.

        [At night, {he} looked out of {his} window, and the scarecrow seemed to look
        back.|When it rained, {hero} put an umbrella in its hand.|On windy days, its arms
        waved as if it were calling someone.] <soon> a [crow|sparrow| jackdaw] came. It was
        [young|thin], and one wing hung down. It sat right on the scarecrow's
        [shoulder|hat]. {hero} [ran out to chase it away|wanted to clap {his} hands], but
        then {he} stopped. [The bird was [shaking|cold], and it crept into the scarecrow's
        pocket.|The scarecrow was smiling more than before. At least it looked that way.]

        {hero} says "[It can't do its job now.|What do we do now?]" {elder} scratched
        {elder_his} chin. {elder} replies "[One bird eats very little|Maybe it has found a
        better job]." So the bird stayed. [It built a nest in the hat, and in spring there
        were four blue eggs.|It slept in the pocket, and its wing got strong again.|And, as
        strange as it sounds, it chased all the other birds away, because this was its home
        now.] [{Hero} sat under them every day with a book.|{Hero} brought crumbs each
        morning.|]

        After the harvest, {elder} wanted to put the scarecrow in the barn. {hero} cries
        "[Not yet|Wait]!" [So it stayed out until the birds flew south.|They waited until
        the bird flew south. In the barn, {hero} hung the hat on a nail, ready for spring.]
        [<moral_kind>|<happy>|And nobody was lonely any more.]
        """,
        weather="autumn",
    ),
    Plot(
        "new glasses",
        CHILD,
        """
        <start> {teacher} wrote [a sentence|a long word|<number> numbers] on the board, and
        {hero} read something else. [{He} read goat where it said boat.|{He} thought it was
        a drawing of a cat.] Everyone laughed. [<sad>|] {teacher} says "[I think you need
        glasses|Let's have your eyes looked at]." {hero} cries "[Never|I don't want
        glasses]!"

        The doctor had [a hundred pairs|glasses in every color]: round ones, square ones,
        [green ones with dots|ones like a cat's eyes]. {Hero} chose [the <color> ones|the
        round ones]. But on the way home, {he} hid them in {his} pocket. {hero} sighs
        "[Everyone will laugh|I look like an owl]."

        [Then {pet} the {pet_kind} ran off, and nobody could see where. {hero} put on the
        glasses. Suddenly, everything was sharp: each leaf, each brick, and, far down the
        street, the tip of a tail behind a trash can! {hero} cries "There {pet_he} is!"|In
        the evening, {parent} took {him} outside. {parent} says "Put them on and look up."
        {Hero} did. There was not just the moon. There were stars, thousands of them, each
        one a sharp little point. {hero} whispers "Have they always been there?"|The next
        day, there was a ball game. {hero} never caught the ball; it was always only a blur.
        In secret, {he} put on the glasses. The ball had stripes! It flew in a curve, and
        {he} caught it with one hand.]

        <next_day> {he} wore them to school. [{friend} stared. {friend_he} says "[You look
        like a professor!|Can I try them on?]"|Nobody laughed. Two days later, {friend} got
        some, too, and was glad not to be the only one.|{friend} says "They look just like
        you."] {Hero} read the whole board, from the first word to the last, [and even the
        tiny date in the corner|without one mistake]. [<proud>|<happy>|The world was full of
        edges and colors, and {he} wanted to see them all.]
        """,
        weather="any",
    ),
    Plot(
        "the paper boat",
        CHILD,
        """
        <start> {hero} folded a boat out of [an old newspaper|a page of music|a letter that
        nobody needed|<color> paper]. {He} wrote a name on it: [Storm Queen|The Brave
        Duck|Sea Star|Little Whale]. It had rained, and water ran [down the gutter|along the
        street]. {Hero} set the boat down, and off it went!

        {He} ran beside it. [Past the bakery|Past the school|Past {neighbor}'s gate] it
        sailed, [around a corner|under a parked cart], between [a bottle cap and a twig|two
        orange peels]. {hero} cries "[Wait for me|Full speed ahead]!" Then [the gutter ended
        at a dark drain. The boat tipped, turned, and was gone.|a big wheel splashed through
        the water, and the boat flew over a wall.|it slipped through a fence into the brook,
        where {he} could not follow.] [<sad>|{hero} stood there for a long time.]

        [But a boat does not stop just because nobody watches. It traveled in the dark, came
        out at the other end of town, and floated into the pond in the park. There sat
        {friend}, who [had a fever for a week|had broken a leg and could not run] and was
        very bored. {friend} fished it out and read the name.|But on the other side sat a
        tired frog on a stone in the middle of the water, and it had waited for a boat all
        its life. It climbed aboard and sailed to the reeds, where the other frogs were.|But
        far down the brook, {neighbor} was fishing and had caught nothing all day. Then the
        little boat came by, and {neighbor} thought of the boats of long ago, and smiled.]
        [{Hero} never knew about that.|Some boats carry more than they know.]

        [{hero} went home and folded a second one, and a third.|The next day, {hero} found a
        little boat in front of the door, folded from <color> paper, and on it was written,
        "Thank you."|{hero} says "Good luck, little boat." And {he} was sure that it had
        reached the sea.] [<evening>|<end>|]
        """,
        weather="rain",
    ),
    Plot(
        "the giant pumpkin",
        CHILD,
        """
        <start> {hero} saw that one of the pumpkins in {elder}'s garden was growing and
        growing. First it was as big as a ball. Then it was as big as a [barrel|bathtub]. In
        the end it was as big as [a cow|a small car|a garden shed]. {elder} says "[It could
        win first prize at the fair|I have never seen anything like it]." But the fair was
        [at the other end of the village|on top of the hill], and nobody could lift it.

        {Hero} pushed. {Elder} pulled. The pumpkin did not move. {friend} came and pushed,
        too. Then {neighbor}, then [the baker|the mailman], then [two strong sisters from
        the farm|the whole soccer team]. [It rocked a little, and rocked back.|They pushed
        until they were red in the face.] {hero} sighs "[It is no use|We will have to eat it
        here]."

        [A tiny [kitten|mouse|hen] ran up and leaned against it. Everyone laughed, but they
        all pushed once more. One, two, three! And the pumpkin rolled!|{hero} looked at the
        round pumpkin and then at the hill. <idea> {hero} says "[It has no corners. We need
        not lift it|It is round! We can roll it]!" They dug a little path in front of it,
        and it rolled like a wheel.|{friend} had an idea. {friend_he} says "My uncle has
        [two oxen|a horse and a cart|a boat]." They put round logs under it, and slowly,
        very slowly, it moved.] [It rolled faster and faster, through a fence, through a
        [haystack|duck pond], and stopped right in front of the judges.|Half of the village
        walked beside it and sang.|It took the whole day, and at sunset they were there.]

        It won [first prize|a golden ribbon|the biggest cup]. [They made <number> pots of
        soup from it, and everyone who had pushed got a bowl.|And when they cut it open,
        there was a seed for each helper.] {elder} laughs "[The smallest push can be the one
        that counts|Next year I will grow radishes]." [<moral_help>|<end>]
        """,
        weather="autumn",
    ),
)
