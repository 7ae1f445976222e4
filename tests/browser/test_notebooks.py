"""A notebook that is really executed, written as HTML by nbconvert, and looked at in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from places import PICTURES
from playwright.sync_api import Page

CELLS = (
    "import torch\nfrom torch import nn\nimport modelglass as mg\n"
    "block = lambda: nn.Sequential(nn.Sequential(nn.Linear(16, 16), nn.ReLU()))\n"
    "model = nn.Sequential(*[block() for _ in range(4)], nn.Linear(16, 2))\n"
    "report = mg.inspect(model, torch.zeros(8, 16), train=True)\nreport",
    "mg.show(report)",
    "mg.flow(report)",
    "mg.fit(model, torch.zeros(8, 16), device_memory='1GiB')",
    "mg.summary(model, (16,))",
    "mg.show(report, width=80)",
)


@pytest.fixture(scope="module")
def executed() -> Any:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in CELLS])
    return NotebookClient(notebook, timeout=300, kernel_name="python3").execute()


def test_results_are_rich_and_keep_their_text(executed: Any) -> None:
    *rich, printed = [cell.outputs for cell in executed.cells]
    for outputs in rich:
        (output,) = [each for each in outputs if each.output_type in ("execute_result", "display_data")]
        assert output.data.keys() >= {"text/plain", "text/html"}
        assert "<script" not in output.data["text/html"]
    assert [each.output_type for each in printed] == ["stream"]


def test_the_notebook_reads_in_a_browser(executed: Any, page: Page, tmp_path: Path) -> None:
    content, _ = HTMLExporter(template_name="basic").from_notebook_node(executed)
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html><meta charset=utf-8><body>{content}", encoding="utf-8")
    page.goto(path.as_uri())
    assert page.locator(".modelglass-cell").count() == len(CELLS) - 1
    tree = page.locator(".modelglass-tree").first
    linear = tree.get_by_text("Linear", exact=True).first
    assert not linear.is_visible()
    tree.locator("details:not([open]) > summary").first.click()
    assert linear.is_visible()
    assert page.locator("img[alt*='data flow']").evaluate("image => image.naturalWidth") > 100
    page.screenshot(path=PICTURES / f"notebook-{page.scheme}.png", full_page=True)  # type: ignore[attr-defined]
