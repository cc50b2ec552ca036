"""Models over HTTP: the LibreTranslate API for programs, and a page for people.

    POST /translate      Fields: q (a text or a list of texts), source, target, format (text or html), alternatives,
                         terms, api_key; as JSON or as a form. Answer: {"translatedText": …}, with "alternatives" if
                         requested, and with "detectedLanguage" if source is `auto` or missing. Texts are translated
                         sentence by sentence. Alternatives differ from the translation and do not change it. `target`
                         may be missing where the source language has only one.
    POST /translate_file Fields: file, source, target, terms, api_key; as a multipart form.
                         Answer: {"translatedFileUrl": …}.
    GET  /download_file/KEY/NAME  A translated file, for half an hour.
    POST /detect         Fields: q, api_key. Answer: [{"language": …, "confidence": per cent}, …], the most probable
                         first, among the languages of the models.
    GET  /languages      The languages of the models.
    GET  /health         {"status": "ok", "waiting": number of lines that wait for the models}
    GET  /               The page.
    POST /api/translate  The fields of /translate. Answer: a record for each line of each text, as the page shows it:
                         {"lines": [{"source": …, "candidates": [{"text", "log_prob", "score", "alignment"}, …]}, …]}.
                         Candidates are sorted, best first. log_prob is log P(y | x) in nats, summed over the sentences
                         of the line, as the score is. The alignment has pairs of a source word and a target word,
                         counted from 0 and separated by whitespace; it is empty if the model reports none.

HEAD is answered wherever GET is. An error is {"error": "what and why"} with one of these status codes:

    400  the request or the file cannot be read or translated   408  the request takes too long to arrive
    403  missing or wrong key, or another site's page            413  too much text
    404  no such path or file                                    415  not the form of this path
    405  another method is needed                                421  the Host header names another server
    500  the translation failed                                  503  too many requests (see Retry-After), or the
                                                                      server is shutting down
"""
