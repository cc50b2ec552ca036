"""Export of models for other libraries: CTranslate2, Hugging Face `transformers`, or Argos Translate.

May import inference and what it may import.
"""
