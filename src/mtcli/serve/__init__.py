"""A model over HTTP: the LibreTranslate API for programs, and a page for people.

    POST /translate      Fields: q (a text or a list of texts), source, target, format, alternatives, api_key; as JSON
                         or as a form. Answer: {"translatedText": …}, with "alternatives" if requested, and with
                         "detectedLanguage" if source is `auto` or missing. Alternatives differ from the translation
                         and do not change it. `target` chooses the language of a multilingual model, and may be
                         missing for other models.
    GET  /languages      The languages of the model.
    POST /detect         501: a model of one source language cannot detect languages.
    GET  /health         {"status": "ok", "waiting": number of lines that wait for the model}
    GET  /               The page.
    POST /api/translate  The same fields. Answer: a record for each line of each text, as the page shows it:
                         {"lines": [{"source": …, "candidates": [{"text", "log_prob", "score", "alignment"}, …]}, …]}.
                         Candidates are sorted, best first. log_prob is log P(y | x) in nats. The alignment has pairs of
                         a source word and a target word, counted from 0 and separated by whitespace; it is empty for
                         an exported model.

HEAD is answered wherever GET is. An error is {"error": "what and why"} with one of these status codes:

    400  the request cannot be parsed or translated     405  another method is needed
    403  missing or wrong key, or another site's page   408  the request takes too long to arrive
    404  no such path                                   413  too much text
    415  neither JSON nor a form                        421  the Host header names another server
    500  the translation failed                         501  language detection
    503  too many requests (see Retry-After), or the server is shutting down

May import report and what it may import.
"""
