"""A built-in sample: short, in several scripts, with the things that splitters stumble over.

>>> SAMPLE.splitlines()[0]
"Tilth is the earth a farmer has worked until it's ready for seed."
"""

SAMPLE = """\
Tilth is the earth a farmer has worked until it's ready for seed.
"We'll sow 3 rows," said Ada,   "and they'll come up in 14 days."

    rows = 3  # two spaces before the comment, four before the line
Ёжик идёт в сад, 狐狸在睡觉, の種を蒔く, être naïf: 1½ Äpfel… 🌱🌱
"""
