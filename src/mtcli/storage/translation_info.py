"""The part of a model's metadata that is needed for translating. Needs no PyTorch."""

from pydantic import BaseModel, ConfigDict

from mtcli.config.fields import Count
from mtcli.config.schema import DecodeConfig
from mtcli.text.languages import Direction


class TranslationInfo(BaseModel):
    """What the file of a model and an exported folder say about the model."""

    model_config = ConfigDict(frozen=True)

    decode: DecodeConfig
    src: str
    """Language code of the source."""
    tgt: str
    longest_src: Count
    """Tokens of the longest source sentence in training, without `</s>`; longer sentences are divided."""
    usual_src: Count | None = None
    """99% of the training sources have at most so many tokens; longer ones are translated worse. None: unknown."""
    terms: bool = False
    """The sources of training had terms with their translations, see `data.terms`."""
    directions: tuple[Direction, ...] = ()
    """The directions that it was trained on; `src` and `tgt` are the first of them. Empty: it has one direction and no
    tags of target languages, or it is imported, or started from an imported model, whose sources may have any tags."""
    bleu_tokenizer: str | None = None
    """The setting `train.bleu_tokenizer` of the run; None: it is not set."""

    @property
    def languages(self) -> Direction:
        """Source and target language, of several the first ones."""
        return Direction(self.src, self.tgt)

    @property
    def has_several_directions(self) -> bool:
        """It was trained on several directions. A model of one direction may have the tags of other languages too."""
        return len(self.directions) > 1

    @property
    def trained_directions(self) -> tuple[Direction, ...]:
        """The directions that it was trained on, one or several; of an imported model, `languages` alone."""
        return self.directions or (self.languages,)
