"""Groups of rows that are one piece of hardware, and the operator's file about them."""

from pathlib import Path
from typing import Any

import pytest
from command import samebits
from record_maker import redactor

from harness import folders
from harness.devices import Device
from harness.errors import InputRefused
from harness.groups import NONE, Overrides, groups, labelled, load
from harness.provenance import recorded_device
from harness.records import unit


def device(id: str, **fields: Any) -> Device:
    api, label, *index = id.split(":")
    return Device(id, api, label, int(index[0]) if index else 0, **({"kind": "hardware", "name": label} | fields))


def ids(found: list[list[Device]]) -> list[list[str]]:
    return [[d.id for d in group] for group in found]


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes the operator's file and reads it as samebits does."""

    def write(text: str | bytes) -> Overrides:
        path = tmp_path / "groups.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        monkeypatch.setenv("SAMEBITS_GROUPS", str(path))
        return load()

    return write


GPU = [
    device("vulkan:nvidia:0", pci="0000:01:00.0", uuid="aabb"),
    device("vulkan:nvidia:1", pci="0000:02:00.0", uuid="ccdd"),
    device("vulkan:lvp:0", kind="software"),
    device("opencl:nvidia:0", pci="00000000:02:00.0"),
    device("cuda:nvidia:0", uuid="GPU-AA-BB"),
    device("opengl:mesa:0"),
    device("opencl:old:0"),
    device("opencl:gone", status="no-device"),
]


def test_one_gpu_seen_through_three_apis_is_one_group_of_three_rows() -> None:
    assert ids(groups(GPU[:5])) == [
        ["vulkan:nvidia:0", "cuda:nvidia:0"],
        ["vulkan:nvidia:1", "opencl:nvidia:0"],
        ["vulkan:lvp:0"],
    ]


def test_identical_uuids_join_neither_different_addresses_nor_devices_of_one_driver() -> None:
    same = "11" * 16
    pair = [
        device("vulkan:x:0", pci="0000:01:00.0", uuid=same),
        device("vulkan:x:1", pci="0000:02:00.0", uuid=same),
        device("opencl:x:0", uuid="00" * 16),
        device("opencl:x:1", uuid="00" * 16),
        device("cuda:x:0", uuid="00" * 16),
    ]
    assert [len(group) for group in groups(pair)] == [1, 1, 1, 1, 1]


def test_groups_join_when_a_later_device_links_them_and_keep_the_order_of_the_rows() -> None:
    chain = [device("a:x:0", pci="01:00.0"), device("b:x:0", uuid="ab"), device("c:x:0", pci="0000:01:00.0", uuid="ab")]
    assert groups(chain) == [chain]
    assert groups([]) == []


def test_a_group_is_labelled_by_its_first_row_and_a_row_alone_by_nothing() -> None:
    assert [d.group for d in labelled(GPU)] == [
        *("vulkan:nvidia:0", "vulkan:nvidia:1", "", "vulkan:nvidia:1", "vulkan:nvidia:0", "", "", ""),
    ]


def test_an_operator_joins_rows_that_cannot_say_what_they_are(written: Any) -> None:
    """A joined row takes its place among those that the identities join."""
    said = written(
        '[[join]]\nname = "the upper card"\ndevices = ["OpenGL:mesa:0", "cuda:nvidia:*"]\n'
        '[[join]]\ndevices = ["opencl:old:0", "vulkan:nvidia:1"]\n'
    )
    assert ids(groups(GPU[:7], said)) == [
        ["vulkan:nvidia:0", "cuda:nvidia:0", "opengl:mesa:0"],
        ["vulkan:nvidia:1", "opencl:nvidia:0", "opencl:old:0"],
        ["vulkan:lvp:0"],
    ]
    label = {d.id: d.group for d in labelled(GPU, said)}
    assert label["vulkan:nvidia:0"] == label["opengl:mesa:0"] == "the upper card"
    assert label["opencl:old:0"] == "vulkan:nvidia:1"


def test_an_operator_parts_rows_that_claim_to_be_one(written: Any) -> None:
    """Two slices of one card have one address."""
    said = written('[[part]]\ndevices = ["vulkan:nvidia:1", "opencl:nvidia:0"]\n')
    assert ids(groups(GPU[:5], said))[1:] == [["vulkan:nvidia:1"], ["vulkan:lvp:0"], ["opencl:nvidia:0"]]


