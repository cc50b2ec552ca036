"""Templates of the HTML pages: `report.html` and the pages of `mtcli explain` and `mtcli serve`."""

from importlib import resources

STYLE_MARKER = "/*SHARED STYLE*/"


def page_template(package: str) -> str:
    """Return `page.html` of a package, with the shared style `runtime/page.css` inserted into its `<style>` element.

    Args:
        package: Dotted name of the package, such as `mtcli.report`.
    """
    template = resources.files(package).joinpath("page.html").read_text(encoding="utf-8")
    style = resources.files("mtcli.runtime").joinpath("page.css").read_text(encoding="utf-8")
    return template.replace(STYLE_MARKER, style, 1)
