import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_atomicity.connection.resp import INCOMPLETE, ErrorReply, Reader, new_reader, pack

VALUES = st.recursive(
    st.one_of(
        st.integers(-(2**63), 2**63 - 1),
        st.binary(max_size=50),
        st.none(),
    ),
    lambda inner: st.lists(inner, max_size=5),
    max_leaves=20,
)


def wire(value):
    if value is None:
        return b"$-1\r\n"
    if isinstance(value, int):
        return b":%d\r\n" % value
    if isinstance(value, bytes):
        return b"$%d\r\n%b\r\n" % (len(value), value)
    return b"*%d\r\n" % len(value) + b"".join(map(wire, value))


@pytest.mark.parametrize("reader", [Reader, new_reader])
def test_answers_come_whole_however_the_bytes_are_cut(reader):
    @given(st.lists(VALUES, min_size=1, max_size=4), st.integers(1, 20))
    def check(values, size):
        data = b"".join(map(wire, values))
        it, got = reader(), []
        for start in range(0, len(data), size):
            it.feed(data[start : start + size])
            while (value := it.gets()) is not INCOMPLETE:
                got.append(value)

        assert got == values

    check()


@pytest.mark.parametrize("reader", [Reader, new_reader])
def test_an_error_is_an_answer(reader):
    it = reader()
    it.feed(b"-NOSCRIPT No matching script.\r\n+OK\r\n")

    error = it.gets()

    assert isinstance(error, ErrorReply)
    assert error.code == "NOSCRIPT"
    assert error.is_unknown_script
    assert it.gets() == b"OK"


@pytest.mark.parametrize("reader", [Reader, new_reader])
@pytest.mark.parametrize("data", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\x03\x01\r\n"])
def test_nonsense_is_told_from_an_answer(reader, data):
    it = reader()
    it.feed(data)

    with pytest.raises(ValueError, match=r"\S"):
        it.gets()


@given(st.lists(st.one_of(st.text(), st.binary(), st.integers(), st.floats()), min_size=1))
def test_a_packed_command_reads_back_as_its_words(words):
    it = Reader()
    it.feed(pack(words))

    assert it.gets() == [
        word
        if isinstance(word, bytes)
        else (word if isinstance(word, str) else repr(word)).encode("utf-8", "surrogatepass")
        for word in words
    ]
