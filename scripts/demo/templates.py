"""The kinds of sentence in the demo corpus, and how many pairs of each.

The numbers limit templates with many combinations, which would otherwise dominate the corpus.
"""

from __future__ import annotations

from collections.abc import Callable

from demo.actions import (
    action,
    animal_action,
    give,
    like,
    modal,
    motion,
    order,
    progressive,
    pronoun_object,
    two_things,
)
from demo.dealer import Dealer
from demo.grammar import Pair
from demo.numbers import age, called, number, time_and_day
from demo.phrases import caption, exclamation, fixed_sentence, hello_somebody, set_phrase
from demo.questions import question_word, small_question, who
from demo.states import comparison, description, location, owner, profession, sensation, there_is

Template = Callable[[Dealer], Pair]
TEMPLATES: tuple[tuple[Template, int], ...] = (
    (action, 6400), (animal_action, 900), (motion, 2400), (progressive, 800), (modal, 1300), (pronoun_object, 500),
    (give, 600), (like, 800), (order, 600), (two_things, 300), (description, 1700), (profession, 220), (sensation, 220),
    (location, 800), (there_is, 500), (comparison, 400), (owner, 450), (question_word, 800), (who, 350),
    (small_question, 650), (number, 700), (age, 300), (time_and_day, 500), (called, 150), (exclamation, 350),
    (caption, 900), (set_phrase, 400), (fixed_sentence, 230), (hello_somebody, 2200),
)  # fmt: skip
# These have no parts to recombine. They can only be memorized, so they are never held out.
MEMORIZED: tuple[Template, ...] = (set_phrase, fixed_sentence)
