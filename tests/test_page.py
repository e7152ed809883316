"""The page at /, without a browser: what it is served with, and what it keeps to itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from browser import REPORT

from retcon import sample
from retcon.errors import InputError

pytest.importorskip("fastapi")

from fastapi import FastAPI, Request
from fastapi.testclient import TestClient

from retcon.server import page


def client(reports: Path | None = None, guard: Callable[[Request], object] | None = None) -> TestClient:
    app = FastAPI()
    page.mount(app, reports=reports, guard=guard)
    return TestClient(app)


def test_page_allows_no_script_style_or_request_but_its_own() -> None:
    reply = client().get("/")
    policy = dict(part.strip().split(" ", 1) for part in reply.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == policy["frame-ancestors"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert "frame-src" not in policy  # so nothing may be framed
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["referrer-policy"] == "no-referrer"


def test_page_names_no_other_machine_and_no_inline_script_or_style() -> None:
    known = page.assets()
    texts = [known.front.body.decode(), *(asset.body.decode() for asset in known.files.values())]
    addresses = {found for text in texts for found in re.findall(r"https?://[^\s\"'`)]+", text)}
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert not re.search(r"<style|style=|<script(?![^>]*\bsrc=)|\son\w+=", known.front.body.decode())
    assert not any(re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b", text) for text in texts)


def test_assets_are_kept_for_good_under_a_hash_and_the_front_is_asked_for_again() -> None:
    site = client()
    front = site.get("/")
    assert front.headers["cache-control"] == "no-cache"
    paths = re.findall(r'(?:src|href)="(page/[^"]+)"', front.text)
    assert {Path(path).name for path in paths} == {"icon.svg", "style.css", "theme.js", "app.js"}
    for path in paths:
        reply = site.get(f"/{path}")
        assert reply.status_code == 200
        assert "immutable" in reply.headers["cache-control"]
        assert reply.headers["content-security-policy"] == page.POLICY


def test_every_module_that_is_imported_is_served_as_javascript() -> None:
    site, known = client(), page.assets()
    for name, asset in known.files.items():
        for other in re.findall(r'from "\./([^"]+)"', asset.body.decode()):
            reply = site.get(f"/page/{known.digest}/{other}")
            assert reply.status_code == 200, (name, other)
            assert reply.headers["content-type"].startswith("text/javascript")


def test_unchanged_page_is_not_sent_twice() -> None:
    site = client()
    tag = site.get("/").headers["etag"]
    again = site.get("/", headers={"If-None-Match": f'"other", W/{tag}'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert site.get("/", headers={"If-None-Match": '"other"'}).status_code == 200


@pytest.mark.parametrize("path", ["0000000000000000/app.js", "{digest}/index.html", "{digest}/page.py", "{digest}/nix"])
def test_other_hashes_and_other_files_are_not_found(path: str) -> None:
    reply = client().get(f"/page/{path.format(digest=page.assets().digest)}")
    assert reply.status_code == 404
    assert reply.json()["error"]["code"] == "not_found"


def test_page_is_no_part_of_the_api_schema() -> None:
    assert client().get("/openapi.json").json()["paths"] == {}


@pytest.mark.parametrize(
    "path",
    [
        "../secret.html", "..%2fsecret.html", "%2e%2e/secret.html", "tables/../../secret.html", "/etc/passwd",
        "%2fetc/passwd", "..\\secret.html", "link.html", ".hidden.html", "program.exe", "tables", "nix.html",
        "report.html%00", "x" * 5000, "tables/%2e%2e%2f%2e%2e/secret.html", "//secret.html",
    ],
)  # fmt: skip
def test_report_gives_nothing_outside_its_folder(reports: Path, path: str) -> None:
    reply = client(reports).get(f"/page/report/{path}")
    assert reply.status_code == 404
    assert "secret" not in reply.text


def test_traversal_is_refused_also_without_a_client_that_tidies_paths(reports: Path) -> None:
    for path in (
        "../secret.html",
        "a/../../secret.html",
        "/../secret.html",
        "..",
        "\0",
        "link.html",
        "./../secret.html",
    ):
        assert page.within(reports.resolve(), path) is None, path
    assert page.within(reports.resolve(), "") == reports.resolve() / "report.html"


def test_report_is_served_in_a_sandbox_of_its_own(reports: Path) -> None:
    site = client(reports)
    (found,) = site.get("/page/report.json").json()["reports"]
    assert found["url"] == "page/report/report.html"
    reply = site.get(f"/{found['url']}")
    assert reply.text == REPORT
    policy = reply.headers["content-security-policy"]
    assert "sandbox allow-scripts" in policy
    assert "allow-same-origin" not in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert site.get("/page/report/tables/crossover.csv").headers["content-type"].startswith("text/csv")


def test_crossovers_are_those_that_we_measured(reports: Path) -> None:
    (found,) = client(reports).get("/page/report.json").json()["reports"]
    assert {each.pop("group") for each in found["crossovers"]} == {"LoCoMo, full history"}
    nowhere = {"mean": None, "low": None, "high": None}
    assert found["crossovers"] == [
        {"action": "Extract", "text": "171 [56, above 256]", "mean": 170.9, "low": 56.2, "high": None},
        {"action": "Merge", "text": "above 256 [below 32, above 256]", **nowhere},
    ]


def test_findings_are_those_of_the_summary_and_a_strange_one_is_none(reports: Path) -> None:
    (found,) = client(reports).get("/page/report.json").json()["reports"]
    assert found["title"] == "Measured"
    verdicts = [{"study": "LoCoMo, full history", "verdict": "Yes, at 32 tokens."}]
    assert found["findings"] == [{"question": "When does it pay?", "answers": verdicts}]
    for strange in ("[", "[]", "7", '{"findings": 1}', '{"findings": [{"question": "?"}]}', "[" * 100_000):
        (reports / "summary.json").write_text(strange, encoding="utf-8")
        (found,) = client(reports).get("/page/report.json").json()["reports"]
        assert (found["title"], found["findings"]) == ("", [])


def test_page_is_small_enough_to_load_at_once() -> None:
    known = page.assets()
    sizes = [len(asset.body) for asset in (known.front, *known.files.values())]
    assert sum(sizes) < 105_000


def test_folder_of_reports_lists_each(reports: Path) -> None:
    (reports.parent / "other").mkdir()
    (reports.parent / "other" / "index.html").write_text("two", encoding="utf-8")
    site = client(reports.parent)
    found = site.get("/page/report.json").json()["reports"]
    assert [each["name"] for each in found] == ["other", "report"]
    assert [site.get(f"/{each['url']}").text for each in found] == ["two", REPORT]


def test_guarded_reports_lie_under_a_name_that_only_the_list_tells(reports: Path) -> None:
    def guard(request: Request) -> None:
        if request.headers.get("authorization") != "Bearer yes":
            raise PermissionError

    site = client(reports, guard)
    with pytest.raises(PermissionError):
        site.get("/page/report.json")
    (found,) = site.get("/page/report.json", headers={"Authorization": "Bearer yes"}).json()["reports"]
    assert site.get(f"/{found['url']}").text == REPORT
    assert site.get("/page/report/report.html").status_code == 404
    assert site.get(f"/{found['url'].replace('report.html', '../secret.html')}").status_code == 404


def test_no_report_is_an_empty_list_and_a_missing_folder_an_error(tmp_path: Path) -> None:
    assert client().get("/page/report.json").json() == {"reports": []}
    assert client().get("/page/report/report.html").status_code == 404
    with pytest.raises(InputError, match="no folder of reports"):
        client(tmp_path / "nix")


def test_sample_is_the_shipped_conversation() -> None:
    given = client().get("/page/sample.json").json()
    assert given["notes"] == sample.notes()
    assert {each.question for each in sample.questions()} > set(given["questions"])
