"""Programs that work with `mtcli serve`: requests as their sources send them."""

import http.client
import json
import urllib.parse
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers.harness import mtcli
from helpers.processes import HANGS
from helpers.servers import BOUNDARY, OPTIONS, Site, multipart, started
from helpers.toy import PAIRS, toy

from mtcli import __version__
from mtcli.cli.serve import APIS as COMMAND_APIS
from mtcli.cli.serve import _checked_apis
from mtcli.errors import UsageError
from mtcli.serve.app import ServerSettings, create_app
from mtcli.serve.models import ServedModel
from mtcli.serve.origin_check import checked_origin
from mtcli.serve.other_apis import APIS
from mtcli.serve.requests import RequestLimits
from mtcli.translate.memory import Entry, Memory

LINE, TRANSLATION = PAIRS[7]
OTHER, OTHER_TRANSLATION = PAIRS[8]
KEY = "secret"


@contextmanager
def serving(api_key: str | None = None, *, limits: RequestLimits | None = None, **options: Any) -> Iterator[Site]:
    model = ServedModel(toy(), OPTIONS, "en", ("es",))
    with started(create_app([model], ServerSettings(limits or RequestLimits(), api_key, **options))) as site:
        yield site


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with serving() as found:
        yield found


def send(site: Site, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, Any, dict[str, str]]:
    """Send a request with any method. Return status, JSON or text, and headers of the answer."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    with closing(http.client.HTTPConnection("127.0.0.1", site.port, timeout=HANGS)) as connection:
        connection.request(method, path, body or None, names)
        answer = connection.getresponse()
        text = answer.read().decode()
        found = {name.lower(): value for name, value in answer.getheaders()}
    return answer.status, json.loads(text) if "json" in found.get("content-type", "") else text, found


def form_data(*fields: tuple[str, str]) -> tuple[bytes, str]:
    """Return a multipart form as browsers and PHP send it, and its media type."""
    parts = [f'--limit\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in fields]
    return "".join([*parts, "--limit--\r\n"]).encode(), "multipart/form-data; boundary=limit"


def query(**fields: str) -> str:
    return urllib.parse.urlencode(fields)


# ---- forms of LibreTranslate's API ----


def test_multipart_forms_are_taken(site: Site) -> None:
    body, media_type = form_data(("q", f"{LINE}\r\n{OTHER}"), ("source", "en"), ("target", "es"), ("api_key", ""))
    status, answer, _ = send(site, "POST", "/translate", body, content_type=media_type)
    assert (status, answer) == (200, {"translatedText": f"{TRANSLATION}\r\n{OTHER_TRANSLATION}"})
    body, media_type = form_data(("q", LINE), ("q", OTHER), ("source", "en"))
    several = send(site, "POST", "/translate", body, content_type=media_type)[1]
    assert several == {"translatedText": [TRANSLATION, OTHER_TRANSLATION]}
    body, media_type = form_data(("q", "El perro está en la casa."))
    assert send(site, "POST", "/detect", body, content_type=media_type)[1][0]["language"] == "es"


@pytest.mark.parametrize(
    ("body", "media_type", "status"),
    [
        (form_data(("q", LINE))[0][:-9], "multipart/form-data; boundary=limit", 400),
        (form_data(("q", LINE))[0], "multipart/form-data", 400),
        (form_data(("q", LINE))[0], "multipart/form-data; boundary=limit; charset=latin-1", 415),
        (form_data(*[(f"f{number}", "x") for number in range(1001)])[0], "multipart/form-data; boundary=limit", 400),
        (form_data(("x", "y"))[0], "multipart/form-data; boundary=limit", 400),
        (form_data(('q"; filename="q.txt', LINE))[0], "multipart/form-data; boundary=limit", 400),
    ],
)
def test_multipart_forms_that_are_not_valid_are_refused(site: Site, body: bytes, media_type: str, status: int) -> None:
    assert send(site, "POST", "/translate", body, content_type=media_type)[0] == status


def test_a_multipart_form_may_be_as_large_as_any_request() -> None:
    with serving(limits=RequestLimits(body=3_000_000, lines=1_000_000)) as site:
        body, media_type = form_data(("q", "\n" * 1_200_000))
        status, answer, _ = send(site, "POST", "/translate", body, content_type=media_type)
        assert (status, "too large" in str(answer)) == (413, False), answer  # its lines are too many, not its bytes
        body, media_type = form_data(("q", "\n" * 3_000_000))
        assert send(site, "POST", "/translate", body, content_type=media_type)[0] == 413


def test_query_strings_are_taken(site: Site) -> None:
    asked = query(q=LINE, source="en", target="es", api_key="")
    assert send(site, "POST", f"/translate?{asked}")[:2] == (200, {"translatedText": TRANSLATION})
    status, answer, _ = send(site, "POST", f"/detect?{query(q='El perro está en la casa.')}")
    assert (status, answer[0]["language"]) == (200, "es")
    body, media_type = form_data(("q", OTHER))
    both = send(site, "POST", f"/translate?{asked}", body, content_type=media_type)[1]
    assert both == {"translatedText": OTHER_TRANSLATION}  # the form comes before the query
    assert send(site, "POST", "/translate?q=%ff")[0] == 400
    assert send(site, "POST", "/translate")[0] == 415
    assert send(site, "GET", f"/translate?{asked}")[0] == 405


def test_a_key_in_the_address_is_refused_unless_it_is_allowed() -> None:
    asked = query(q=LINE, source="en", api_key=KEY)
    for path in ("/translate", "/detect"):
        with serving(KEY) as site:
            status, answer, _ = send(site, "POST", f"{path}?{asked}")
            assert (status, "--key-in-query" in answer["error"]) == (403, True)
        with serving(KEY, limits=RequestLimits(key_in_query=True)) as site:
            assert send(site, "POST", f"{path}?{asked}")[0] == 200
            assert send(site, "POST", f"{path}?{query(q=LINE, api_key='wrong')}")[0] == 403


def test_the_key_may_be_in_the_header() -> None:
    body, media_type = form_data(("q", LINE), ("source", "en"))
    file = multipart("a.txt", LINE.encode(), source="en", target="es")
    requests = [
        ("/translate", body, media_type),
        ("/translate_file", file, f"multipart/form-data; boundary={BOUNDARY}"),
    ]
    with serving(KEY) as site:
        for header, status in ((f"Bearer {KEY}", 200), ("Bearer wrong", 403), (f"Basic {KEY}", 403), (KEY, 403)):
            for path, content, kind in requests:
                found = send(site, "POST", path, content, content_type=kind, authorization=header)[0]
                assert (path, header, found) == (path, header, status)


def test_a_slash_at_the_end_of_an_address_needs_no_second_request(site: Site) -> None:
    body, media_type = form_data(("q", LINE), ("source", "en"))
    for path in ("/translate/", "/detect/"):
        assert send(site, "POST", path, body, content_type=media_type)[0] == 200
    assert send(site, "GET", "/languages/")[1] == send(site, "GET", "/languages")[1]
    assert send(site, "POST", "/translate_file/")[0] == 415
    assert send(site, "GET", "/health/")[0] == 404


def test_the_settings_of_the_page_of_libretranslate(site: Site) -> None:
    status, answer, _ = send(site, "GET", "/frontend/settings")
    assert status == 200
    assert {".docx", ".html"} <= set(answer.pop("supportedFilesFormat"))
    assert answer == {
        "charLimit": 1_000_000,
        "frontendTimeout": 500,
        "apiKeys": False,
        "keyRequired": False,
        "suggestions": False,
        "filesTranslation": True,
        "language": {"source": {"code": "en", "name": "English"}, "target": {"code": "es", "name": "Spanish"}},
    }
    with serving(KEY) as locked:
        found = send(locked, "GET", "/frontend/settings")[1]
        assert (found["apiKeys"], found["keyRequired"]) == (True, True)


def test_the_specification_names_the_routes_and_their_fields(site: Site) -> None:
    status, answer, _ = send(site, "GET", "/spec")
    assert status == 200
    assert answer["info"] == {"title": "mtcli", "version": __version__}
    assert {"/translate", "/detect", "/languages", "/suggest", "/frontend/settings"} <= answer["paths"].keys()
    content = answer["paths"]["/translate"]["post"]["requestBody"]["content"]
    assert {"q", "source", "target", "format", "api_key"} <= content["multipart/form-data"]["schema"][
        "properties"
    ].keys()


# ---- pages of other sites ----

PAGE = "https://example.org"
JSON = {"content_type": "application/json", "sec_fetch_site": "cross-site"}
PREFLIGHT = {"access_control_request_method": "POST", "access_control_request_headers": "content-type,authorization"}


def test_pages_of_allowed_origins_may_use_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    body = json.dumps({"q": LINE, "source": "en"}).encode()
    with serving(allow_origins=[PAGE, "chrome-extension://abc"]) as site:
        for origin in (PAGE, "chrome-extension://abc"):
            status, _, headers = send(site, "OPTIONS", "/translate", origin=origin, **PREFLIGHT)
            assert (status, headers["access-control-allow-origin"]) == (200, origin)
            assert "POST" in headers["access-control-allow-methods"]
            assert "content-type" in headers["access-control-allow-headers"].lower()
            status, answer, headers = send(site, "POST", "/translate", body, origin=origin, **JSON)
            assert (status, answer["translatedText"]) == (200, TRANSLATION)
            assert headers["access-control-allow-origin"] == origin
            assert "Origin" in headers["vary"]
            assert "access-control-allow-credentials" not in headers
        assert send(site, "GET", "/languages", origin=PAGE)[2]["access-control-allow-origin"] == PAGE


def test_pages_of_allowed_origins_can_read_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(KEY, allow_origins=[PAGE], host="127.0.0.1") as site:
        monkeypatch.setattr("mtcli.serve.app.percent", lambda _: 1 / 0)
        crashing = json.dumps({"q": "A dog sleeps in the garden.", "api_key": KEY}).encode()
        found = [
            send(site, "POST", "/translate", b'{"q": "x"}', origin=PAGE, **JSON),
            send(site, "POST", "/translate", b"{", origin=PAGE, **JSON),
            send(site, "GET", "/nothing", origin=PAGE),
            send(site, "GET", "/translate", origin=PAGE),
            send(site, "GET", "/languages", origin=PAGE, host="evil.example"),
            send(site, "POST", "/detect", crashing, origin=PAGE, **JSON),
        ]
        assert [status for status, _, _ in found] == [403, 400, 404, 405, 421, 500]
        for status, answer, headers in found:
            assert (status, headers.get("access-control-allow-origin")) == (status, PAGE)
            assert answer["error"]


@pytest.mark.parametrize(
    "origin", ["http://example.org", "https://example.org.evil.example", "null", "", "https://x.y"]
)
def test_other_pages_may_not(origin: str) -> None:
    body = json.dumps({"q": LINE, "source": "en"}).encode()
    for options in ({"allow_origins": [PAGE]}, {}):
        with serving(**options) as site:
            status, _, headers = send(site, "POST", "/translate", body, origin=origin, **JSON)
            assert (status, "access-control-allow-origin" in headers) == (403, False)
            status, _, headers = send(site, "OPTIONS", "/translate", origin=origin, **PREFLIGHT)
            assert (status >= 400, "access-control-allow-origin" in headers) == (True, False)


def test_without_allowed_origins_no_answer_has_their_headers(site: Site) -> None:
    for status, _, headers in (send(site, "GET", "/languages", origin=PAGE), send(site, "GET", "/x", origin=PAGE)):
        assert not [name for name in headers if name.startswith("access-control")], status


@pytest.mark.parametrize(
    ("given", "origin"),
    [
        ("https://Example.ORG/", "https://example.org"),
        ("http://localhost:8080", "http://localhost:8080"),
        ("https://example.org:443", "https://example.org"),
        ("http://[::1]:80", "http://[::1]"),
        ("chrome-extension://abcdef", "chrome-extension://abcdef"),
    ],
)
def test_an_origin_is_compared_as_browsers_send_it(given: str, origin: str) -> None:
    assert checked_origin(given) == origin


@pytest.mark.parametrize(
    "given", ["*", "null", "example.org", "https://", "https://a.b/path", "https://a.b c", "", "a://b:x"]
)
def test_what_is_no_origin_is_refused(given: str) -> None:
    with pytest.raises(UsageError, match="not an origin"):
        checked_origin(given)


# ---- programs ----


def test_the_php_client_of_nextcloud(site: Site) -> None:
    """The class `Jefs42\\LibreTranslate`, which Nextcloud's app `integration_libretranslate` uses.

    Its constructor sends a POST to the page and reads the settings with GET, each with an empty multipart form. Texts
    are HTML in a multipart form, and the text to detect is in the query.
    """
    empty, media_type = form_data()
    assert send(site, "POST", "/", empty, content_type=media_type)[0] == 405  # the client ignores the answer
    assert "language" in send(site, "GET", "/frontend/settings", empty, content_type=media_type)[1]
    languages = send(site, "GET", "/languages", empty, content_type=media_type)[1]
    assert {language["code"]: language["name"] for language in languages} == {"en": "English", "es": "Spanish"}
    detected = send(site, "POST", f"/detect?{query(q=LINE, api_key='')}", empty, content_type=media_type)
    assert detected[1][0]["language"] in ("en", "es")
    fields = [("q", LINE), ("format", "html"), ("source", "en"), ("target", "es"), ("api_key", "")]
    body, media_type = form_data(*fields)
    status, answer, _ = send(site, "POST", "/translate", body, content_type=media_type)
    assert (status, answer["translatedText"]) == (200, TRANSLATION)


def test_mastodon(site: Site) -> None:
    """`TranslationService::LibreTranslate` sends several texts as HTML in JSON, and needs `targets` of languages."""
    asked = {"q": [f"<p>{LINE}</p>", OTHER], "source": "auto", "target": "es", "format": "html", "api_key": None}
    body = json.dumps(asked).encode()
    status, answer, _ = send(site, "POST", "/translate", body, content_type="application/json")
    assert (status, answer["translatedText"]) == (200, [f"<p>{TRANSLATION}</p>", OTHER_TRANSLATION])
    assert [found["language"] for found in answer["detectedLanguage"]] == ["en", "en"]
    languages = send(site, "GET", "/languages", content_type="application/json")[1]
    assert {language["code"]: language["targets"] for language in languages} == {"en": ["es"], "es": []}


def test_weblate_as_libretranslate(site: Site) -> None:
    """Weblate sends an url-encoded form, with the address that its user enters and `translate` behind it."""
    body = query(api_key="", q=LINE, source="en", target="es").encode()
    media_type = "application/x-www-form-urlencoded"
    assert send(site, "POST", "/translate", body, content_type=media_type)[1] == {"translatedText": TRANSLATION}
    assert [language["code"] for language in send(site, "GET", "/languages")[1]] == ["en", "es"]


def test_the_plugin_of_omegat_for_libretranslate(site: Site) -> None:
    """It sends an url-encoded form to the address that its user enters, which ends in `/translate`."""
    body = query(q=LINE, source="en", target="es").encode()
    media_type = "application/x-www-form-urlencoded"
    assert send(site, "POST", "/translate", body, content_type=media_type)[1] == {"translatedText": TRANSLATION}


# ---- other services ----

ALL = {"apis": ["deepl", "get", "opus-cat"]}


def test_other_services_are_off_unless_they_are_asked_for(site: Site) -> None:
    asked = query(text=LINE, input=LINE, source="en", srcLangCode="en")
    assert send(site, "POST", "/v2/translate", b"{}", content_type="application/json")[0] == 404
    assert send(site, "GET", "/v2/languages")[0] == 404
    assert send(site, "GET", f"/translate?{asked}")[0] == 405
    assert send(site, "GET", f"/MTRestService/TranslateJson?{asked}")[0] == 404
    with serving(apis=["get"]) as other:
        assert send(other, "GET", f"/translate?{asked}")[0] == 200
        assert send(other, "GET", "/v2/languages")[0] == 404
        assert send(other, "GET", f"/MTRestService/TranslateJson?{asked}")[0] == 404


def test_the_deepl_package() -> None:
    deepl = pytest.importorskip("deepl")
    with serving(KEY, **ALL) as site:
        client = deepl.DeepLClient(KEY, server_url=site.url)
        one = client.translate_text(LINE, target_lang="ES")
        assert (one.text, one.detected_source_lang, one.billed_characters) == (TRANSLATION, "EN", len(LINE))
        several = client.translate_text([LINE, OTHER], source_lang="EN", target_lang="ES", formality="prefer_more")
        assert [result.text for result in several] == [TRANSLATION, OTHER_TRANSLATION]
        page = client.translate_text(f"<p>{LINE}</p>", target_lang="ES", tag_handling="html")
        assert page.text == f"<p>{TRANSLATION}</p>"
        assert [language.code for language in client.get_source_languages()] == ["EN"]
        assert [(language.code, language.name) for language in client.get_target_languages()] == [("ES", "Spanish")]
        with pytest.raises(deepl.DeepLException, match="no model for en → fr"):
            client.translate_text(LINE, source_lang="EN", target_lang="FR")
        with pytest.raises(deepl.AuthorizationException):
            deepl.DeepLClient("wrong", server_url=site.url).translate_text(LINE, target_lang="ES")
        with pytest.raises(deepl.DeepLException, match="glossary_id: not supported"):
            client.translate_text(LINE, source_lang="EN", target_lang="ES", glossary="abc")


def test_requests_of_the_deepl_package() -> None:
    """What `deepl.DeepLClient` sends: texts as JSON with the key in a header, and GET with a form for languages."""
    key = {"authorization": f"DeepL-Auth-Key {KEY}"}
    asked = {"target_lang": "ES", "text": [LINE, OTHER], "show_billed_characters": True}
    with serving(KEY, **ALL) as site:
        body = json.dumps(asked).encode()
        status, answer, _ = send(site, "POST", "/v2/translate", body, content_type="application/json", **key)
        assert (status, answer) == (
            200,
            {
                "translations": [
                    {"detected_source_language": "EN", "text": TRANSLATION, "billed_characters": len(LINE)},
                    {"detected_source_language": "EN", "text": OTHER_TRANSLATION, "billed_characters": len(OTHER)},
                ]
            },
        )
        assert send(site, "GET", "/v2/languages", **key)[1] == [{"language": "EN", "name": "English"}]
        form = {"content_type": "application/x-www-form-urlencoded", **key}
        targets = send(site, "GET", "/v2/languages", b"type=target", **form)[1]
        assert targets == [{"language": "ES", "name": "Spanish", "supports_formality": False}]
        status, answer, _ = send(site, "POST", "/v2/translate", body, content_type="application/json")
        assert (status, answer["message"]) == (403, answer["error"])
        assert send(site, "GET", "/v2/languages")[0] == 403


def test_weblate_as_deepl() -> None:
    """Weblate sends strings as XML, with an empty element `x` for each placeholder, and languages in the query."""
    key = {"authorization": f"DeepL-Auth-Key {KEY}"}
    text = f'{LINE.removesuffix(".")} <x id="9"></x>.'
    asked = {
        "text": [text], "source_lang": "EN", "target_lang": "ES", "formality": "default", "tag_handling": "xml",
        "ignore_tags": ["x"],
    }  # fmt: skip
    with serving(KEY, **ALL) as site:
        body = json.dumps(asked).encode()
        status, answer, _ = send(site, "POST", "/v2/translate", body, content_type="application/json", **key)
        assert (status, answer["translations"][0]["text"].count('<x id="9"></x>')) == (200, 1)
        for side, code in (("source", "EN"), ("target", "ES")):
            found = send(site, "GET", f"/v2/languages?type={side}", **key)[1]
            assert [language["language"] for language in found] == [code]


def test_deepl_by_forms_and_codes_with_regions() -> None:
    with serving(**ALL) as site:
        body = query(auth_key="any", text=LINE, source_lang="EN", target_lang="es-ES").encode()
        form = {"content_type": "application/x-www-form-urlencoded"}
        assert send(site, "POST", "/v2/translate", body, **form)[1]["translations"][0]["text"] == TRANSLATION
        for target in ("ES-419", "ES-LATN", "spa"):
            body = query(text=LINE, target_lang=target).encode()
            assert (target, send(site, "POST", "/v2/translate", body, **form)[0]) == (target, 200)


def test_the_generic_plugin_of_omegat() -> None:
    """OmegaT's plug-in FakeMT: GET with parameters whose names its user enters; the answer is `$.translation`."""
    asked = query(source="en", target="es", text=LINE)
    with serving(**ALL) as site:
        assert send(site, "GET", f"/translate?{asked}")[:2] == (200, {"translation": TRANSLATION})
        assert send(site, "GET", f"/translate?{query(q=LINE, source='EN-US', target='ES')}")[0] == 200
        assert send(site, "GET", "/translate")[0] == 400
        assert send(site, "GET", "/translate?text=%ff")[0] == 400
        assert send(site, "GET", f"/translate?{query(source='fr', target='es', text=LINE)}")[0] == 400
        assert send(site, "POST", f"/translate?{query(q=LINE)}")[1]["translatedText"] == TRANSLATION
    with serving(KEY, **ALL) as site:
        assert send(site, "GET", f"/translate?{asked}")[0] == 403
        status, answer, _ = send(site, "GET", f"/translate?{asked}&api_key={KEY}")
        assert (status, "--key-in-query" in answer["error"]) == (403, True)
        assert send(site, "GET", f"/translate?{asked}", authorization=f"Bearer {KEY}")[0] == 200
    with serving(KEY, limits=RequestLimits(key_in_query=True), **ALL) as site:
        assert send(site, "GET", f"/translate?{asked}&api_key={KEY}")[0] == 200
        assert send(site, "GET", f"/translate?{asked}&api_key=wrong")[0] == 403


