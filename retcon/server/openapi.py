"""The OpenAPI document, and the page at /docs that shows it: plain HTML, no script, nothing from another machine."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastapi import FastAPI

_CODE = re.compile(r"(?<!`)`([^`]++)`")
DESCRIPTION = (
    "Memory for language agents under a token budget. Keys go into `Authorization: Bearer`; a key that is bound to a"
    ' scope sees that scope and nothing else. Every error is `{"error": {"code", "message"}}`.'
)
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'",
}
_ASKED = {("DELETE", "/memories"): "?user_id=ann"}  # what a route without a body cannot do without
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem; color: #1b1f24;
  background: #fff }
h2 { margin-top: 2.5rem; font-size: 1.1rem } code, pre { font: 14px/1.45 ui-monospace, monospace }
pre { background: #f3f5f7; padding: .8rem; border-radius: 6px; overflow-x: auto; white-space: pre-wrap }
.method { display: inline-block; min-width: 4.5rem; font-weight: 600; color: #0b5d4e } table { border-spacing: 0 }
td { padding: .1rem 1rem .1rem 0; vertical-align: top } summary { cursor: pointer; margin: .4rem 0 }
@media (prefers-color-scheme: dark) { body { color: #e6e9ec; background: #14181c } pre { background: #1f262d }
  .method { color: #6fd3bd } a { color: #8ab4f8 } }
"""


def document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document of the app, with the key scheme and with our own shape of errors alone."""
    found = app.openapi()
    parts = found.setdefault("components", {})
    parts["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    found["security"] = [{"key": []}, {}]
    for route in (route for methods in found["paths"].values() for route in methods.values()):
        for code, answer in route["responses"].items():
            if code != "200" and "text/plain" in answer["content"]:  # errors are JSON also where the answer is not
                answer["content"]["application/json"] = answer["content"].pop("text/plain")
    return found


def html(found: dict[str, Any]) -> str:
    """The document as a page for people."""
    return "\n".join(_page(found))


def _page(found: dict[str, Any]) -> Iterator[str]:
    yield "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
    yield f"<title>retcon {escape(found['info']['version'])}: API</title><style>{_STYLE}</style><main>"
    yield f"<h1>retcon {escape(found['info']['version'])}</h1><p>{_prose(found['info']['description'])}</p>"
    yield "<p>For programs: <a href=openapi.json>openapi.json</a></p>"
    for path, methods in found["paths"].items():
        for method, route in methods.items():
            yield from _route(found, path, method.upper(), route)
    yield "</main></html>"


def _route(found: dict[str, Any], path: str, method: str, route: dict[str, Any]) -> Iterator[str]:
    yield f"<h2><span class=method>{method}</span> <code>{escape(path)}</code></h2>"
    yield f"<p>{_prose(route.get('description', ''))}</p>"
    asked = _schema(found, route.get("requestBody", {}))
    yield f"<pre>{escape(_curl(path, method, asked))}</pre>"
    yield from _fields(asked, route.get("parameters", []))
    for code, answer in route["responses"].items():
        shown = _schema(found, answer)
        yield f"<details><summary>{code}: {_prose(answer.get('description', ''))}</summary>"
        own = answer.get("content", {}).get("application/json", {}).get("example")
        for example in [own] if own else shown.get("examples", [])[:1]:
            yield f"<pre>{escape(json.dumps(example, indent=2))}</pre>"
        yield "</details>"


def _curl(path: str, method: str, asked: dict[str, Any]) -> str:
    first = "" if method == "GET" else f" -X {method}"
    where = path.replace("{id}", "4f1c2a") + _ASKED.get((method, path), "")
    line = f'curl{first} "$URL{where}" -H "Authorization: Bearer $KEY"'
    if not asked:
        return line
    example = json.dumps(asked.get("examples", [{}])[0])
    return f"{line} \\\n  -H 'Content-Type: application/json' -d '{example}'"


def _fields(asked: dict[str, Any], parameters: list[dict[str, Any]]) -> Iterator[str]:
    named = [(name, field.get("description", "")) for name, field in asked.get("properties", {}).items()]
    named += [(each["name"], each.get("description", "")) for each in parameters]
    if named:
        rows = (f"<tr><td><code>{escape(name)}</code><td>{_prose(text)}" for name, text in named)
        yield f"<details><summary>fields</summary><table>{''.join(rows)}</table></details>"


def _prose(text: str) -> str:
    """The text as HTML; what stands between backticks, as the document writes code for other viewers, is code here."""
    return _CODE.sub(r"<code>\1</code>", escape(text))


def _schema(found: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """The schema of a body, looked up where it is a reference."""
    schema = part.get("content", {}).get("application/json", {}).get("schema", {})
    name = schema.get("$ref", "").rpartition("/")[2]
    return dict(found["components"]["schemas"].get(name, schema))
