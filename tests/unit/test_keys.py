import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_atomicity import slot_of
from celery_atomicity.keys import LONGEST, lock_key, meter_key, safe, slots_base

TEXTS = st.text(alphabet=st.characters(), max_size=300)


def test_the_layout_is_the_contracts():
    assert slots_base("shop") == "atom:shop:slots:{shop}"
    assert meter_key("shop", "sam") == "atom:shop:meter:sam"
    assert lock_key("shop", "sync:7") == "atom:shop:lock:sync:7"


@given(TEXTS, TEXTS)
def test_two_inputs_never_meet(one, other):
    assert (safe(one) == safe(other)) == (one == other)


@given(TEXTS)
def test_what_is_hashed_once_is_another_input_than_its_hash(text):
    hashed = safe(text + "\n")

    assert safe(hashed) != hashed


@given(TEXTS)
def test_a_part_is_short_and_printable(text):
    part = safe(text)

    assert part.isprintable()
    assert len(part.encode("utf-8", "surrogatepass")) <= LONGEST


@pytest.mark.parametrize("text", ["sam", "sync:7", "Müller", "日本", "x" * 200, "a b"])
def test_readable_input_stays_as_it_is(text):
    assert safe(text) == text


@pytest.mark.parametrize("text", ["x" * 201, "ü" * 101, "a\r\nb", "\ud800", "a\x00b"])
def test_other_input_keeps_a_readable_prefix_and_ends_in_a_hash(text):
    part = safe(text)

    assert part != text
    assert part[-33] == "~"


def test_slots_of_names_are_the_same_in_every_process_and_language():
    # CRC-32 of "123456789" is the check value of its definition: cbf43926.
    assert slot_of("123456789", 2**32) == 0xCBF43926
    assert slot_of("Müller", 128) == slot_of("Müller", 128)
    there = subprocess.run(
        [sys.executable, "-c", "from celery_atomicity import slot_of; print(slot_of('sam', 97))"],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "7"},
    )
    assert int(there.stdout) == slot_of("sam", 97)


def test_a_total_that_has_no_slots_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        slot_of("sam", 0)
