"""Notebooks as scripts: exactly the lines that only IPython understands are found, and files get safe names."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import nbformat
import pytest

from hai.client.errors import Invalid
from hai_jupyter.notebooks import nbformat_files
from hai_jupyter.notebooks.scripts import find_specials, to_script
from tests.jupyter.conftest import JupyterSetup, Page

pytestmark = pytest.mark.xdist_group("jupyter")
CELL = '''x = 1
files = !ls \\
  -l
if x:
    %time foo()
s = """
%not_magic
!nor_this
"""
foo?
y = %who
z = x %x
'''


def notebook(*sources: str, **metadata: Any) -> Any:
    return nbformat_files.new_notebook(
        [nbformat_files.code_cell(source) for source in sources], metadata
    )


def test_what_is_no_python_is_found_where_it_stands() -> None:
    found = find_specials(notebook("a = 1", CELL, "%%bash\nls"))
    assert [(one.cell, one.line, one.text) for one in found] == [
        (2, 2, "files = !ls \\"),
        (2, 5, "%time foo()"),
        (2, 10, "foo?"),
        (2, 11, "y = %who"),
        (3, 1, "%%bash"),
    ]


def test_skipped_it_is_a_comment_and_the_rest_is_python() -> None:
    text = to_script(notebook(CELL, "%%bash\nls", "%load_ext x"), "skip")
    tree = ast.parse(text)
    assert "    pass  # %time foo()\n" in text
    assert "pass  # files = !ls \\ -l\n" in text
    assert "\n%not_magic\n!nor_this\n" in text
    assert "# %%bash\n# ls" in text
    assert {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} == {"x", "s", "z"}


def test_converted_it_is_what_ipython_would_run() -> None:
    text = to_script(notebook(CELL, "%%bash\nls"), "convert")
    ast.parse(text)
    assert text.startswith("from IPython import get_ipython\n")
    assert "    get_ipython().run_line_magic('time', 'foo()')" in text
    assert "get_ipython().run_cell_magic('bash', '', 'ls\\n')" in text


def test_texts_are_comments_and_plain_python_stays_as_it_is() -> None:
    made = notebook("a = 1\n")
    made.cells.insert(0, nbformat.v4.new_markdown_cell("# Title\n\nmore"))
    assert to_script(made, "convert") == "# %% [markdown]\n# # Title\n#\n# more\n\n# %%\na = 1\n"


def test_other_languages_are_refused() -> None:
    with pytest.raises(Invalid, match="in R"):
        to_script(
            notebook("1", kernelspec={"name": "ir", "language": "R", "display_name": "R"}), "skip"
        )


ODD = 'sp ace "$(touch x)";\'ü`.ipynb'


async def test_a_script_asks_before_it_loses_or_overwrites_anything(
    page: Page, setup: JupyterSetup
) -> None:
    nbformat_files.write(notebook("!ls", "print(1)"), setup.root / ODD)
    asked = (await page.post("notebook/script", {"path": ODD})).data
    assert asked == {"specials": [{"cell": 1, "line": 1, "text": "!ls"}]}
    made = await page.post("notebook/script", {"path": ODD, "specials": "skip"})
    script_path = setup.root / made.data["path"]
    assert (script_path.stem, "pass  # !ls" in script_path.read_text()) == (Path(ODD).stem, True)
    script_path.write_text("mine")
    again = {"path": ODD, "specials": "skip"}
    assert (await page.post("notebook/script", again)).data == {"exists": script_path.name}
    other = (await page.post("notebook/script", {**again, "clash": "rename"})).data["path"]
    assert (other, script_path.read_text()) == (f"{script_path.stem}-2.py", "mine")
    await page.post("notebook/script", {**again, "clash": "overwrite"})
    assert "print(1)" in script_path.read_text()
    assert not list(setup.root.glob("**/x"))


async def test_outputs_are_cleared_and_the_notebook_as_it_was_is_kept(
    page: Page, setup: JupyterSetup
) -> None:
    full = notebook("print(1)")
    full.cells[0].outputs = [nbformat_files.printed_output("x" * 10_000)]
    nbformat_files.write(full, setup.root / "full.ipynb")
    told = (await page.post("notebook/clear", {"path": "full.ipynb"})).data
    assert told["before"] > 10_000 > told["after"]
    assert nbformat_files.read(setup.root / "full.ipynb").cells[0].outputs == []
    assert nbformat_files.read(setup.root / told["copy"]).cells[0].outputs[0].text == "x" * 10_000


async def test_what_is_made_of_a_private_notebook_is_private(
    page: Page, setup: JupyterSetup
) -> None:
    private = setup.root / "private.ipynb"
    nbformat_files.write(notebook("print(1)"), private)
    private.chmod(0o600)
    copy = (await page.post("notebook/clear", {"path": private.name})).data["copy"]
    script = (await page.post("notebook/script", {"path": private.name})).data["path"]
    made = [private, setup.root / copy, setup.root / script]
    assert [path.stat().st_mode & 0o777 for path in made] == [0o600] * 3


@pytest.mark.parametrize("verb", ["script", "clear"])
@pytest.mark.parametrize(
    ("body", "code"),
    [
        pytest.param({"path": "../x.ipynb"}, 409, id="outside"),
        pytest.param({"path": "gone.ipynb"}, 404, id="not there"),
        pytest.param({"path": "broken.ipynb"}, 400, id="no notebook"),
        pytest.param({"path": "a.py"}, 400, id="another file"),
        pytest.param({"path": 3}, 400, id="no path"),
    ],
)
async def test_what_can_not_be_is_refused(
    page: Page, setup: JupyterSetup, verb: str, body: Any, code: int
) -> None:
    (setup.root / "broken.ipynb").write_text("[]")
    assert (await page.post(f"notebook/{verb}", body)).code == code


@pytest.mark.parametrize("text", ["[]", "no json", '{"cells": 3}'])
async def test_that_a_file_is_no_notebook_is_told_once(
    page: Page, setup: JupyterSetup, text: str
) -> None:
    (setup.root / "broken.ipynb").write_text(text)
    refused = await page.post("notebook/script", {"path": "broken.ipynb"})
    told = refused.data["violations"][0]["message"]
    assert told.startswith("broken.ipynb is not a notebook: ")
    assert told.count("not a notebook") == 1
