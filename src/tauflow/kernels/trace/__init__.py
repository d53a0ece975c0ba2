"""Steps as programs: instructions on rows of numbers, written down while torch takes the step.

The mathematics of a step stays in torch's operations; a program is what they came to for one size,
and runs without Python.
"""
