from mtcli.runtime.wording import counted


def test_a_number_with_its_noun() -> None:
    numbers = (0, 1, 2, 1234)
    assert [counted(n, "pair") for n in numbers] == ["0 pairs", "1 pair", "2 pairs", "1,234 pairs"]
    assert counted(2, "entry", "entries") == "2 entries"
