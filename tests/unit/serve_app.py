"""A stand-in for the service, so that `serve.py` is tested by itself."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from flask import Flask
from pymongo import MongoClient


def create_app() -> Flask:
    app = Flask(__name__)

    @app.get("/facts")
    def facts() -> dict[str, Any]:
        uri = os.environ["MONGODB_URI"]
        facts = {"pid": os.getpid(), "uri": uri, "secret_key": os.environ["SECRET_KEY"]}
        if uri.startswith("mongodb://"):
            with MongoClient[dict[str, Any]](uri) as client:
                client.get_default_database().starts.insert_one({})
                facts["rows"] = client.get_default_database().starts.count_documents({})
        return facts

    @app.get("/slow")
    def slow() -> str:
        """Says that it has begun, and ends when it is told to."""
        folder = Path(os.environ["SLOW_DIR"])
        (folder / "begun").touch()
        for _ in range(600):
            if (folder / "end").exists():
                return "finished"
            time.sleep(0.01)
        return "never told"

    return app
