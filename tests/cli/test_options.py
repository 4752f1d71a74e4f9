import pytest

from metaprior.cli.options import as_options, messages_name_options

OPTIONS = {
    "zone": "--zone ",
    "columns": "--columns ",
    "overwrite": "--overwrite",
    "cadence": "--set tasks.cadence=",
    "hours": "--hours ",
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("not stated. Try zone=", "not stated. Try --zone"),
        ("as in zone='+01:00'", "as in --zone +01:00"),
        ("Try columns={'time': '...'}.", "Try --columns time=...."),
        ("another path, or overwrite=True (--overwrite) to", "another path, or --overwrite to"),
        ('right, give cadence="60min"', "right, give --set tasks.cadence=60min"),
        ("Try hours=6, or add", "Try --hours 6, or add"),
        ("--set tasks.cadence=60min stays", "--set tasks.cadence=60min stays"),
        ("a timezone= of another name stays", "a timezone= of another name stays"),
    ],
)
def test_arguments_become_options(text: str, expected: str) -> None:
    assert as_options(text, OPTIONS) == expected


def test_without_options_nothing_changes() -> None:
    assert as_options("Try zone=", {}) == "Try zone="


def test_errors_name_options() -> None:
    with pytest.raises(ValueError, match=r"^Try --zone UTC$"), messages_name_options(OPTIONS):
        raise ValueError("Try zone='UTC'")
    with pytest.raises(OSError, match="No such file") as caught, messages_name_options(OPTIONS):
        raise FileNotFoundError(2, "No such file", "zone=")
    assert caught.value.errno == 2
