"""Dead letters: lists them, and replays the ones that have become valid."""
