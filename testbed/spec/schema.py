"""A JSON schema of experiment files, for editors: what `testbed.spec.fields` declares, and the tables around it."""

from __future__ import annotations

from typing import Any

import msgspec

from testbed.core.units import Quantity, Written
from testbed.spec import fields
from testbed.spec.aliases import ALIASES
from testbed.spec.experiment import Spec
from testbed.spec.system_tables import SystemTable


def schema() -> dict[str, Any]:
    """A JSON schema of experiment files."""

    def quantity(kind: type[Quantity | Written]) -> dict[str, Any]:
        if issubclass(kind, Written):
            return {"type": "string"}
        return {"type": "string", "description": f"a {kind.noun}, with its unit: {kind.examples}"}

    found = msgspec.json.schema(Spec, schema_hook=quantity)
    properties = found["$defs"]["Spec"]["properties"]
    for name, field in fields.of_struct(Spec).items():
        declaration = field.declaration
        if isinstance(field.default, Quantity | Written):  # msgspec gives no defaults of custom types
            properties[name]["default"] = field.usual
        if field.type is int:
            ends = {"minimum": declaration.low, "maximum": declaration.high}
            properties[name] |= {end: value for end, value in ends.items() if value is not None}
    properties["job"] = {
        "description": properties["job"]["description"],
        "type": "array",
        "items": {
            "anyOf": [{"$ref": "#/$defs/Job"}, {"type": "string", "description": "as --job has it: s2,workers=4"}]
        },
    }
    found["$defs"] |= msgspec.json.schema(SystemTable)["$defs"]
    properties["system"] = {
        **properties["system"],
        "items": {
            "anyOf": [
                {"$ref": "#/$defs/SystemTable"},
                {"type": "string", "description": "as --system has it: ltp:fraction=0.8,label=LTP"},
            ]
        },
    }
    properties |= {alias: properties[name] for alias, name in ALIASES.items()}
    properties["base"] = {"type": "string", "description": "a file that this one stands on"}
    properties["sweep"] = {
        "type": "object",
        "description": "a list of values for each path: every combination is an experiment; below `zip` lists are taken together",
        "additionalProperties": {"anyOf": [{"type": "array"}, {"type": "object"}]},
    }
    properties |= {
        name: {
            "type": "object",
            "description": f"fields that take the place of those above {when}",
            "properties": {key: value for key, value in properties.items() if key not in ("name", "on", "base")},
            "additionalProperties": False,
        }
        for name, when in (
            ("quick", "with --quick"),
            ("real-clock", "wherever the clock is a real one (host, vagrant, ssh)"),
        )
    }
    properties["real-clock"]["properties"]["impossible"] = {
        "type": "string",
        "description": "why there is no form of the experiment for a real clock; instead of fields",
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "MLTCP testbed experiment", **found}
