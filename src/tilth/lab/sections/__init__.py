"""The sections of `tilth lab writeup`, in the order of the five write-ups that began tilth.

`sections.toml` has their list. A section has one or more parts; a part is a lab with its own
folder.
"""
