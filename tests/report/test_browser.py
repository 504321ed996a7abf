"""A real browser on a real MLflow server: what a reviewer sees in the run's artifacts.

``pytest tests/report/test_browser.py --screenshots docs/images`` renews the pictures of the docs.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pytest

import biasbios_mlflow
from biasbios_mlflow.pipeline import Evaluation
from biasbios_mlflow.report.files import write_files
from tests.conftest import Registered
from tests.report.conftest import HOSTILE

sync_api = pytest.importorskip("playwright.sync_api")

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_SLOW = 120_000  # milliseconds: MLflow's page is several megabytes of scripts


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium, as the system brings it."""
    program = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if program is None:
        pytest.skip("no Chromium: apt-get install chromium, or name one in CHROMIUM")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def run_page(registered: Registered, bios: pd.DataFrame, mlflow_server: str) -> str:
    """Address of the artifacts of an evaluation of the sample and some hostile bios."""
    frame = bios.copy()
    for row in range(0, len(frame), 3):
        frame.loc[row, "hard_text"] = f"{HOSTILE} {frame.loc[row, 'hard_text']}"
    result = biasbios_mlflow.evaluate(registered.uri, frame, min_cell=2, scope="words")
    assert any(HOSTILE[:20] in text for text in result.artifacts["biasbios/flips"].content["text"])
    experiment = mlflow.get_run(result.run_id).info.experiment_id
    return f"{mlflow_server}/#/experiments/{experiment}/runs/{result.run_id}/artifacts/biasbios"


class Watched:
    """A page whose requests and complaints are recorded."""

    def __init__(self, browser: Any, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.context.set_default_timeout(_SLOW)
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._hear)

    def _hear(self, message: Any) -> None:
        # MLflow's page asks for a user that a server without log-in does not have.
        if message.type in {"error", "warning"} and "ajax-api" not in str(message.location):
            self.complaints.append(f"{message.text} {message.location}")

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *failure: object) -> None:
        self.context.close()

    def assert_quiet(self, own: str) -> None:
        """No complaint, and no request to anywhere but ``own``."""
        assert self.complaints == []
        away = [url for url in self.requests if not url.startswith((own, f"blob:{own}", "data:"))]
        assert away == []


def report_frame(page: Any) -> Any:
    """Return the sandboxed frame in which MLflow shows HTML, once the report is in it."""
    element = page.wait_for_selector("iframe")
    assert element.get_attribute("sandbox") == "allow-scripts"
    frame = element.content_frame()
    frame.wait_for_selector("h1")
    return frame


def test_report_in_mlflow(
    browser: Any, run_page: str, mlflow_server: str, registered: Registered
) -> None:
    with Watched(browser, viewport={"width": 1500, "height": 1000}) as watched:
        watched.page.goto(f"{run_page}/report.html")
        frame = report_frame(watched.page)
        assert frame.inner_text("h1") == f"{registered.name} version {registered.version}"
        # Hostile bios are there as text and ran nothing.
        shown = frame.inner_text("main")
        assert '<img src="x" onerror="document.title = \'owned\'">' in shown
        assert "</td></table></script><script>" in shown
        assert "owned" not in frame.title()
        assert "owned" not in watched.page.title()
        assert frame.locator("img").count() == 0
        assert frame.locator("mark").count() > 20
        # Sorting, by mouse and by keyboard.
        table = frame.locator("table.sortable").first
        head = table.locator("th", has_text="women").first
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == "descending"
        counts = [
            int(x.replace(",", "")) for x in table.locator("td:nth-child(3)").all_inner_texts()
        ]
        assert counts == sorted(counts, reverse=True)
        head.locator("button").focus()
        watched.page.keyboard.press("Enter")
        assert head.get_attribute("aria-sort") == "ascending"
        counts = [
            int(x.replace(",", "")) for x in table.locator("td:nth-child(3)").all_inner_texts()
        ]
        assert counts == sorted(counts)
        watched.assert_quiet(mlflow_server)


@pytest.mark.parametrize("name", ["occupation_gaps.png", "flips.png"])
def test_figures_in_mlflow(browser: Any, run_page: str, mlflow_server: str, name: str) -> None:
    with Watched(browser) as watched:
        watched.page.goto(f"{run_page}/{name}")
        image = watched.page.locator("img[src^=blob], img[src*=artifact]").first
        image.wait_for()
        watched.page.wait_for_function(
            "image => image.complete && image.naturalWidth > 500", arg=image.element_handle()
        )
        watched.assert_quiet(mlflow_server)


