"""A real browser without a window, for tests of pages."""

import shutil
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

_FLAGS = (
    "headless",
    "no-sandbox",
    "disable-gpu",
    "disable-quic",
    "no-first-run",
    "disable-background-networking",
    "disable-component-update",
    "disable-sync",
)
_SECONDS = 10.0


class Browser:
    """Chromium with a page in it."""

    def __init__(self, driver: Any):
        self.driver = driver

    def open(
        self, page: Path, state: str = "", *, width: int = 1280, height: int = 900, dark: bool = False
    ) -> None:
        """Show a file at a size, in light or dark; errors of earlier pages are forgotten."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        self.driver.get("about:blank")
        self.errors()
        self.driver.get(page.as_uri() + state)
        self.wait("document.getElementById('status').textContent !== ''")

    def ask(self, expression: str) -> Any:
        """The value of an expression in the page."""
        return self.driver.execute_script(f"return {expression}")

    def text(self, selector: str) -> str:
        """What an element says."""
        return self.ask(f"document.querySelector({selector!r}).textContent")

    def find(self, selector: str) -> Any:
        """An element, to click or to type into."""
        return self.driver.find_element("css selector", selector)

    def wait(self, condition: str) -> None:
        """Until the condition holds in the page."""
        end = time.monotonic() + _SECONDS
        while not self.ask(condition):
            assert time.monotonic() < end, f"not after {_SECONDS} s: {condition}; status: {self.text('#status')}"
            time.sleep(0.02)

    def point_at(self, selector: str, right: float, down: float) -> None:
        """Move the pointer over an element, in pixels from its upper left corner."""
        left, top = self.ask(
            f"(r => [r.left, r.top])(document.querySelector({selector!r}).getBoundingClientRect())"
        )
        event = {"type": "mouseMoved", "x": left + right, "y": top + down}
        self.driver.execute_cdp_cmd("Input.dispatchMouseEvent", event)

    def colours(self, selector: str) -> np.ndarray:
        """The pixels (rows, columns, red green blue alpha) of a canvas."""
        pixels = (
            "(c => [c.height, c.width, Array.from(c.getContext('2d').getImageData(0, 0, c.width, c.height).data)])"
            f"(document.querySelector({selector!r}))"
        )
        height, width, numbers = self.ask(pixels)
        return np.array(numbers, np.uint8).reshape(height, width, 4)

    def errors(self) -> list[str]:
        """Messages of the page since they were last asked for."""
        return [entry["message"] for entry in self.driver.get_log("browser")]


@contextmanager
def browser_at(folder: Path) -> Generator[Browser]:
    """Chromium with a profile of its own in `folder`; the test is skipped where there is none."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    programs = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in programs:
        pytest.skip("chromium and chromedriver are not both installed")
    options = webdriver.ChromeOptions()
    options.binary_location = programs[0]
    for flag in (*_FLAGS, f"user-data-dir={folder}"):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(programs[1]))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
