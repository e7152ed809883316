"""The fidelity guard: what supports a claim, what changes it, and that a text always supports itself."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bench.fidelity import table
from retcon.fidelity import check
from retcon.note import Claim, Fidelity, Note
from retcon.words import sentences

SATURDAY = "2026-05-09T14:30"
ROOT = Path(__file__).parents[1]


def note(text: str, *, on: str | None = SATURDAY, speaker: str | None = None, place: str = "n1") -> Note:
    return Note(place, text, speaker=speaker, timestamp=on)


def against(record: str, *texts: str, query: str = "", on: str | None = SATURDAY) -> Fidelity:
    return check(record, [note(text, on=on, place=f"n{i}") for i, text in enumerate(texts)], query=query)


def values(claims: tuple[Claim, ...]) -> list[tuple[str, str]]:
    return [(claim.kind, claim.text) for claim in claims]


# - what supports -


@pytest.mark.parametrize(
    ("record", "source"),
    [
        ("The user owns 23 books.", "I own twenty-three books."),
        ("The user owns twenty-three books.", "I own 23 books."),
        ("205 people came.", "Two hundred and five people came."),
        ("It cost 3,200.", "It cost 3200."),
        ("It cost 3,200.", "It was 3.2k in all."),
        ("It cost 3.2k.", "It cost 3,200."),
        ("1,500,000 were sold.", "They sold 1.5 million."),
        ("The price was $50.", "It was 50 dollars."),
        ("The price was 20 pounds.", "It was £20."),
        ("It weighs 5 kilograms.", "It weighs 5 kg."),
        ("It took 30 minutes.", "It took half an hour."),
        ("He bought 12 eggs.", "He bought a dozen eggs."),
        ("The user waited 1 week.", "I waited a week."),
        ("She is 32 years old.", "My 32-year-old sister."),
        ("This was the 3rd visit.", "It was my third visit."),
        ("Between 10 and 15 came.", "10-15 came."),
        ("\u0664\u0662 people came.", "42 people came."),
    ],
)
def test_a_number_is_supported_in_any_usual_form(record: str, source: str) -> None:
    found = against(record, source)
    assert found.ok
    assert found.supported > 0
    assert not found.unsupported


@pytest.mark.parametrize(
    ("record", "source"),
    [
        ("On 9 May 2026 they met.", "We met on 2026-05-09."),
        ("On 2026-05-04 they met.", "We met on May 4th."),
        ("On 4 May they met.", "We met on 5/4/2026."),
        ("On 4 May they met.", "We met on 4/5/2026."),
        ("On May 4 they met.", "We met on the fourth of May."),
        ("In May 2026 they met.", "We met on 4 May 2026."),
        ("In 2026 they met.", "We met on May 4, 2026."),
        ("They met on 8 May 2026.", "We met yesterday."),
        ("They meet on 10 May.", "We meet tomorrow."),
        ("They met on 2 May.", "We met last Saturday."),
        ("They meet on 2026-05-15.", "We meet next Friday."),
        ("They met on 25 April 2026.", "We met two weeks ago."),
        ("They met on 2 May.", "We met a week ago."),
        ("They met on 7 May.", "We met a couple of days ago."),
        ("They met in April.", "We met last month."),
        ("They met in 2023.", "We met three years ago."),
        ("They meet on 12 May.", "We meet in 3 days."),
        ("They meet on 20 May.", "We meet on the 20th."),
        ("They met on a Monday.", "We met on 4 May 2026."),
        ("On 9 May 2026 the user said so.", "I say so."),
        ("They meet at 17:00.", "We meet at 5 pm."),
        ("They meet at 5:00 PM.", "We meet at 17:00."),
        ("They meet at 5 p.m.", "We meet at 5."),
        ("They meet at 17:30.", "We meet at half past five."),
        ("They meet at noon.", "We meet at 12:00."),
    ],
)
def test_a_date_is_supported_in_any_usual_form_and_from_the_notes_own_day(record: str, source: str) -> None:
    found = against(record, source)
    assert found.ok
    assert found.supported > 0


def test_relative_words_support_no_date_without_the_notes_day() -> None:
    assert against("They met on 8 May 2026.", "We met yesterday.", on=SATURDAY).ok
    assert not against("They met on 8 May 2026.", "We met yesterday.", on=None).ok


@pytest.mark.parametrize(
    ("record", "source"),
    [
        ("The clinic of Sandoval called.", "I saw Dr Sandoval."),
        ("They asked Dr. Sandoval's nurse.", "I like Sandoval."),
        ("They went to new york.", "We love New York."),
        ("They love NYC.", "We love New York City."),
        ("They love New York City.", "We love NYC."),
        ("They ate at the Café Zoë.", "We ate at the cafe zoe."),
        ("They own a PlayStation.", "We own a Play Station."),
        ("In March the User told the Assistant in English.", "I told you in march."),
        ("Yesterday went well. Overall, gardening helps.", "It went well yesterday, and I like to garden."),
    ],
)
def test_a_name_is_supported_by_its_words_and_common_words_are_no_names(record: str, source: str) -> None:
    assert against(record, source).ok


def test_the_speaker_of_a_note_is_a_known_name() -> None:
    assert check("So it was Marguerite who went.", [note("I went.", speaker="marguerite")]).ok
    assert not check("So it was Marguerite who went.", [note("I went.", speaker="ann")]).ok


def test_the_query_lends_its_names_and_words_but_not_its_numbers() -> None:
    query = 'Did I see Zebedee or "the long road" 5 days ago?'
    assert against('No word of Zebedee or "the long road".', "I ran.", query=query).ok
    assert not against("No word of Zebedee.", "I ran.").ok
    assert not against("The user ran 5 days ago.", "I ran.", query=query).ok


def test_a_name_that_the_token_limit_cut_off_is_supported() -> None:
    assert against("They flew Delta SkyM", "We flew Delta SkyMiles.").ok
    assert not against("They flew Delta SkyM.", "We flew Delta SkyMiles.").ok


def test_not_until_denies_nothing() -> None:
    assert against("The user went to bed at 2 AM.", "I did not get to bed until 2 AM.").ok


# - what does not -


@pytest.mark.parametrize(
    ("record", "source", "kind", "ours", "theirs"),
    [
        ("They meet at 15:30.", "We meet at 14:30.", "date", "15:30", "14:30"),
        ("The bill was £142.50.", "I paid £124.50.", "number", "£142.50", "£124.50"),
        ("It is on March 6.", "It was on March 5.", "date", "March 6", "March 5"),
        ("Dr Lee said no.", "Dr Lam said no.", "name", "Lee", "Lam"),
        ("Maria Chen came.", "I met Maria Lopez.", "name", "Maria Chen", "Maria Lopez"),
        ("It took 3 days.", "It took 3 weeks.", "number", "3 days", "3 weeks"),
        ("The trip was 5 km.", "The trip was 5 miles.", "number", "5 km", "5 miles"),
        ("They own 20 tanks.", "We own a 20-gallon tank.", "number", "20", "20-gallon"),
        ("He bought 5 pears.", "He bought 2 apples and 3 pears.", "number", "5", "3"),
        ("The user did not adopt a cat.", "I adopted a cat.", "negation", "not adopt", "adopted"),
        ("The user adopted the old cat.", "I never adopted the old cat.", "negation", "adopted", "never adopted"),
        ("They met last week in Rome.", "We met next week in Rome.", "date", "last week", "next week"),
    ],
)
def test_a_changed_claim_is_mutated_and_names_what_it_was(
    record: str, source: str, kind: str, ours: str, theirs: str
) -> None:
    found = against(record, source)
    assert [(a.kind, a.text, b.text) for a, b in found.mutated] == [(kind, ours, theirs)]
    assert not found.unsupported
    assert not found.ok


@pytest.mark.parametrize(
    ("record", "kind", "text"),
    [
        ("The walk was nice and cost $77.", "number", "$77"),
        ("The walk was nice. It ended on 3 June 1999.", "date", "3 June 1999"),
        ("The walk with Zebedee was nice.", "name", "Zebedee"),
        ("The walk was nice. Zebedee recommended it.", "name", "Zebedee"),
        ("The walk was nice, she said “never again dear”.", "quote", "“never again dear”"),
        ("The walk was nice without umbrellas.", "negation", "without umbrellas"),
    ],
)
def test_an_invented_claim_is_unsupported(record: str, kind: str, text: str) -> None:
    found = against(record, "The walk was nice.")
    assert (kind, text) in values(found.unsupported)
    assert found.ok == (kind in ("quote", "negation"))


def test_a_sum_is_not_supported() -> None:
    assert not against("They paid £30 in all.", "I paid £10 for tea.", "I paid £20 for cake.").ok


def test_a_claim_marks_its_place_in_the_record() -> None:
    record = "Ann paid £142.50 for it."
    ((claim, source),) = against(record, "I paid £124.50, says Ann.").mutated
    assert record[claim.start : claim.end] == claim.text == "£142.50"
    assert (claim.note, source.note) == (None, "n0")


def test_a_quote_counts_whatever_marks_it_wears() -> None:
    assert not against("He said «be boring».", 'He said "go, but be boring".').unsupported
    assert against("He said «be bold».", 'He said "go, but be boring".').unsupported


# - what is missing -


def test_what_the_query_asks_about_and_the_record_lost_is_missing() -> None:
    source = "I met Maria on 5 May for $20. The weather cost 9 euros."
    found = against("The user met Maria.", source, query="When did I meet Maria?")
    assert values(found.missing) == [("date", "5 May"), ("number", "$20")]
    assert not against("The user met Maria.", source).missing
    assert not against("Met Maria on 2026-05-05, 20 dollars.", source, query="When did I meet Maria?").missing


def test_a_mutated_claim_is_not_missing_too() -> None:
    found = against("The meeting is at 15:30.", "The meeting is at 14:30.", query="When is the meeting?")
    assert found.mutated
    assert not found.missing


def test_to_dict_is_plain_json() -> None:
    found = against("Dr Lee met Bob on 3 June.", "Dr Lam met Ann on 3 May.", query="who met whom")
    assert json.loads(json.dumps(found.to_dict())) == found.to_dict()
    assert found.to_dict()["ok"] is False


# - every text -

WORDS = """
    23 twenty three hundred hundred thousand million and a dozen first ninth 9th 5 5pm 5:00 17:30 half past noon pm . ,
    : $ £50 % 3,200 3.2k 1,2,3 1.2.3 2026-05-09 31/02/2020 5/9 2026 May march Sunday last next week yesterday two weeks
    ago Dr Lee Maria de Lopez NASA iPhone not never no without but did like cat " “ ” ' - — ( ) ? ! Mr. A. e.g. 中文 三
    ½ 2½ ² 10² ⁻⁶ Ⅳ ③ ㉑ 84 k m mm 5°C 5°F degrees Celsius 12-B 1/2 ^ 〇 𐄇
    é ٤٢ ß İ ﬁ 000 0 00:00 99:99 1-2-3 1/2/03 0/0 12/12/0000 20th of of the in I I'm User # ** …
