"""What people have published about concurrent edits of a text, written down again as data.

Each case is a text, the edit that is first in the log, another edit of the same text, and the text that both authors
must see.
"""

from truelog.text.edit import edit_at

PUBLIC = {
    # The introductory example of Wikipedia's article on operational transformation.
    "an insertion before a removal": ("abc", edit_at(0, inserted="x"), edit_at(2, 1), "xab"),
    # D. Nichols et al., "High-Latency, Low-Bandwidth Windowing in the Jupiter Collaboration System", 1995, section 4.
    "two removals": ("ABCDE", edit_at(3, 1), edit_at(1, 1), "ACE"),
    # The visualisation of ot.js: one person removes a range into which another person types.
    "an insertion into a removed range": ("Lorem ipsum", edit_at(1, 8), edit_at(5, inserted="hi"), "Lhium"),
    # A page of CEDA on the merge of text operations.
    "insertions around a character": ("b", edit_at(0, inserted="a"), edit_at(1, inserted="c"), "abc"),
    "insertions at the same place": ("Hello", edit_at(0, inserted="X"), edit_at(0, inserted="Y"), "XYHello"),
}
