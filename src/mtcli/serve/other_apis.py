"""Routes of other translation services, for programs that speak no other. Each translates as `/translate` does.

`deepl`: DeepL's API, as its client for Python and Weblate use it. `get`: a GET request for a text, as OmegaT's generic
plug-in sends it. `opus-cat`: the REST service of OPUS-CAT.
"""

from collections.abc import Collection
from typing import Any, Literal

from fastapi import APIRouter, Request
from pydantic import AliasChoices, Field, ValidationError
from starlette.exceptions import HTTPException

from mtcli.serve.requests import (
    Bodies,
    Fields,
    RequestFields,
    TranslationRequest,
    header_key,
    invalid,
    key_in_query_refused,
    query_fields,
    read_request,
)
from mtcli.serve.translation import TranslatedTexts, TranslationService
from mtcli.text.languages import base, english_name

TRANSLATING_PATHS = {"get": "/translate", "opus-cat": "/MTRestService/TranslateJson"}
"""Paths of GET requests that translate, by API."""

APIS = ("deepl", *TRANSLATING_PATHS)

DEEPL = "/v2/"
"""The paths of DeepL's API begin with it."""

NOT_SUPPORTED = ("glossary_id", "glossary_ids", "style_id", "translation_memory_id", "custom_instructions")
"""Fields of DeepL's request that choose words. They are refused; those about style and splitting are ignored."""


class DeeplFields(RequestFields):
    """The field that all requests of DeepL's clients can have."""

    api_key: str = Field("", validation_alias=AliasChoices("api_key", "auth_key"))
    """Older clients send it as `auth_key`."""


class DeeplRequest(DeeplFields):
    """The fields of DeepL's request for translation."""

    text: str | list[str]
    source_lang: str = "auto"
    target_lang: str = ""
    tag_handling: Literal["", "xml", "html"] = ""
    glossary_id: Any = None
    glossary_ids: Any = None
    style_id: Any = None
    translation_memory_id: Any = None
    custom_instructions: Any = None


class DeeplLanguagesRequest(DeeplFields):
    """The fields of DeepL's request for languages."""

    type: Literal["source", "target"] = "source"


class GetRequest(RequestFields):
    """The fields of a GET request for the translation of a text."""

    text: str = Field("", validation_alias=AliasChoices("text", "q"))
    source: str = "auto"
    target: str = ""


class OpusCatRequest(RequestFields):
    """The fields of OPUS-CAT's request for translation."""

    text: str = Field("", alias="input")
    source: str = Field("auto", alias="srcLangCode")
    target: str = Field("", alias="trgLangCode")
    token: str = Field("", alias="tokenCode")
    """The key. Without one, programs send any text."""


def other_routes(service: TranslationService, bodies: Bodies, apis: Collection[str]) -> APIRouter:
    """Return the routes of some of `APIS`."""
    router = APIRouter()
    if "deepl" in apis:
        _add_deepl(router, service, bodies)
    if "get" in apis:
        _add_get(router, service)
    if "opus-cat" in apis:
        _add_opus_cat(router, service)
    return router


def _add_deepl(router: APIRouter, service: TranslationService, bodies: Bodies) -> None:
    """Add the routes of DeepL's API."""

    @router.post(f"{DEEPL}translate")
    async def deepl_translate(request: Request) -> dict[str, Any]:
        fields = await read_request(request, bodies, service.limits, DeeplRequest)
        for name in NOT_SUPPORTED:
            if getattr(fields, name):
                raise HTTPException(400, f"{name}: not supported; the server may have a memory instead (--memory)")
        texts = [fields.text] if isinstance(fields.text, str) else fields.text
        found = await _translated(
            service,
            request,
            texts,
            fields.source_lang,
            fields.target_lang,
            key=fields.api_key,
            form="html" if fields.tag_handling else "text",
        )
        detected = _deepl_code(found.src)
        return {
            "translations": [
                {"detected_source_language": detected, "text": text, "billed_characters": len(source)}
                for source, (text, *_) in zip(texts, found.texts, strict=True)
            ]
        }

    @router.api_route(f"{DEEPL}languages", methods=["GET", "POST"], include_in_schema=False)
    async def deepl_languages(request: Request) -> list[dict[str, Any]]:
        fields = await read_request(request, bodies, service.limits, DeeplLanguagesRequest, may_be_empty=True)
        service.check_key(fields.api_key)
        side = 0 if fields.type == "source" else 1
        codes = dict.fromkeys(pair[side] for pair in service.models.pairs)
        more = {} if fields.type == "source" else {"supports_formality": False}
        return [{"language": _deepl_code(code), "name": english_name(code), **more} for code in codes]


def _add_get(router: APIRouter, service: TranslationService) -> None:
    """Add the route of a GET request for the translation of a text."""

    @router.get(TRANSLATING_PATHS["get"])
    async def get_translation(request: Request) -> dict[str, str]:
        if not request.url.query:
            raise HTTPException(400, "send text, source and target in the query of the address")
        fields = _of_query(request, service, GetRequest).with_key_of(request)
        key = fields.api_key
        found = await _translated(service, request, [fields.text], fields.source, fields.target, key=key)
        return {"translation": found.texts[0][0]}


def _add_opus_cat(router: APIRouter, service: TranslationService) -> None:
    """Add the route of OPUS-CAT."""

    @router.get(TRANSLATING_PATHS["opus-cat"])
    async def translate_json(request: Request) -> dict[str, str]:
        fields = _of_query(request, service, OpusCatRequest)
        key = header_key(request)
        if service.needs_key and not key:
            if not service.limits.key_in_query:
                raise key_in_query_refused()
            key = fields.token
        found = await _translated(service, request, [fields.text], fields.source, fields.target, key=key)
        return {"translation": found.texts[0][0]}


def _of_query(request: Request, service: TranslationService, fields: type[Fields]) -> Fields:
    """Return the fields in the query of the address.

    Raises:
        HTTPException: 403 for a key in the query, 400 for a query that is not valid.
    """
    try:
        return fields.model_validate(query_fields(request, key_in_query=service.limits.key_in_query))
    except ValidationError as error:
        raise invalid(error) from None
    except ValueError as error:
        raise HTTPException(400, f"the address is not valid: {error}") from None


async def _translated(
    service: TranslationService,
    request: Request,
    texts: list[str],
    source: str,
    target: str,
    *,
    key: str,
    form: str = "text",
) -> TranslatedTexts:
    """Translate texts as `/translate` does.

    Raises:
        HTTPException: See `TranslationService.checked` and `TranslationService.translate_texts`.
    """
    sources, targets = (set(codes) for codes in zip(*service.models.pairs, strict=True))
    resolved = service.models.resolve(source, target)
    src, tgt = (_served(code, codes) for code, codes in zip(resolved, (sources, targets), strict=True))
    fields = TranslationRequest(q=texts, source=src, target=tgt, format=form, api_key=key)
    return await service.translate_texts(request, service.checked(fields))


def _served(code: str, codes: Collection[str]) -> str:
    """Return a code of this server for one that has a script, such as `ZH-HANS`, or three letters."""
    return code if code in codes else base(code) or code


def _deepl_code(code: str) -> str:
    return code.replace("_", "-").upper()
