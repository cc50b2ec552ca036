"""The length penalty, by which the log-probability of a finished translation is divided.

Without one, beam search prefers short translations: each further token lowers the probability.
"""

from mtcli.config.schema import LengthNormalization

FORMULAS: dict[LengthNormalization, str] = {"wu": "((5 + n) / 6)^α", "power": "n^α"}
"""n is the number of tokens with `</s>`."""


def length_penalty(n: int, alpha: float, normalization: LengthNormalization = "wu") -> float:
    """Return the length penalty of a translation of n tokens, with `</s>`.

    Args:
        n: Tokens, with `</s>`.
        alpha: α; 0 for no penalty.
        normalization: `wu`, ((5 + n) / 6)^α: Wu et al. 2016, equation 14, as §6.1 uses it. `power`, n^α: as Marian,
            transformers and CTranslate2 do.
    """
    base = (5 + n) / 6 if normalization == "wu" else n
    return float(base**alpha)


def penalty_formula(alpha: float, normalization: LengthNormalization) -> str:
    """Return the length penalty in words: `((5 + n) / 6)^0.6`."""
    return FORMULAS[normalization].replace("α", f"{alpha:g}")
