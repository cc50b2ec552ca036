"""What takes commands long to load. The fork server of `harness.py` imports this module before its first child."""

import sacrebleu.sacrebleu  # noqa: F401 - the command

import mtcli.serve.app  # noqa: F401
from mtcli.text.language_identifier import LanguageIdentifier

LanguageIdentifier()  # loads the classifier of all languages: half a second
