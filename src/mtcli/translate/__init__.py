"""From text to translations: translators for PyTorch and CTranslate2, alignment, scoring of given pairs."""
