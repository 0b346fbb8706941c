"""The report is one self-contained page, and equal outcomes give equal pages."""

from __future__ import annotations

import base64
import re
import subprocess
import sys
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from hai_backend.sim.report.html import report

SETTINGS = {"gpus_per_node": 8, "packed": False, "time_scale": 1.0, "flat_priority": False}
IMAGE = re.compile(r'src="data:image/svg\+xml;base64,([^"]+)"')
VOID = {"meta", "img"}


class Balanced(HTMLParser):
    """Fails on tags that are not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture
def page(result) -> str:
    return report([result("fifo"), result("<b>slices", overhead=65, suspensions=3)], SETTINGS)


def test_it_is_html_with_names_escaped(page: str) -> None:
    reader = Balanced()
    reader.feed(page)
    assert reader.open == []
    assert "&lt;b&gt;slices" in page
    assert "<b>slices" not in page


def test_it_needs_nothing_else(page: str) -> None:
    assert not re.search(r'(?:src|href)="(?!data:)', page)
    assert "<script" not in page


def test_every_plot_is_an_image(page: str) -> None:
    plots = [base64.b64decode(data) for data in IMAGE.findall(page)]
    assert len(plots) == 7
    assert all(ElementTree.fromstring(svg).tag.endswith("svg") for svg in plots)


def test_the_same_outcomes_give_the_same_page(result) -> None:
    assert report([result("fifo")], SETTINGS) == report([result("fifo")], SETTINGS)


def test_waits_by_priority_are_plotted_only_with_several_levels(result) -> None:
    assert len(IMAGE.findall(report([result("flat", levels=False)], SETTINGS))) == 6


def test_many_outcomes_have_room(result) -> None:
    many = [result(f"a rather long name of a policy, {i} nodes") for i in range(20)]
    assert len(IMAGE.findall(report(many, SETTINGS))) == 7


def test_matplotlib_is_loaded_for_a_report_only() -> None:
    program = (
        "import sys; import hai_backend.sim.cli.command; assert 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
