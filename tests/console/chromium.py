"""A headless Chromium: Debian's, driven by Playwright. One per test process."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

FLAGS = [
    "--no-sandbox",  # tests run as root, too
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The browser, or a loud skip where there is none."""
    program = shutil.which("chromium")
    if program is None:
        if os.environ.get("CI"):
            raise RuntimeError("no chromium in PATH; scripts/system-deps installs it")
        pytest.skip("NOT TESTED, no chromium in PATH (apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()
