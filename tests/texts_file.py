"""Files of `--contexts`: their lines, and the records that answer them."""

import json


def lines(texts):
    return "".join(json.dumps({"context": text, "id": f"id {n}"}) + "\n" for n, text in enumerate(texts))


def records(text):
    return [json.loads(line) for line in text.splitlines()]
