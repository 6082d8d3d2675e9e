"""Writes `harness/record.schema.json` from the structs. Run it after a change of them; a test says when."""

from pathlib import Path

from harness import records

if __name__ == "__main__":
    path = Path(records.__file__).with_name("record.schema.json")
    path.write_bytes(records.json_schema())
    print(path.name)