def test_programs_that_use_opus_cat() -> None:
    """OmegaT's plug-in for OPUS-CAT, Wordfast and the extension for Chrome send these parameters, some empty."""
    path = "/MTRestService/TranslateJson"
    asked = query(input=LINE, srcLangCode="en", trgLangCode="es", modelTag="")
    with serving(**ALL) as site:
        for token in ("", "0", "any"):
            assert send(site, "GET", f"{path}?tokenCode={token}&{asked}")[:2] == (200, {"translation": TRANSLATION})
        assert send(site, "GET", f"{path}?{asked.replace('=es', '=fi')}")[0] == 400
    with serving(KEY, **ALL) as site:
        status, answer, _ = send(site, "GET", f"{path}?tokenCode={KEY}&{asked}")
        assert (status, "--key-in-query" in answer["error"]) == (403, True)
    with serving(KEY, limits=RequestLimits(key_in_query=True), **ALL) as site:
        assert send(site, "GET", f"{path}?tokenCode={KEY}&{asked}")[0] == 200
        assert send(site, "GET", f"{path}?tokenCode=0&{asked}")[0] == 403


def test_get_requests_that_translate_are_refused_from_pages_of_other_sites() -> None:
    paths = [
        f"/translate?{query(text=LINE, source='en', target='es')}",
        f"/MTRestService/TranslateJson?{query(input=LINE, srcLangCode='en', trgLangCode='es')}",
    ]
    with serving(allow_origins=[PAGE], **ALL) as site:
        for path in paths:
            assert send(site, "GET", path, origin="https://evil.example")[0] == 403
            assert send(site, "GET", path, sec_fetch_site="cross-site")[0] == 403
            assert send(site, "GET", path, origin=PAGE, sec_fetch_site="cross-site")[0] == 200


def test_memories_and_limits_apply_to_other_services() -> None:
    memory = Memory()
    memory.add(Entry(LINE, "De la memoria."))
    model = ServedModel(toy(), OPTIONS, "en", ("es",), memories={"es": memory})
    with started(create_app([model], ServerSettings(RequestLimits(lines=3), apis=["get", "deepl"]))) as site:
        assert send(site, "GET", f"/translate?{query(text=LINE)}")[1] == {"translation": "De la memoria."}
        assert send(site, "GET", f"/translate?{query(text='a' + chr(10) * 9)}")[0] == 413
        body = json.dumps({"text": ["a", "b", "c", "d"], "target_lang": "ES"}).encode()
        assert send(site, "POST", "/v2/translate", body, content_type="application/json")[0] == 413


def test_the_option_takes_names_by_commas_and_repeated(tmp_path: Path) -> None:
    done = mtcli("serve", "--model", "none", "--api", "deepl,google", cwd=tmp_path)
    assert (done.returncode, b"--api google: choose from deepl, get, opus-cat" in done.stderr) == (2, True)
    assert _checked_apis(["deepl, GET", "opus-cat"]) == set(APIS)
    assert COMMAND_APIS == APIS
