"""Each verdict of the table comes out of bytes that deserve it."""

import numpy as np
import pytest

from harness.digest import digest_bytes
from harness.kernels import GUARD_WORDS
from harness.verdicts import GUARD, SENTINELS, SEVERITY, TABLE, exit_code, judge, operands, worst

RIGHT = np.arange(12, dtype="<i4").reshape(3, 4)


def dump(values: np.ndarray, guard: int = GUARD) -> bytes:
    """Output words, then the guard."""
    return values.tobytes() + guard.to_bytes(4, "little") * GUARD_WORDS


def verdict(first: np.ndarray, second: np.ndarray, **more: object) -> str:
    """The word for two dumps."""
    return judge((dump(first), dump(second)), RIGHT.tobytes(), "i32", (3, 4), **more).verdict  # type: ignore[arg-type]


def test_equal_bytes_match_and_carry_the_canonical_digest() -> None:
    """A match states the digest of what was dumped."""
    judgement = judge((dump(RIGHT), dump(RIGHT)), RIGHT.tobytes(), "i32", (3, 4))
    assert (judgement.verdict, judgement.digest) == ("match", digest_bytes("i32", (3, 4), RIGHT.tobytes()))


def test_one_wrong_bit_is_a_mismatch_with_its_place_and_both_sides() -> None:
    """The first differing index, the count and a window of both."""
    wrong = RIGHT.copy()
    wrong.view("<u4")[1, 2] ^= 1 << 31
    judgement = judge((dump(wrong), dump(wrong)), RIGHT.tobytes(), "i32", (3, 4))
    assert judgement.verdict == "mismatch" and judgement.difference is not None
    assert (judgement.difference.index, judgement.difference.count) == ([1, 2], 1)
    assert judgement.difference.expected[4] == 6 and judgement.difference.actual[4] == 6 - 2**31


def test_two_runs_that_differ_are_nondeterministic_even_if_one_is_right() -> None:
    """Nondeterminism is never taken for a match."""
    wrong = RIGHT.copy()
    wrong[0, 0] = 9
    assert verdict(RIGHT, wrong) == "nondeterministic"


def test_surviving_sentinels_are_unwritten() -> None:
    """An element that shows the first sentinel in run 1 and the second in run 2 was never written."""
    first, second = RIGHT.copy(), RIGHT.copy()
    first.view("<u4")[2, 3], second.view("<u4")[2, 3] = SENTINELS
    assert verdict(first, second) == "unwritten"


def test_a_right_value_that_equals_a_sentinel_is_no_unwritten() -> None:
    """Only both sentinels in their runs count, so a result may be any value."""
    right = RIGHT.copy()
    right.view("<u4")[0, 0] = SENTINELS[0]
    assert judge((dump(right), dump(right)), right.tobytes(), "i32", (3, 4)).verdict == "match"


def test_an_overwritten_guard_word_is_a_mismatch_though_the_digest_is_right() -> None:
    """Writing past the end is nonconformance."""
    judgement = judge((dump(RIGHT, guard=0), dump(RIGHT)), RIGHT.tobytes(), "i32", (3, 4))
    assert judgement.verdict == "mismatch" and judgement.difference is not None
    assert judgement.difference.guard_words == GUARD_WORDS


def test_a_sanitizer_report_on_a_right_digest_is_red() -> None:
    """Right by luck is not right."""
    assert verdict(RIGHT, RIGHT, sanitizer=["heap-buffer-overflow"]) == "sanitizer"


def test_a_dump_of_the_wrong_length_is_a_launch_error() -> None:
    """A short dump is never compared."""
    assert judge((b"", b""), RIGHT.tobytes(), "i32", (3, 4)).verdict == "launch-error"


def test_64_bit_sentinels_are_seen_too() -> None:
    """An i64 element is unwritten where both of its words survived."""
    right = np.arange(3, dtype="<i8")
    first, second = right.copy(), right.copy()
    first.view("<u4")[2:4], second.view("<u4")[2:4] = SENTINELS
    assert judge((dump(first), dump(second)), right.tobytes(), "i64", (3,)).verdict == "unwritten"


def test_bytes_that_do_not_fill_a_word_are_padded() -> None:
    """An output of five bytes takes two words before the guard."""
    right = np.arange(5, dtype="<i1")
    raw = right.tobytes() + bytes(3) + GUARD.to_bytes(4, "little") * GUARD_WORDS
    assert judge((raw, raw), right.tobytes(), "i8", (5,)).verdict == "match"


def test_red_is_worse_than_orange_is_worse_than_grey_is_worse_than_green() -> None:
    """One severity order."""
    colours = [TABLE[word].colour for word in sorted(SEVERITY, key=SEVERITY.__getitem__)]
    assert colours.index("red") < colours.index("orange") < colours.index("grey") < len(colours) - 1
    assert worst(["match", "unsupported", "crash"]) == "crash"


@pytest.mark.parametrize(("codes", "code"), [([0, 2, 3], 3), ([4, 1], 1), ([5, 1, 4], 5), ([], 0), ([0], 0)])
def test_of_several_exit_codes_the_first_of_5_1_4_3_2_wins(codes: list[int], code: int) -> None:
    """The documented order."""
    assert exit_code(codes) == code


def test_operands_are_the_row_and_the_column_of_the_wrong_element() -> None:
    """Dimensions that an input shares with the output are fixed at the index."""
    a, b = np.arange(6).reshape(2, 3), np.arange(12).reshape(3, 4)
    found = operands([1, 2], ("m", "n"), {"a": (("m", "k"), a), "b": (("k", "n"), b)})
    assert found == {"a": [3, 4, 5], "b": [2, 6, 10]}
