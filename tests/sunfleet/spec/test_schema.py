"""The JSON schema that editors read says what the reader does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sunfleet import spec
from sunfleet.spec.quantities import duration

SCHEMA = spec.json_schema()
BLOCKS: dict[str, Any] = {"Fleet": SCHEMA, **SCHEMA["$defs"]}


def fields() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for block, schema in BLOCKS.items():
        for name, field in schema["properties"].items():
            yield block, name, field


def test_the_schema_is_json_and_names_its_dialect() -> None:
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_every_block_refuses_unknown_keys_and_says_what_it_is() -> None:
    for block, schema in BLOCKS.items():
        assert schema["additionalProperties"] is False, block
        assert schema["description"], block


def test_every_field_of_what_this_release_reads_is_described() -> None:
    later = {"Override"}
    plain = {"apiVersion", "kind", "always", "windows"}
    bare = [
        f"{block}.{name}"
        for block, name, field in fields()
        if block not in later and name not in plain and "description" not in field and "$ref" not in field
    ]
    assert bare == []


def test_keys_are_camel_case_as_they_are_written() -> None:
    assert all(re.fullmatch(r"[a-z][A-Za-z]*", name) for _, name, _ in fields())
    assert {"servedName", "minResidency"} <= set(BLOCKS["Model"]["properties"])
    assert {"for", "min"} <= set(BLOCKS["Window"]["properties"])


def test_closed_sets_are_enumerated() -> None:
    assert BLOCKS["Model"]["properties"]["task"]["enum"] == ["generate", "embed", "score", "transcribe"]
    assert BLOCKS["Engine"]["properties"]["device"]["enum"] == ["GPU", "CPU"]
    assert SCHEMA["properties"]["kind"]["const"] == "Fleet"


def test_names_are_checked_while_typing() -> None:
    assert SCHEMA["properties"]["models"]["propertyNames"]["maxLength"] == 40


def test_no_default_is_shown_in_another_form_than_the_one_that_is_written() -> None:
    assert "PT" not in json.dumps(SCHEMA)


@given(st.from_regex(r"\A([0-9]{1,2}(\.5)?[dhms]){1,3}\Z"))
def test_the_pattern_of_durations_takes_what_the_reader_takes(text: str) -> None:
    pattern = BLOCKS["Window"]["properties"]["for"]["anyOf"][0]["pattern"]
    assert (re.search(pattern, text) is not None) is readable(text)


def readable(text: str) -> bool:
    try:
        duration(text)
    except ValueError:
        return False
    return True
