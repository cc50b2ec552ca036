"""From text to translations: search, translators for PyTorch and CTranslate2, alignment, scoring of given pairs."""
