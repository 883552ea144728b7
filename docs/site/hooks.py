"""What mkdocs does besides for this site: README is the first page, what pages name comes along, llms.txt."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation, Section
from mkdocs.structure.pages import Page

navigation: list[Navigation] = []
"""The newest one."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    root = Path(config.config_file_path).parent
    readme = (root / "README.md").read_text("utf-8").replace("](docs/", "](")
    files.append(File.generated(config, "index.md", content=readme))
    for path in sorted((root / "deploy").rglob("*")):
        if path.is_file():
            name = path.relative_to(root).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Here `deploy/` lies beside the pages."""
    return re.sub(r"\]\(\.\./((?:\.\./)*deploy/)", r"](\1", markdown)


def on_nav(nav: Navigation, **_: object) -> None:
    navigation[:] = [nav]


def on_post_build(config: MkDocsConfig) -> None:
    """Each page as it was written as well, and a list of them, for programs that read."""
    site = Path(config.site_dir)
    lines = [f"# {config.site_name}", "", f"> {config.site_description}"]
    for item in navigation[0].items:
        if isinstance(item, Section):
            lines += ["", f"## {item.title}", ""]
            lines += [_entry(page, site) for page in item.children if isinstance(page, Page)]
        elif isinstance(item, Page):
            lines += ["", _entry(item, site)]
    (site / "llms.txt").write_text("\n".join([*lines, ""]), "utf-8")


def _entry(page: Page, site: Path) -> str:
    text = page.markdown or ""
    (site / page.file.src_uri).write_text(text, "utf-8")
    return f"- [{page.title}]({page.file.src_uri}): {_first_sentence(text)}"


def _first_sentence(text: str) -> str:
    """Of the first paragraph that is none of headings, code, tables and pictures."""
    parts = re.sub(r"(?ms)^```.*?^```$", "", text).split("\n\n")
    prose = next(part for part in parts if part.strip() and part.lstrip()[0] not in "#|!-")
    flat = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(prose.split()))
    return re.split(r"(?<=[.?]) (?=[A-Z`])", flat)[0]
