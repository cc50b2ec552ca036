"""Models from and for other libraries: export to CTranslate2, Hugging Face and Argos Translate, import of Marian."""
