"""The example shop of the demo: a process beside the platform, with keys of its own.

python -m demo.shop     ends the shop
"""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import httpx
import psutil

from runtime import ports
from runtime.home import add_missing
from truelog.storage import api_key
from truelog.storage.api_key import Page, Role
from truelog.storage.audit_trail import by_hand
from truelog.storage.database import connect
from truelog.support.errors import ServiceDown
from truelog.support.files import write_private
from truelog.support.settings import PROJECT, Settings, default_home
from truelog.support.wait import until

PROGRAM = PROJECT / "examples" / "shop" / "server.py"
PORT = 18090
TYPES = ("page_view", "search", "click", "like")
_SERVICES = ("collector", "api")
_SECONDS = 60


def allow(home: Path) -> None:
    """Let the pages of the shop call the API. The API reads this setting at its start."""
    add_missing(home, {"TRUELOG_API_ORIGINS": _origin(ports.free({"shop": (PORT, 0)})["shop"])})


def start(settings: Settings) -> str:
    """Start the shop again, and return its address when it is open."""
    stop(settings.home)
    origin = settings.api_origins.split(",")[0].strip()
    keys = _keys(settings, origin)
    at = {name: settings.address(name) for name in _SERVICES}
    urls = {name: f"http://{each.host}:{each.port}" for name, each in at.items()}
    # Services know a new key some seconds later.
    for name, kind in {"collector": "writes", "api": "reads"}.items():
        until(partial(_require_answer, f"{urls[name]}/openapi.json", keys[kind]), _SECONDS, f"the key of the {name}")
    variables = {
        **{f"SHOP_{name.upper()}": url for name, url in urls.items()},
        "SHOP_PORT": origin.rpartition(":")[2],
        **{f"SHOP_{name.upper()}": key for name, key in keys.items()},
    }
    with (settings.home / "logs" / "shop.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, PROGRAM], env=os.environ | variables, stdout=log, stderr=log, start_new_session=True
        )
    _pid_file(settings.home).write_text(str(process.pid))
    until(lambda: _require_answer(f"{origin}/files/products.json"), _SECONDS, "the shop")
    return origin


def stop(home: Path) -> None:
    """End the shop that runs, if any. A process of another program that has its number goes on."""
    with suppress(OSError, ValueError, psutil.NoSuchProcess):
        process = psutil.Process(int(_pid_file(home).read_text()))
        if str(PROGRAM) in process.cmdline():
            process.send_signal(signal.SIGTERM)
            process.wait(_SECONDS)
    _pid_file(home).unlink(missing_ok=True)


def _keys(settings: Settings, origin: str) -> dict[str, str]:
    """The keys of the shop, which are made once and kept in the home."""
    file = settings.home / "shop.json"
    if not file.exists():
        with connect(settings) as connection:
            made = {
                "writes": api_key.add_key(connection, "shop-writes", Role.PRODUCER, by_hand()),
                "reads": api_key.add_key(connection, "shop-reads", Role.READER, by_hand()),
                "pages": api_key.add_key(connection, "shop-pages", Role.BROWSER, by_hand(), Page((origin,), TYPES)),
            }
        write_private(file, json.dumps(made))
    found: dict[str, str] = json.loads(file.read_text())
    return found


def _require_answer(url: str, key: str = "") -> None:
    try:
        httpx.get(url, headers={"Authorization": f"Bearer {key}"} if key else {}, timeout=3).raise_for_status()
    except httpx.HTTPError as error:
        raise ServiceDown(str(error)) from error


def _pid_file(home: Path) -> Path:
    return home / "shop.pid"


def _origin(port: int) -> str:
    return f"http://127.0.0.1:{port}"


if __name__ == "__main__":
    stop(default_home())