def test_a_driver_that_gives_no_device_today_does_not_make_the_file_wrong(written: Any) -> None:
    said = written('[[join]]\nname = "old"\ndevices = ["opencl:gone:0", "opencl:old:0"]\n')
    assert labelled(GPU, said)[6].group == "old"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[[join]\n", "is no TOML"),
        (b"\xff\xfe", "is no TOML"),
        (b"# " + b"x" * (1 << 20), "larger than 1 MiB"),
        ("[[joins]]\n", "unknown key 'joins'"),
        ('file = "x"\n', "unknown key 'file'"),
        ("join = 3\n", "join 1: Expected `object`"),
        ('[[join]]\ndevice = ["a"]\n', "join 1: Object contains unknown field `device`; keys are devices, name"),
        (
            '[[part]]\nname = "x"\ndevices = ["a", "b"]\n',
            "part 1: Object contains unknown field `name`; keys are devices",
        ),
        ('[[part]]\ndevices = "a"\n', "part 1: Expected `array`"),
        ('[[join]]\nname = "x"\n', "join 1: Object missing required field `devices`"),
        ('[[join]]\ndevices = ["vulkan:nvidia:0"]\n', "join 1: fewer than two devices"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_file_entry_and_mend(written: Any, text: str | bytes, told: str) -> None:
    with pytest.raises(InputRefused, match=r"groups .*groups\.toml") as caught:
        written(text)
    assert told in str(caught.value) and "\n" not in str(caught.value) and caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            '[[join]]\ndevices = ["vulkan:nvidia:0", "opengl:mes:0"]\n',
            "join 1: 'opengl:mes:0' matches no device; there are: ",
        ),
        ('[[part]]\ndevices = ["metal:*", "vulkan:nvidia:0"]\n', "part 1: 'metal:*' matches no device"),
        ('[[part]]\ndevices = ["", "vulkan:nvidia:0"]\n', "part 1: '' matches no device"),
        ('[[join]]\ndevices = ["vulkan:nvidia:*"]\n', "two devices of one driver"),
        ('[[join]]\ndevices = ["vulkan:nvidia:0", "opencl:nvidia:0"]\n', "two PCI addresses"),
        (2 * '[[join]]\ndevices = ["opengl:mesa:0", "opencl:old:0"]\n', "join 2: opengl:mesa:0 is in another join"),
        (
            '[[part]]\ndevices = ["opengl:*", "opencl:*"]\n[[join]]\ndevices = ["opengl:mesa:0", "opencl:old:0"]\n',
            "join 1: part 1 parts what it joins",
        ),
    ],
)
def test_an_override_that_cannot_be_is_refused(written: Any, text: str, told: str) -> None:
    said = written(text)
    with pytest.raises(InputRefused) as caught:
        labelled(GPU, said)
    assert told in str(caught.value)


def test_the_file_lies_in_the_configuration_folder_unless_the_variable_names_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was named must be there; an empty name means none."""
    monkeypatch.setattr(folders.platformdirs, "user_config_dir", lambda name: str(tmp_path / name))
    monkeypatch.delenv("SAMEBITS_GROUPS", raising=False)
    assert load() == NONE
    file = tmp_path / "samebits/groups.toml"
    file.parent.mkdir()
    file.write_text('[[join]]\ndevices = ["a:*"]\n')
    assert load().join[0].devices == ["a:*"]
    monkeypatch.setenv("SAMEBITS_GROUPS", "")
    assert load() == NONE
    monkeypatch.setenv("SAMEBITS_GROUPS", str(tmp_path / "none.toml"))
    with pytest.raises(InputRefused, match=r"none\.toml: cannot be read: No such file"):
        load()


def test_a_group_changes_nothing_by_which_records_are_judged() -> None:
    """The label is shown, cleaned of the host's name, and is no part of what tells devices apart."""
    one = device("vulkan:x:0")
    recorded = recorded_device(labelled([one])[0], redactor())
    named = recorded_device(device("vulkan:x:0", group="secrethost, slot 2"), redactor())
    assert unit(named) == unit(recorded)
    assert named.group == "NAME, slot 2"


def test_the_command_shows_groups_and_refuses_a_wrong_file_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "groups.toml"
    file.write_text('[[join]]\nname = "one card"\ndevices = ["mock:a:0", "mock:b:0"]\n')
    gate = ("gate", "--preset", "tiny", "--case", "gemm_i32;m=1;*", "--device", "mock:a", "--out", "records")
    listed = samebits(tmp_path, "devices", mock="a=match,b=match", groups=str(file))
    assert listed.returncode == 0 and listed.stdout.count("one card") == 2, listed.stderr
    ran = samebits(tmp_path, *gate, "--json", mock="a=match,b=match", groups=str(file))
    assert '"group": "one card"' in ran.stdout
    shown = samebits(tmp_path, "matrix", "records", "--format", "md")
    assert "| group |" in shown.stdout and "| one card |" in shown.stdout
    refused = samebits(tmp_path, *gate, mock="a=match,c=match", groups=str(file))
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[-1].startswith(f"samebits: groups {file}, join 1: 'mock:b:0' matches no device")