@pytest.mark.parametrize(
    ("name", "text"), [("flips.csv", "onerror="), ("occupation_gaps.json", "women_share")]
)
def test_tables_in_mlflow(
    browser: Any, run_page: str, mlflow_server: str, name: str, text: str
) -> None:
    with Watched(browser, viewport={"width": 1900, "height": 1000}) as watched:
        watched.page.goto(f"{run_page}/{name}")
        watched.page.get_by_text(text).first.wait_for(state="attached")
        assert watched.page.locator("img[src=x]").count() == 0
        assert "owned" not in watched.page.title()
        watched.assert_quiet(mlflow_server)


@pytest.fixture(scope="module")
def report(hostile_evaluation: Evaluation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report as a file, with hostile labels as well."""
    folder = tmp_path_factory.mktemp("report")
    model = {"uri": None, "model_id": None, "versions": []}
    write_files(hostile_evaluation, folder, model=model, data={"name": "x", "digest": "y"})
    return folder / "report.html"


@pytest.mark.parametrize(
    "options",
    [
        {"viewport": {"width": 390, "height": 800}},
        {"color_scheme": "dark"},
        {"java_script_enabled": False},
        {"forced_colors": "active"},
    ],
    ids=["phone", "dark", "no scripts", "forced colours"],
)
def test_report_as_a_file(browser: Any, report: Path, options: dict[str, Any]) -> None:
    with Watched(browser, **options) as watched:
        watched.page.goto(report.as_uri())
        text = watched.page.inner_text("main")
        assert "<b>poet</b>" in text
        assert "How often the occupation is recognized" in text
        assert watched.page.locator("article").count() > 20
        if options.get("java_script_enabled", True):
            width = watched.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
            assert width[0] <= width[1]
            colours = watched.page.evaluate(
                "[getComputedStyle(document.body).color, "
                "getComputedStyle(document.body).backgroundColor]"
            )
            assert len(set(colours)) == 2
            assert watched.page.title() == "Bias in Bios: a model without a name"
        assert watched.requests == [report.as_uri()]
        assert watched.complaints == []


def test_report_is_readable_by_role(browser: Any, report: Path) -> None:
    with Watched(browser) as watched:
        watched.page.goto(report.as_uri())
        page = watched.page
        for role in ("banner", "main", "navigation"):
            assert page.get_by_role(role).count() == 1
        assert page.get_by_role("region", name="Scored occupations").count() == 1
        assert page.get_by_role("img").count() == 3  # gaps, their parts, flips
        assert page.get_by_role("columnheader", name="occupation").count() >= 1
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Metrics"


def test_report_prints(browser: Any, report: Path) -> None:
    with Watched(browser) as watched:
        watched.page.goto(report.as_uri())
        printed = watched.page.pdf(format="A4")
        assert printed.startswith(b"%PDF")
        watched.page.emulate_media(media="print")
        assert not watched.page.locator("nav").is_visible()


def test_screenshots_of_the_sample(
    browser: Any, registered: Registered, request: pytest.FixtureRequest, mlflow_server: str
) -> None:
    """The pictures of README and docs; written where ``--screenshots`` says."""
    folder = request.config.getoption("--screenshots")
    if folder is None:
        pytest.skip("no --screenshots")
    Path(folder).mkdir(parents=True, exist_ok=True)
    from biasbios_mlflow.training import train

    uri = train("sample", register="occupations-of-the-sample").model_uri
    result = biasbios_mlflow.evaluate(uri, "sample", split="test", scope="words")
    run = mlflow.get_run(result.run_id)
    page = f"{mlflow_server}/#/experiments/{run.info.experiment_id}/runs/{result.run_id}/artifacts"
    with Watched(browser, viewport={"width": 1500, "height": 1050}) as watched:
        watched.page.goto(f"{page}/biasbios/report.html")
        report_frame(watched.page)
        for name in ("Close", "close"):
            assistant = watched.page.get_by_role("button", name=name)
            if assistant.count():
                assistant.first.click()
        watched.page.wait_for_timeout(1000)
        watched.page.screenshot(path=f"{folder}/mlflow.png")
    saved = Path(folder) / "report.html"
    result.artifacts["biasbios/report"]._save(str(saved))
    with Watched(browser, viewport={"width": 1100, "height": 900}) as watched:
        watched.page.goto(saved.resolve().as_uri())
        for name in ("occupations", "why", "changes"):
            top = watched.page.locator(f"#{name}").bounding_box()
            height = min(top["height"], 1400)
            clip = {"x": 0, "y": top["y"], "width": 1100, "height": height}
            watched.page.screenshot(path=f"{folder}/{name}.png", full_page=True, clip=clip)
    saved.unlink()
