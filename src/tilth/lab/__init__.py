"""Experiments that explain training.

What enters: a question, and the few numbers that it depends on. What leaves: the answer as numbers,
for a table, a curve or JSON.
"""
