"""Export of models for other libraries: CTranslate2, Hugging Face `transformers`, or Argos Translate."""
