"""Takes the picture of the page that stands in the README: a demonstration, made up and served here and now.

python docs/make_page_image.py writes docs/images/page.png. It needs the extra `service`, Playwright for Python and a
Chromium of the system.
"""

import asyncio
import shutil
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import uvicorn
from playwright.sync_api import sync_playwright

from evenhand.programme import create_app
from evenhand.programme.api.server import listen
from evenhand.programme.api.server_settings import Settings
from evenhand.programme.demo import make_demo
from evenhand.programme.programme import Programme

IMAGE = Path(__file__).parent / "images" / "page.png"
SIZE = {"width": 1160, "height": 1060}
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]


def take(programme: Programme, file: Path) -> None:
    """Serve a programme and take a picture of the view of today."""
    listener = listen("127.0.0.1", 0)
    app = create_app(programme, Settings(look_every=3600.0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="on"))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        page = browser.new_page(viewport=SIZE)
        page.goto(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        page.screenshot(path=file)
        browser.close()
    server.should_exit = True
    thread.join(20)


if __name__ == "__main__":
    with TemporaryDirectory() as folder, make_demo(Path(folder) / "demo.db") as programme:
        take(programme, IMAGE)
