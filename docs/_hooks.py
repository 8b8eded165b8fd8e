"""What mkdocs is told beside mkdocs.yml: pages may point to files and folders of the repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.structure.files import Files

ROOT = Path(__file__).parents[1]

# In the repository the examples lie beside docs/, and on the site below it. What else lies there is
# not on the site.
_EXAMPLE = re.compile(r"\]\(\.\./(examples/[\w./-]+)\)")
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./[^)]+\)")

_SHOWN = (".py", ".json", ".yml")


def on_files(files: Files, config: Any) -> Files:
    """Put each example that a page points to on the site."""
    pointed = {
        path
        for page in files.documentation_pages()
        for path in _EXAMPLE.findall(page.content_string)
    }
    for path in sorted(pointed):
        if (ROOT / path).is_file():
            content = (ROOT / path).read_text()
            files.append(File.generated(config, path, content=content))
        elif (ROOT / path).is_dir():
            page = "\n".join(_folder(ROOT / path))
            files.append(File.generated(config, f"{path}/index.md", content=page))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Let the links lead there, and leave out those that lead nowhere."""
    return _OUTSIDE.sub(r"\1", _EXAMPLE.sub(_on_the_site, markdown))


def _on_the_site(link: re.Match[str]) -> str:
    is_folder = (ROOT / link[1]).is_dir()
    return f"]({link[1]}/index.md)" if is_folder else link[0].replace("../", "")


def _folder(path: Path) -> list[str]:
    """A page with all that is in *path*."""
    readme = path / "README.md"
    lines = [readme.read_text() if readme.exists() else f"# {path.relative_to(ROOT)}", ""]
    for each in sorted(path.iterdir()):
        if each.suffix in _SHOWN and each.stat().st_size:
            lines += [f"## {each.name}", "", f"```{each.suffix[1:]}", each.read_text(), "```", ""]
    return lines
