"""The format of the scripts: how they are read and checked, and how their JSON stands for messages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

HERE = Path(__file__).resolve().parent
DOMAIN = "stickycas.v1"
# The key in the trailing metadata under which a google.rpc.Status travels.
DETAILS = "grpc-status-details-bin"


class Mismatch(Exception):
    """What was seen is not what the script says. The text says both."""


def load(kind: str, only: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Reads the scripts of a kind, `server` or `client`, whose names begin with one of `only`."""
    schema = json.loads((HERE / f"{kind}-script.schema.json").read_text())
    for name, script in json.loads((HERE / f"{kind}.json").read_text()).items():
        if only and not name.startswith(tuple(only)):
            continue
        check(script, schema, schema, name)
        yield name, script


def check(value: Any, schema: dict[str, Any], root: dict[str, Any], where: str) -> None:
    """Checks a value against a JSON schema, as far as the schemas of this folder use that language."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    kinds: dict[str, Any] = {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
    }
    names = schema.get("type", [])
    allowed = [names] if isinstance(names, str) else names
    if allowed and not any(
        value is None if name == "null" else isinstance(value, kinds[name]) for name in allowed
    ):
        raise ValueError(f"{where}: not of type {' or '.join(allowed)}: {value!r}")
    if "enum" in schema and value not in schema["enum"]:
        raise ValueError(f"{where}: {value!r} is none of {schema['enum']}")
    if isinstance(value, list):
        for index, item in enumerate(value):
            check(item, schema.get("items", {}), root, f"{where}[{index}]")
    if isinstance(value, dict):
        if missing := [name for name in schema.get("required", []) if name not in value]:
            raise ValueError(f"{where}: {', '.join(missing)} missing")
        known = schema.get("properties", {})
        for name, item in value.items():
            if name not in known and schema.get("additionalProperties") is False:
                raise ValueError(f"{where}: {name} is unknown")
            check(item, known.get(name, {}), root, f"{where}.{name}")
        if "oneOf" in schema and sum(value.keys() >= set(one["required"]) for one in schema["oneOf"]) != 1:
            raise ValueError(
                f"{where}: exactly one of {[one['required'] for one in schema['oneOf']]} is needed"
            )


def substitute(value: Any, texts: dict[str, str]) -> Any:
    """Replaces the keys of `texts` in every string of a JSON value."""
    if isinstance(value, dict):
        return {name: substitute(item, texts) for name, item in value.items()}
    if isinstance(value, list):
        return [substitute(item, texts) for item in value]
    if isinstance(value, str):
        for old in sorted(texts, key=len, reverse=True):
            value = value.replace(old, texts[old])
    return value


def fill(message: Message, data: dict[str, Any]) -> Any:
    """Sets the fields of a message to what a script says, and returns it."""
    for name, value in data.items():
        field = field_of(message, name)
        if isinstance(value, list):
            for item in value:
                if field.message_type is None:
                    getattr(message, name).append(scalar(field, item))
                else:
                    fill(getattr(message, name).add(), item)
        elif field.message_type is None:
            setattr(message, name, scalar(field, value))
        else:
            part = getattr(message, name)
            part.SetInParent()
            part.FromJsonString(value) if isinstance(value, str) else fill(part, value)
    return message


def difference(message: Message, expected: dict[str, Any], where: str = "") -> str | None:
    """Says where a message is not what a script expects. Fields that it does not name may be anything."""
    for name, value in expected.items():
        field, here, path = field_of(message, name), getattr(message, name), f"{where}.{name}".lstrip(".")
        is_part = field.message_type is not None and not hasattr(here, "extend")
        # Also an `optional` scalar is in a oneof, of its own.
        has_presence = value is None or is_part or field.containing_oneof is not None
        if has_presence and message.HasField(name) == (value is None):
            return f"{path}: expected {'none' if value is None else shown(value)}, got {brief(message)}"
        if value is None:
            continue
        if not isinstance(value, list):
            pairs = [(here, value, path)]
        elif len(here) == len(value):
            pairs = [(here[i], value[i], f"{path}[{i}]") for i in range(len(value))]
        else:
            return f"{path}: expected {shown(value)}, got {brief(message)}"
        for got, wanted, at in pairs:
            if field.message_type is None:
                if got != scalar(field, wanted):
                    return f"{at}: expected {shown(wanted)}, got {name_of(field, got)}"
            elif isinstance(wanted, str):
                if got.ToJsonString() != wanted:
                    return f"{at}: expected {wanted}, got {got.ToJsonString()}"
            elif found := difference(got, wanted, at):
                return found
    return None


def field_of(message: Message, name: str) -> FieldDescriptor:
    """The field of that name, as the .proto file spells it."""
    try:
        return message.DESCRIPTOR.fields_by_name[name]
    except KeyError:
        raise ValueError(f"{message.DESCRIPTOR.full_name} has no field {name}") from None


def scalar(field: FieldDescriptor, value: Any) -> Any:
    """A value as Python has it: in scripts enums are names, and bytes are text or hex digits."""
    if field.type == FieldDescriptor.TYPE_BYTES:
        return bytes.fromhex(value["hex"]) if isinstance(value, dict) else value.encode()
    if field.enum_type is not None and isinstance(value, str):
        return field.enum_type.values_by_name[value].number
    return value


def name_of(field: FieldDescriptor, value: Any) -> str:
    """A value as a report shows it."""
    if field.enum_type is not None and value in field.enum_type.values_by_number:
        return str(field.enum_type.values_by_number[value].name)
    return shown(value.decode(errors="backslashreplace")) if isinstance(value, bytes) else shown(value)


def shown(value: Any) -> str:
    """A JSON value in one line."""
    return json.dumps(value, ensure_ascii=False)


def brief(message: Message) -> str:
    """A message in one line, cut."""
    text = " ".join(str(message).split())
    return "{}" if not text else text if len(text) < 300 else text[:300] + "..."


def refusal_details(trailers: Any) -> tuple[str, dict[str, str], bool]:
    """Reason and metadata of the ErrorInfo of StickyCAS, if there is one, and if there is a RetryInfo."""
    reason, metadata, retry = "", {}, False
    for key, value in trailers or ():
        if key == DETAILS:
            for detail in status_pb2.Status.FromString(value).details:
                info = error_details_pb2.ErrorInfo()
                if detail.Unpack(info) and info.domain == DOMAIN:
                    reason, metadata = info.reason, dict(info.metadata)
                retry = retry or detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR)
    return reason, metadata, retry


def refusal_trailers(
    code: int, reason: str, text: str, metadata: dict[str, str], retry_after: str
) -> tuple[tuple[str, bytes], ...]:
    """Trailing metadata as a server refuses with it."""
    status = status_pb2.Status(code=code, message=text)
    status.details.add().Pack(error_details_pb2.ErrorInfo(domain=DOMAIN, reason=reason, metadata=metadata))
    if retry_after:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromJsonString(retry_after)
        status.details.add().Pack(retry)
    return ((DETAILS, status.SerializeToString()),)
