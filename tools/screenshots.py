"""Makes docs/img: the demo's incident page as `foreshock serve --demo` shows it. Needs Debian's chromium.

    .venv/bin/python tools/screenshots.py URL

URL is the link that `make run` printed, not yet used.
"""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import sync_playwright

FOLDER = Path(__file__).parents[1] / "docs" / "img"
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")


def main(url: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=list(ARGUMENTS))
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(url)
        there = urlsplit(page.url)
        for scheme in ("dark", "light"):
            page.emulate_media(color_scheme=scheme)
            page.goto(f"{there.scheme}://{there.netloc}{there.path}")
            page.wait_for_load_state("networkidle")
            page.screenshot(path=FOLDER / f"incident-{scheme}.png")
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1])
