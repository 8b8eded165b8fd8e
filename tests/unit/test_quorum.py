"""The rules of a majority, spelled out."""

from itertools import combinations, permutations

import pytest

from celery_atomicity.primitives.quorum import (
    Standing,
    Verdict,
    Vote,
    agrees,
    is_decided,
    is_enough,
    judge,
    lasts,
    majority,
    renewal,
    ttl_for,
)

ID = "0123456789abcdef" * 2
YES, NO = Vote(Verdict.GRANTED, fence=7), Vote(Verdict.TAKEN, pause=3.0, holder=f"{ID}.1 me")
LATER = Vote(Verdict.NOT_OUR_TURN)
SITS = Vote(Verdict.SITTING_OUT, pause=5.0)
GONE, STANDS, TAKEN = Standing.GONE, Standing.STANDS, Standing.TAKEN


def verdicts(votes):
    return [vote and vote.verdict for vote in votes]


def granted(fence):
    return Vote(Verdict.GRANTED, fence=fence)


class TestMajority:
    @pytest.mark.parametrize(("total", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (7, 4)])
    def test_is_of_all_that_are_configured(self, total, needed):  # LOCK-10, F41
        assert majority(total) == needed

    @pytest.mark.parametrize("total", [1, 2, 3, 4, 5])
    def test_any_two_share_an_address(self, total):  # LOCK-01
        sets = list(map(set, combinations(range(total), majority(total))))

        assert all(one & other for one in sets for other in sets)


@pytest.mark.parametrize("ttl", [0.1, 1.0, 10.0, 3600.0])
def test_a_holder_gives_up_before_the_server_does(ttl):  # LOCK-06
    assert lasts(ttl) == pytest.approx(ttl - 0.01 * ttl - 0.002)


@pytest.mark.parametrize("seconds", [0.001, 0.5, 30.0])
def test_what_is_needed_for_so_long_is_asked_for_longer(seconds):  # LOCK-12
    assert lasts(ttl_for(seconds)) == pytest.approx(seconds)


class TestGranting:
    @pytest.mark.parametrize(
        "votes",
        [
            [YES],
            [YES, YES, NO],
            [YES, None, YES],
            [None, YES, YES],  # the first is down: the others decide
            [SITS, YES, YES],  # or it sits out
            [YES, YES, YES, NO, None],
        ],
    )
    def test_by_a_majority(self, votes):  # LOCK-10
        assert judge(votes).granted

    @pytest.mark.parametrize(
        "votes",
        [
            [NO],
            [None],
            [SITS],
            [YES, NO, NO],
            [YES, None, None],
            [YES, NO, None],
            [YES, YES, None, None, None],  # a majority of those that answered is none
            [YES, LATER, LATER],
        ],
    )
    def test_not_by_fewer(self, votes):  # LOCK-10, F41
        assert not judge(votes).granted

    @pytest.mark.parametrize("first", [LATER, NO])
    def test_the_first_address_says_who_comes_first(self, first):  # LOCK-04
        outcome = judge([first, YES, YES])

        assert not outcome.granted
        assert outcome.contested is (first is NO)  # the others stand in line
        assert not outcome.silent

    def test_whoever_has_the_first_address_alone_is_yielded_to_once(self):  # LOCK-04, LOCK-10
        again = Vote(Verdict.TAKEN, holder=f"{ID}.9 me")
        other = Vote(Verdict.TAKEN, holder="f" * 32 + ".1 me")

        assert judge([again, YES, YES], yielded=NO.holder).granted
        assert not judge([other, YES, YES], yielded=NO.holder).granted
        assert not judge([other, YES, YES], yielded=NO.holder).contested
        assert not judge([LATER, YES, YES], yielded=NO.holder).granted
        assert not judge([again, YES, NO], yielded=NO.holder).granted

    def test_too_few_answers_are_told_from_a_refusal(self):  # LOCK-15
        assert judge([YES, None, None]).silent
        assert judge([None]).silent
        assert not judge([YES, NO, None]).silent
        assert not judge([NO, None, None]).silent

    def test_who_holds_and_how_long_to_wait(self):  # LOCK-03, LOCK-16
        outcome = judge([SITS, NO, YES])

        assert (outcome.pause, outcome.holder) == (3.0, NO.holder)
        assert judge([YES, None, LATER]).pause == 0.0


class TestFences:
    def test_the_largest_of_all_that_granted(self):  # LOCK-02
        outcome = judge([granted(3), granted(9), granted(3)])

        assert outcome.fence == 9
        assert agrees([granted(3), granted(9), granted(3)], 9) == 1
        assert agrees([granted(9), granted(9), None], 9) == 2

    def test_who_refused_does_not_count(self):
        assert judge([granted(3), NO, granted(3)]).granted
        assert agrees([granted(3), Vote(Verdict.TAKEN, fence=3), None], 3) == 1

    def test_none_without_a_grant(self):
        assert judge([granted(3), NO, NO]).fence == 0


class TestDeciding:
    @pytest.mark.parametrize(
        ("votes", "missing", "enough"),
        [
            ([None, None, None], 3, False),
            ([YES, None, None], 2, False),
            ([YES, YES, None], 1, True),
            ([NO, None, None], 2, False),  # two may still grant
            ([NO, NO, None], 1, True),
            ([YES, NO, None], 1, False),
            ([YES, NO, None], 0, True),  # what is not missing is down
            ([NO], 0, True),
        ],
    )
    def test_enough(self, votes, missing, enough):
        assert is_enough(verdicts(votes), missing) is enough

    def test_a_majority_decides_and_a_refusal_by_all(self):
        assert is_decided(verdicts([YES, YES, None]), 1, hears_first=True)
        assert not is_decided(
            verdicts([NO, NO, None]), 1, hears_first=True
        )  # the third may have granted
        assert is_decided(verdicts([NO, NO, None]), 0, hears_first=True)

    def test_the_first_address_is_heard(self):  # LOCK-04
        assert not is_decided(verdicts([None, YES, YES]), 1, hears_first=False)
        assert is_decided(verdicts([None, YES, YES]), 0, hears_first=True)  # it is down

    def test_somebody_before_us_decides(self):  # LOCK-04
        assert is_decided(verdicts([LATER, None, None]), 2, hears_first=True)

    def test_more_answers_change_nothing(self):
        for said in (
            [YES, YES, YES, NO, SITS],
            [YES, YES, NO, NO, LATER],
            [NO, YES, SITS, SITS, YES],
        ):
            for votes in permutations(said):
                for known in range(5):
                    seen = [*votes[:known], *[None] * (5 - known)]
                    if is_decided(verdicts(seen), 5 - known, hears_first=known > 0):
                        assert judge(seen).granted == judge(votes).granted


class TestRenewing:
    @pytest.mark.parametrize(
        ("answers", "comes_to"),
        [
            ([STANDS], True),
            ([GONE], False),
            ([TAKEN], False),
            ([None], None),
            ([STANDS, STANDS, GONE], True),
            ([STANDS, None, STANDS], True),
            ([STANDS, GONE, TAKEN], False),
            ([STANDS, None, GONE], None),  # it may stand on the silent one
            ([None, GONE, GONE], False),
            ([None, None, GONE], None),
            ([STANDS, STANDS, None, GONE, GONE], None),
            ([STANDS, STANDS, STANDS, GONE, GONE], True),
            ([STANDS, STANDS, GONE, GONE, GONE], False),
        ],
    )
    def test_a_majority_has_to_stand(self, answers, comes_to):  # LOCK-05, LOCK-11, F30
        assert renewal(answers) is comes_to
