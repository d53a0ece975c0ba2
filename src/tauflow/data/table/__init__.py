"""Tables of a user's own: options, sheet, frames, target, split, task, in the order of the data."""
