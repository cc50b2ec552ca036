"""A model over HTTP: the LibreTranslate API for programs, a page for people.

    POST /translate      q (a text, or a list of them), source, target, format, alternatives, api_key, as JSON or as a
                         form; answers {"translatedText": …}, with "alternatives" and "detectedLanguage" where asked;
                         alternatives differ from the translation, which is the same with and without them
    GET  /languages      the one pair there is
    POST /detect         refused with 501: a model of one source language knows no other
    GET  /health         {"status": "ok", "waiting": lines that wait for the model}
    GET  /               the page
    POST /api/translate  the same request; answers what the page shows, a record for each line of each text:
                         {"lines": [{"source": …, "candidates": [{"text", "log_prob", "score", "alignment"}, …]}, …]},
                         best first, log P(y | x) in nats, the alignment as pairs of source word and target word,
                         counted from 0 between whitespace (an exported model has none)

An error is {"error": "what and why"}: 400 what cannot be understood or translated, 403 no or a wrong key or a page of
another site, 408 a request
that takes too long to arrive, 413 too much of it, 415 another encoding, 421 one for another host, 503 more
work than fits (with Retry-After).
"""
