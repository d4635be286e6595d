"""Evidence as a text file: written where the learner's code ran, read where it is judged.

Plain JSON, never a pickle: reading it runs nothing. Arrays are their float64 bytes in base64.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np

from grading.observe import Observation, Output, Raised
from grading.verdict import Evidence

# Bound here, before any code of the learner's runs: to patch json later changes nothing.
_dumps, _base64 = json.dumps, base64.b64encode

LARGEST = 4_000_000  # numbers of one output that are carried over; no exercise comes near
LONGEST = 10_000  # characters of a name or an exception's text


def as_json(evidence: Evidence, token: str) -> str:
    seen = [
        {
            "outputs": {name[:LONGEST]: _packed(output) for name, output in one.outputs.items()},
            "mutated": list(one.mutated),
            "raised": one.raised and [one.raised.kind, one.raised.text, one.raised.line],
        }
        for one in evidence.seen
    ]
    facts = {"status": evidence.status, "message": evidence.message, "seen": seen}
    return _dumps({"token": token, "evidence": facts})


def from_json(text: str, token: str) -> Evidence:
    """Raises ValueError where the text is not what `as_json` made with this token."""
    whole = json.loads(text)
    if not isinstance(whole, dict) or whole.get("token") != token:
        raise ValueError("the check did not run to its end")
    try:
        facts = whole["evidence"]
        seen = tuple(
            Observation(
                {str(name): _unpacked(output) for name, output in one["outputs"].items()},
                tuple(map(str, one["mutated"])),
                Raised(*(str(text)[:LONGEST] for text in one["raised"])) if one["raised"] else None,
            )
            for one in facts["seen"]
        )
        return Evidence(str(facts["status"]), str(facts["message"]), seen)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"what the check has seen is unreadable ({error})") from error


def _packed(output: Output) -> dict[str, Any]:
    facts = {"type": output.type_name[:LONGEST], "dtype": output.dtype}
    if output.values is None:
        return facts
    small = output.values.size <= LARGEST
    data = _base64(output.values.tobytes()).decode() if small else ""
    return facts | {"shape": list(output.values.shape), "data": data}


def _unpacked(facts: dict[str, Any]) -> Output:
    kind, dtype = str(facts["type"]), str(facts["dtype"])
    if "shape" not in facts:
        return Output(kind, dtype)
    shape = tuple(int(size) for size in facts["shape"])
    if not facts["data"] and 0 not in shape:  # too large to carry: only its shape is known
        return Output(kind, dtype, np.broadcast_to(np.float64("nan"), shape))
    values = np.frombuffer(base64.b64decode(facts["data"]), np.float64)
    return Output(kind, dtype, values.reshape(shape))
