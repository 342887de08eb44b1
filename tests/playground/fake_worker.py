"""A worker whose labs compute nothing: they count, hang, die or fail, as they are told."""

import os
import time

from marginax.playground.playable import Frame, Playable
from marginax.playground.protocol import Choice, Lab, Setting
from marginax.playground.worker import serve

CHOICES = tuple(Choice(name, name) for name in ("count", "hang", "die", "fail", "trip"))
LAB = Lab(
    "fake",
    "Fake",
    "Does what it is told to.",
    (
        Setting("do", "Do", "choice", "count", choices=CHOICES),
        Setting("num", "How far", "integer", 5, least=1, most=100_000),
        Setting("size", "Numbers in a state", "integer", 1, least=1, most=100_000),
        Setting("seconds", "Between states", "number", 0.0, least=0.0, most=10.0),
    ),
)


def run(settings, stage):
    if settings["do"] == "hang":
        time.sleep(3600)
    if settings["do"] == "die":
        os._exit(7)
    if settings["do"] == "fail":
        raise FloatingPointError("all chains became NaN")
    for step in range(settings["num"]):
        stage.show(Frame(step, settings["num"], "count", {"values": [step] * settings["size"]}))
        time.sleep(settings["seconds"])
    return {"last": settings["num"] - 1, "unknown": float("nan")}


def check(settings):
    if settings["do"] == "trip":
        raise OSError("the server itself trips over this")


def to_python(settings):
    if settings["do"] == "fail":
        raise FileNotFoundError("there are no data: fetch them")
    return f"numbers = {{'last': {settings['num'] - 1}}}\n"


PLAYABLE = {"fake": Playable(LAB, run, to_python, check)}

if __name__ == "__main__":
    serve(PLAYABLE)
