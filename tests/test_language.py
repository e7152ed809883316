"""A memory in a language of its own: how its text is read, and that it finds what English rules would not."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
import Stemmer
from command_line import complaint, document, fine
from conftest import fixed_clock, raw
from hypothesis import given
from hypothesis import strategies as st
from killing import Moment, Tell, told_before_death
from talks import GERMAN, TALKS, Question, Talk

from retcon import Memory, words
from retcon.errors import InputError, StoreError
from retcon.evidence import query_words
from retcon.language import _FUNCTION_WORDS, CODES, ENGLISH, UNSTEMMED, find_name, language, names
from retcon.note import Hit, Note
from retcon.repeats import mark_duplicates
from retcon.rerank import FRAME_STEMS, weigh_terms

pytestmark = pytest.mark.both_stores

ASKED = [pytest.param(talk, question, id=question.text) for talk in TALKS for question in talk.questions]
INFLECTED = [case for case in ASKED if isinstance(case.values[1], Question) and case.values[1].inflected]


def tell(talk: Talk, name: str, path: Path | str = ":memory:") -> Memory:
    """A memory in that language that holds the talk."""
    memory = Memory(path, language=name, now=fixed_clock)
    memory.add(talk.notes())
    return memory


def rankings(memory: Memory, talk: Talk) -> list[list[Hit]]:
    return [memory.search(question.text) for question in talk.questions]


# -- finding -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("talk", "question"), ASKED)
def test_the_right_note_comes_first(talk: Talk, question: Question) -> None:
    with tell(talk, talk.language) as memory:
        assert memory.search(question.text)[0].id == f"n{question.note}"
        assert memory.recall(question.text, 64).found


@pytest.mark.parametrize(("talk", "question"), INFLECTED)
def test_english_endings_do_not_find_it(talk: Talk, question: Question) -> None:
    with tell(talk, "english") as memory:
        assert [hit.id for hit in memory.search(question.text)[:1]] != [f"n{question.note}"]


@pytest.mark.parametrize(("talk", "question"), ASKED)
def test_extract_keeps_the_answer(talk: Talk, question: Question) -> None:
    with tell(talk, talk.language) as memory:
        found = memory.recall(question.text, 64, action="extract")
        assert question.answer in found.text
        assert found.tokens <= 64
        assert f"n{question.note}" in [source.id for source in found.sources]


@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("german", "Was war am 9. März 2026?"), ("spanish", "¿Qué pasó el 9 de marzo de 2026?"),
        ("russian", "Что было 9 марта 2026?"), ("japanese", "2026年3月9日に何が？"), ("french", "le 9 mars 2026"),
        ("korean", "2026년 3월 9일"), ("finnish", "9 March 2026"),
    ],
)  # fmt: skip
def test_a_day_is_found_by_the_words_of_the_language(name: str, query: str) -> None:
    with Memory(":memory:", language=name) as memory:
        memory.add([{"id": f"n{day}", "text": "xyz", "timestamp": f"2026-03-{day:02}"} for day in range(1, 20)])
        memory.add({"id": "other", "text": "xyz", "timestamp": "2026-04-09"})
        assert memory.search(query)[0].id == "n9"


@pytest.mark.parametrize(("talk", "question"), INFLECTED)
def test_a_long_note_is_found_by_the_passage_that_holds_the_inflected_words(talk: Talk, question: Question) -> None:
    with Memory(":memory:", language=talk.language) as memory:
        memory.add("\n".join(talk.lines * 2), id="long")
        (hit,) = memory.search(question.text)
        assert hit.passage is not None
        found = hit.note.text[slice(*hit.passage)]
        assert any(sentence in found for sentence in words.sentences(talk.lines[question.note]))
        assert memory.check().problems == ()


def test_a_query_is_about_memory_as_soon_as_one_of_its_words_is_there() -> None:
    with tell(GERMAN, "german") as memory:
        assert memory.recall("Welche Katzen fressen gern Lachs mit Reis und Karotten?", 64).found
        assert not memory.recall("Welche Aktien steigen?", 64).found


def test_what_is_known_of_english_words_does_not_hold_for_others() -> None:
    (name,) = query_words("Name", language("german"))
    assert not name.everyday
    assert query_words("name")[0].everyday
    term = min(FRAME_STEMS)
    assert weigh_terms([term]) != weigh_terms([term], language=language("dutch")) == {term: 1.0}


# -- duplicates --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "one", "other", "same"),
    [
        ("german", "Meine Katze frisst gern frischen Lachs", "Meine Katzen frisst gern den frischen Lachs", True),
        ("german", "Meine Katze frisst gern frischen Lachs", "Meine Katze frisst nicht gern frischen Lachs", False),
        ("german", "Meine Katze frisst nicht gern frischen Lachs", "Meine Katze frisst gern frischen Lachs", False),
        ("spanish", "Mi gata no come nunca pescado fresco", "Mi gata come nunca pescado fresco", False),
        ("russian", "Моя кошка не любит свежую рыбу", "Моя кошка любит свежую рыбу", False),
        ("japanese", "猫は魚を食べます", "猫は魚を食べません", False),
        ("finnish", "Kissa syö mielellään tuoretta kalaa", "Kissa ei syö mielellään tuoretta kalaa", False),
    ],
)
@pytest.mark.parametrize("many", [False, True])
def test_what_differs_by_a_negation_is_no_duplicate(name: str, one: str, other: str, same: bool, many: bool) -> None:
    texts = [one, other] + [f"Etwas anderes, Nummer {i}" for i in range(60 if many else 0)]
    hits = [Hit(Note(id=str(i), text=text), 1.0, i + 1) for i, text in enumerate(texts)]
    assert (mark_duplicates(hits, language(name))[1].duplicate_of == "0") is same


NEGATIONS = {
    "dutch": "niet geen nooit niets niemand zonder", "french": "ne n pas jamais rien personne sans aucun ni",
    "german": "nicht kein keine keinen nie niemals nichts niemand ohne weder", "italian": "non mai niente senza né",
    "portuguese": "não nunca nada ninguém sem nem", "russian": "не нет ни никогда ничего никто без",
    "spanish": "no nunca nada nadie sin ni", "swedish": "inte ingen inga aldrig utan",
    "chinese": "不 没 沒 无 別", "japanese": "ない ませ せん なく なか ず 無 不",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(_FUNCTION_WORDS))
def test_no_function_word_negates(name: str) -> None:
    assert language(name).common.isdisjoint(language(name).stems(NEGATIONS[name]))


@pytest.mark.parametrize("name", sorted(_FUNCTION_WORDS))
def test_a_question_of_function_words_alone_keeps_them(name: str) -> None:
    known = language(name)
    some = " ".join(_FUNCTION_WORDS[name].split()[:3])
    assert known.query_terms(some) == list(dict.fromkeys(known.stems(some)))
    assert known.query_terms(f"{some} xyz") == ["xyz"]


# -- reading text ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "terms"),
    [
        ("german", "Häuser Haus Straße STRASSE", ["haus", "haus", "strass", "strass"]),
        ("spanish", "canción canciones CANCIÓN", ["cancion"] * 3),
        ("russian", "синий синего Ёлка елки", ["син", "син", "елк", "елк"]),
        ("russian", "сини\u0306", ["син"]),  # a letter and its mark apart
        ("japanese", "ＮＨＫでiPhone15を買った", ["nhk", "で", "iphone15", "を", "買", "った"]),
        ("japanese", "子猫がｶﾞｽ", ["子", "猫", "子猫", "が", "ガス"]),
        ("japanese", "人々", ["人", "々", "人々"]),
        ("chinese", "我的猫", ["我", "的", "猫", "我的", "的猫"]),
        ("korean", "서울에서", ["서울", "울에", "에서"]),
        ("hindi", "किताबें किताब", ["किताब", "किताब"]),
        ("turkish", "IŞIK ışık İzmir", ["isik", "isik", "izmir"]),
        ("none", "Häuser running 猫", ["hauser", "running", "猫"]),
    ],
)
def test_terms_of(name: str, text: str, terms: list[str]) -> None:
    assert language(name).stems(text) == terms


@given(st.text(), st.sampled_from(names()))
def test_any_text_has_terms_in_any_language(text: str, name: str) -> None:
    known = language(name)
    assert all(known.words(text))
    assert len(known.stems(text)) == len(known.words(text))


@given(st.text())
def test_english_reads_text_as_it_always_did(text: str) -> None:
    assert ENGLISH.words(text) == words.words(text)
    assert ENGLISH.stems(text) == words.stems(text)
    assert ENGLISH.query_terms(text) == words.query_terms(text)
    assert ENGLISH.spoken_date("2026-05-09") == words.spoken_date("2026-05-09")


def test_stemming_is_safe_from_many_threads() -> None:
    def read(text: str) -> list[str]:
        return [*language("german").stems(text), *language("russian").stems(text)]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(read, ["Häuser кошками " * 50] * 200))
    assert all(one == found[0] for one in found)


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given_name", ["german", "German", " GERMAN ", "de", "DE", "de-AT"])
def test_a_language_goes_by_its_name_and_its_code(given_name: str) -> None:
    assert language(given_name) == language("german")
    with Memory(":memory:", language=given_name) as memory:
        assert memory.language == memory.stats()["language"] == "german"


def test_every_stemmer_and_every_code_is_known() -> None:
    assert set(names()) == {*Stemmer.algorithms(), *UNSTEMMED}
    assert {name for name in CODES.values() if find_name(name) is None} <= {"czech", "persian", "polish", "sesotho"}
    assert language("english") is language("en") is ENGLISH


@pytest.mark.parametrize("bad", ["klingon", "", "e", 3, None])
def test_an_unknown_language_is_told_in_one_line_with_all_there_are(bad: object) -> None:
    with pytest.raises(InputError) as told:
        language(bad)  # type: ignore[arg-type]
    assert "\n" not in str(told.value)
    assert "german (de)" in str(told.value)
    assert "none" in str(told.value)


# -- the file ----------------------------------------------------------------------------------------------------------


def test_a_file_keeps_its_language(path: Path) -> None:
    tell(GERMAN, "german", path).close()
    with Memory(path) as memory:
        assert memory.language == "german"
        assert memory.search("Bahnhöfen")[0].id == "n11"
    with Memory(path, language="de") as memory:
        assert memory.check().ok


@pytest.mark.sqlite
def test_another_language_is_refused_with_the_command_that_changes_it(path: Path) -> None:
    tell(GERMAN, "german", path).close()
    with pytest.raises(InputError, match=f"retcon reindex {path} --language spanish") as told:
        Memory(path, language="es")
    assert "\n" not in str(told.value)
    with Memory(path) as memory:
        assert memory.language == "german"


def test_a_file_without_notes_takes_another_language(path: Path) -> None:
    Memory(path, language="german").close()
    with Memory(path, language="spanish") as memory:
        assert memory.language == "spanish"
    with Memory(path) as memory:
        assert memory.language == "spanish"


def test_a_store_is_english_if_nobody_says_otherwise(path: Path) -> None:
    with Memory(path) as memory:
        assert memory.language == "english"


@pytest.mark.parametrize("talk", TALKS, ids=lambda talk: talk.language)
def test_export_and_load_bring_back_the_same_ranking(talk: Talk, tmp_path: Path) -> None:
    with tell(talk, talk.language) as memory, Memory(":memory:", language=talk.language, now=fixed_clock) as copy:
        memory.export(tmp_path / "notes.jsonl")
        copy.load(tmp_path / "notes.jsonl")
        assert rankings(copy, talk) == rankings(memory, talk)
        assert copy.check().ok


@pytest.mark.parametrize("talk", TALKS, ids=lambda talk: talk.language)
def test_reindexing_there_and_back_gives_what_a_fresh_file_gives(talk: Talk, path: Path) -> None:
    with tell(talk, "english", path) as memory, tell(talk, talk.language) as fresh, tell(talk, "english") as english:
        told: list[int] = []
        assert memory.reindex(talk.language, progress=told.append) == len(talk.lines) == told[-1]
        assert rankings(memory, talk) == rankings(fresh, talk)
        assert memory.check().problems == ()
        memory.reindex("english")
        assert rankings(memory, talk) == rankings(english, talk)
        assert memory.check().problems == ()


@pytest.mark.parametrize("talk", TALKS, ids=lambda talk: talk.language)
def test_the_index_stays_true_after_corrections_and_deletes(talk: Talk, path: Path) -> None:
    with tell(talk, talk.language, path) as memory:
        memory.supersede("n3", talk.lines[5])
        memory.delete("n4")
        memory.add(talk.lines[0], session="s")
        memory.add(talk.lines[1], session="s")
        assert memory.check().problems == ()
        before = rankings(memory, talk)
        assert memory.reindex() == 16
        assert rankings(memory, talk) == before


def test_a_memory_that_is_open_follows_when_another_reindexes_the_file(path: Path) -> None:
    with tell(GERMAN, "english", path) as memory, Memory(path) as other:
        other.reindex("german")
        assert memory.search("Bahnhöfen")[0].id == "n11"
        memory.add("Die Brücken sind gesperrt.", id="late")
        assert memory.search("Brücke")[0].id == "late"
        assert memory.check().problems == ()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
@pytest.mark.parametrize("calls", [1, 40, 400])
def test_a_reindex_that_is_killed_leaves_the_old_index(path: Path, calls: int) -> None:
    tell(GERMAN, "german", path).close()

    def work(note: Tell) -> None:
        Memory(path).reindex("spanish", progress=note)

    told_before_death(work, Moment(told=5, calls=calls))
    with Memory(path) as memory, tell(GERMAN, "german") as fresh:
        assert memory.language == "german"
        assert memory.check().problems == ()
        assert rankings(memory, GERMAN) == rankings(fresh, GERMAN)


@pytest.mark.sqlite
def test_a_language_that_is_not_known_here_is_told_and_reindexing_mends_it(path: Path) -> None:
    tell(GERMAN, "german", path).close()
    with closing(raw(path)) as connection:
        connection.execute("UPDATE seal SET language = 'klingon'")
    with Memory(path) as memory:
        with pytest.raises(StoreError, match="klingon"):
            memory.search("Katze")
        assert any("klingon" in problem.what for problem in memory.check().problems)
        memory.reindex("german")
        assert memory.check().problems == ()


def test_vectors_stay_when_the_language_changes(path: Path) -> None:
    with Memory(path, language="german", retriever="dense") as memory:
        memory.add(GERMAN.notes())
        memory.search("Katze")
        before = memory.stats()["vectors"]
        memory.reindex("none")
        assert memory.stats()["vectors"] == before == len(GERMAN.lines)


@pytest.mark.sqlite
def test_no_index_entry_of_the_old_language_is_left(path: Path, tmp_path: Path) -> None:
    with tell(GERMAN, "german", path) as memory, tell(GERMAN, "spanish", tmp_path / "fresh.db"):
        before = index_terms(path)
        memory.reindex("spanish")
        assert before != index_terms(path) == index_terms(tmp_path / "fresh.db")


def index_terms(path: Path) -> list[tuple[object, ...]]:
    with closing(raw(path)) as connection:
        return connection.execute("SELECT term, df, peak, low FROM posting ORDER BY term").fetchall()


# -- the command line --------------------------------------------------------------------------------------------------


def test_the_command_line_makes_a_store_in_a_language_and_changes_it(db: Path) -> None:
    fine("add", "Die Katzen schlafen.", "--language", "de")
    assert document("search", "Katze")["results"] != []
    assert "retcon reindex" in complaint("add", "Hola", "--language", "es")
    assert document("doctor")["store"]["language"] == "german"
    assert "indexed in german" in " ".join(fine("doctor").split())
    assert document("reindex", str(db), "--language", "es") == {"path": str(db), "notes": 1, "language": "spanish"}
    assert fine("reindex") == f"{db}: 1 note indexed in spanish\n"
    assert "german (de)" in complaint("reindex", "--language", "klingon")


def test_load_takes_a_language_for_a_new_store(db: Path, tmp_path: Path) -> None:
    with tell(GERMAN, "german") as memory:
        memory.export(tmp_path / "notes.jsonl")
    fine("load", "notes.jsonl", "--language", "german")
    assert document("search", "Bahnhöfen")["results"][0]["id"] == "n11"
    assert "unknown language" in complaint("load", "notes.jsonl", "--language", "xx", "--db", "new.db")
    assert not (tmp_path / "new.db").exists()