"""
PIECES = st.sampled_from([*WORDS.split(), "\n", "  "])
SENTENCE = st.lists(PIECES, max_size=25).map(" ".join) | st.lists(PIECES, max_size=12).map("".join)
ANY = st.text(max_size=200) | SENTENCE | st.text(alphabet="0123456789.,:/- $apkmT\n\r\"'", max_size=80)
DAYS = st.none() | st.dates().map(lambda day: day.isoformat()) | st.sampled_from([SATURDAY, "0001-01-01", "9999-12-31"])


@settings(max_examples=300, deadline=None)
@given(text=ANY, on=DAYS)
@example(text="hundred " * 500, on=None)
@example(text="9" * 5000, on=None)
def test_a_text_supports_itself(text: str, on: str | None) -> None:
    found = check(text, [note(text, on=on)], query=text)
    assert found.ok
    assert not found.unsupported
    assert not found.missing


@settings(max_examples=300, deadline=None)
@given(texts=st.lists(ANY, min_size=1, max_size=3), data=st.data())
def test_sentences_in_any_order_are_supported_by_their_notes(texts: list[str], data: st.DataObject) -> None:
    pieces = [piece for text in texts for piece in sentences(text)]
    chosen = data.draw(st.permutations(pieces))[:6]
    assert against("\n".join(chosen), *texts).ok


@settings(max_examples=200, deadline=None)
@given(record=ANY, texts=st.lists(ANY, max_size=3), on=DAYS, query=ANY)
def test_whatever_comes_in_every_finding_points_at_its_text(
    record: str, texts: list[str], on: str | None, query: str
) -> None:
    notes = [note(text, on=on, place=str(i)) for i, text in enumerate(texts)]
    found = check(record, notes, query=query)
    for claim in (*found.unsupported, *(ours for ours, _ in found.mutated)):
        assert record[claim.start : claim.end] == claim.text
        assert claim.text
    for claim in (*found.missing, *(theirs for _, theirs in found.mutated)):
        assert texts[int(claim.note or 0)][claim.start : claim.end] == claim.text
    assert found == check(record, notes, query=query)


@pytest.mark.parametrize("on", ["", "soon", "2026", "2026-13-40", "9999-12-31T23:59", "0001-01-01"])
def test_a_strange_timestamp_is_no_error(on: str) -> None:
    text = (
        "We met yesterday, last week, next month, 3 years ago, in 5000 years, on Friday and on the 31st, not tomorrow."
    )
    assert check(text, [note(text, on=on)]).ok


HOSTILE = {
    "digits": "9",
    "numbers": "1,2.3:4/5-6 ",
    "quotes": '"a ',
    "open quotes": "“",
    "capitals": "Aa Bb de la ",
    "nots": "not ",
    "scales": "hundred and thousand ",
    "dates": "last May 9 2026 ago ",
    "spaces": " ",
    "marks": "\u0301",
    "letters": "A",
    "apostrophes": "a'",
    "stops": "A. ",
    "raised": "10²",
    "carets": "10^2",
    "minuses": "⁻",
    "fractions": "2 ½ and a half ",
    "degrees": "5 degrees ",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_anything_repeated_is_read_in_linear_time(kind: str) -> None:
    piece = "a" + HOSTILE[kind]
    small, large = (min(_seconds(piece * (size // len(piece))) for _ in range(3)) for size in (6_000, 48_000))
    assert large < 30 * small + 1  # eight times the text; a square would take 64 times as long


def _seconds(text: str) -> float:
    begun = time.process_time()
    assert check(text, [note(text)], query="not May 9").ok
    return time.process_time() - begun


def test_a_megabyte_against_another_is_read() -> None:
    record = "Bob paid £17 on 3 June and did not see Paris, " + "a" * 1_000_000
    source = (
        "Ann paid £71 on 4 June and did see Paris. " + "the word is long and says nothing. " * 5_000 + "a" * 900_000
    )
    found = against(record, source, query="paid Paris")
    assert {claim.kind for claim, _ in found.mutated} == {"number", "date", "name", "negation"}


# - the measured tables -


def test_the_page_shows_the_table_of_the_results_file() -> None:
    results = json.loads((ROOT / "bench" / "results" / "fidelity.json").read_text(encoding="utf-8"))
    assert table(results) in (ROOT / "docs" / "fidelity.md").read_text(encoding="utf-8")


# - letters and rings -


@pytest.mark.parametrize(
    ("record", "source"),
    [
        ("She earns 84k.", "She earns 84,000."),
        ("She earns 84K a year.", "She earns 84 thousand a year."),
        ("She earns 84,000.", "She earns 84k."),
        ("It cost 5m.", "It cost 5 million."),
        ("It is 5m long.", "It is 5 metres long."),
        ("It takes 5m.", "It takes 5 minutes."),
        ("They ran 5k.", "They ran 5 km."),
        ("They ran 5 kilometres.", "They ran a 5k."),
        ("It cost 5bn.", "It cost 5 billion."),
        ("It cost 2tn.", "It cost 2 trillion."),
        ("He lives in 12B.", "He lives in 12b."),
        ("He lives in 12B.", "He lives in 12 B."),
        ("Use A4 paper.", "Use a4 paper."),
        ("He takes B12.", "He takes B-12."),
        ("It was the 90s.", "It was the nineties."),
        ("It is 5x faster.", "It is 5 times faster."),
        ("He has \u246b cats.", "He has twelve cats."),
        ("He has 12 cats.", "He has \u246b cats."),
    ],
)
def test_a_number_with_letters_or_in_a_ring_is_supported_by_what_it_means(record: str, source: str) -> None:
    found = against(record, source)
    assert found.ok
    assert found.supported == 1


@pytest.mark.parametrize(
    ("record", "source", "claim"),
    [
        ("She earns 84k.", "She earns 84.", "84k"),
        ("She earned 84.", "She earned 84k.", "84"),
        ("It cost 5m.", "It cost 5.", "5m"),
        ("It cost 5m.", "It cost 5k.", "5m"),
        ("He lives in 12B.", "He lives in 12C.", "12B"),
        ("He lives in 12B.", "He lives in 12.", "12B"),
        ("Use A4 paper.", "Use B4 paper.", "A4"),
        ("He takes B12.", "He takes 12.", "B12"),
        ("It was a 3D film.", "It was a 2D film.", "3D"),
        ("It was on the 3rd floor.", "It was on the 2nd floor.", "3rd"),
        ("He has \u246b cats.", "He has 3 dogs.", "\u246b"),
        ("Take \u2460 of them.", "Take 2 of them.", "\u2460"),
        ("Take \u2776 of them.", "Take 2 of them.", "\u2776"),
    ],
)
def test_letters_and_rings_are_part_of_the_claim(record: str, source: str, claim: str) -> None:
    found = against(record, source)
    assert not found.ok
    assert claim in [c.text for c in found.unsupported] + [ours.text for ours, _ in found.mutated]


def test_a_ring_that_only_numbers_a_list_is_no_claim() -> None:
    assert against("\u2460 Buy milk.\n\u2461 Call Ann.", "Buy milk and call Ann.").ok


def test_of_several_counterparts_the_first_is_named() -> None:
    source = "Ann paid 7 pounds for the red hat. Ann paid 8 pounds for the red hat."
    found = against("Ann paid 9 pounds for the red hat.", source)
    assert [(ours.text, theirs.text) for ours, theirs in found.mutated] == [("9 pounds", "7 pounds")]


# - signs that stand for numbers, and units -


@pytest.mark.parametrize(
    ("record", "source"),
    [
        ("She earns 84 k.", "She earns 84k."),
        ("She earns 84 k.", "She earns 84,000."),
        ("She earns 84,000.", "She earns 84 k."),
        ("She earns $84 k.", "She earns $84,000."),
        ("It cost $5 m.", "It cost $5 million."),
        ("It cost 5 million.", "It cost 5 m."),
        ("It cost 5 m.", "It cost 5 million."),
        ("It is 5 m.", "It is 5."),
        ("It is 5.", "It is 5 m."),
        ("It is 5 m.", "It is 5 metres."),
        ("It is 5 metres.", "It is 5 m."),
        ("It is 5m.", "It is 5 m."),
        ("It is 5 m.", "It is 5m."),
        ("It takes 5 m.", "It takes 5 minutes."),
        ("It takes 5 minutes.", "It takes 5 m."),
        ("It is 5 mm.", "It is 5mm."),
        ("It is 5mm.", "It is 5 millimetres."),
        ("It cost $5mm.", "It cost $5 million."),
        ("They ran 5 k.", "They ran 5 km."),
        ("They ran 5 km.", "They ran 5 k."),
        ("It was 5°C.", "It was 5 degrees."),
        ("It was 5 degrees.", "It was 5°C."),
        ("It was 5.", "It was 5°C."),
        ("It was 5°C.", "It was 5, in celsius."),
        ("It was 5 degrees Celsius.", "It was 5°C."),
        ("It was 5°C.", "It was 5 degrees C."),
        ("It was 5°C.", "It was 5 C."),
        ("It was 5C.", "It was 5°C."),
        ("It was 5°C.", "It was 5C."),
        ("It was 5 celsius.", "It was 5℃."),
        ("It was 5°.", "It was 5 degrees."),
        ("a 45-degree angle", "an angle of 45°"),
        ("Add ½ cup.", "Add half a cup."),
        ("Add ½ cup.", "Add 1/2 cup."),
        ("Add 1/2 cup.", "Add ½ cup."),
        ("Add ½ cup.", "Add 0.5 cups."),
        ("Add 0.5 cups.", "Add ½ cup."),
        ("Add 2½ cups.", "Add 2.5 cups."),
        ("Add 2½ cups.", "Add 2 ½ cups."),
        ("Add 2½ cups.", "Add 2 1/2 cups."),
        ("Add 2½ cups.", "Add two and a half cups."),
        ("It took 1½ hours.", "It took an hour and a half."),
        ("It took 1½ hours.", "It took one and a half hours."),
        ("Buy two ½-inch screws.", "Buy 2 ½-inch screws."),
        ("Add ⅓ cup.", "Add a third of a cup."),
        ("Add ⅔ cup.", "Add two thirds of a cup."),
        ("Add ¾ cup.", "Add three quarters of a cup."),
        ("There are 10² of them.", "There are 10^2 of them."),
        ("Room 12-B.", "Room 12B."),
        ("Room 12B.", "Room 12-B."),
        ("Room 12.", "Room 12-B."),
        ("It was Henry Ⅳ.", "It was Henry IV."),
        ("It was Henry IV.", "It was Henry Ⅳ."),
        ("World War Ⅱ", "World War Two"),
        ("He has ③ cats.", "He has three cats."),
        ("It was 20 degrees.", "It was 20°F."),
    ],
)
def test_a_sign_or_a_unit_is_supported_by_what_it_means(record: str, source: str) -> None:
    found = against(record, source)
    assert found.ok
    assert found.supported > 0


@pytest.mark.parametrize(
    ("record", "source"),
    [
        ("There are 500 of them.", "There are 500¹ of them."),
        ("In 2019² it was.", "It was in 2019."),
        ("It is 500 m².", "It is 500 square metres."),
        ("It emits CO₂.", "It emits CO2."),
        ("He said so.²", "He said so."),
        ("² He said so.", "He said so."),
        ("They play 5-a-side.", "They play five a side."),
        ("③ Buy cats.", "Buy cats."),
        ("Ⅳ. Cats\n❹ dogs", "Cats, dogs"),
        ("They like 5 K-pop songs.", "They like five songs, all K-pop."),
    ],
)
def test_list_marks_footnotes_and_raised_signs_in_words_are_no_claims(record: str, source: str) -> None:
    assert against(record, source).ok


@pytest.mark.parametrize(
    ("record", "source"),
    [
        ("She earns 84 k.", "She earns 84."),
        ("It is 5 mm long.", "It is 5 m long."),
        ("It is 5mm long.", "It is 5m long."),
        ("It is 5 km long.", "It is 5 m long."),
        ("It was 5°C.", "It was 5°F."),
        ("It was 5 °C.", "It was 5 degrees Fahrenheit."),
        ("It was 5℃.", "It was 5℉."),
        ("Add ½ cup.", "Add ¼ cup."),
        ("There are 10² of them.", "There are 10³ of them."),
        ("There are 10² of them.", "There are 10 of them."),
        ("There are 10² of them.", "There are 100 of them."),
        ("There are 10 of them.", "There are 10² of them."),
        ("He is in room 12-B.", "He is in room 12-C."),
        ("It was Henry Ⅳ.", "It was Henry Ⅴ."),
        ("It was Henry Ⅳ.", "It was Henry V."),
        ("He has ③ cats.", "He has 2 cats."),
        ("He has ㉑ cats.", "He has 2 cats."),
        ("He has ❹ cats.", "He has 2 cats."),
        ("Add 2½ cups.", "Add 2 cups."),
        ("Add 2½ cups.", "Add 3½ cups."),
        ("Add 2 cups.", "Add 2½ cups."),
        ("½ cup sugar", "¼ cup sugar"),
        ("10⁻⁶ of it", "10⁻⁹ of it"),
        ("It was 20 kelvin, 10^6.", "It was 20 kelvin, 10^7."),
        ("Take 🄃 now.", "Take 3 now."),
        ("It has Ⅻ parts.", "It has XI parts."),
    ],
)
def test_another_sign_or_another_unit_is_another_fact(record: str, source: str) -> None:
    assert not against(record, source).ok


def test_an_ordinal_with_a_letter_is_no_day_of_the_month() -> None:
    found = check("They met in the third-B room.", [note("The third-B room was free.")])
    assert found.unsupported == ()
