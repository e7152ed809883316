"""The language that a memory is in: how its text becomes words, which endings go, which words say nothing.

English is the default, and reads text as `retcon.words` does. Every other language differs in three ways:

    accents   go after stemming, not before: endings are known by them ("синий", "información")
    marks     of Indian and Arabic scripts belong to their word
    Han       characters count alone and in pairs, kana and all other unspaced scripts in pairs, and no pair reaches
              from one script into another: "猫を飼う" and "飼っていた猫は" share 猫 and 飼

A stemmer is one of PyStemmer's (Snowball). Function words are listed for some languages, negations never among them;
elsewhere BM25's weight of rare words has to do. Month names are those under which a note's date can be asked for.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import Stemmer

from retcon import words as english
from retcon.errors import InputError, quote

CODES = {
    "ar": "arabic", "ca": "catalan", "cs": "czech", "da": "danish", "de": "german", "el": "greek", "en": "english",
    "eo": "esperanto", "es": "spanish", "et": "estonian", "eu": "basque", "fa": "persian", "fi": "finnish",
    "fr": "french", "ga": "irish", "hi": "hindi", "hu": "hungarian", "hy": "armenian", "id": "indonesian",
    "it": "italian", "ja": "japanese", "ko": "korean", "lt": "lithuanian", "nb": "norwegian", "ne": "nepali",
    "nl": "dutch", "no": "norwegian", "pl": "polish", "pt": "portuguese", "ro": "romanian", "ru": "russian",
    "sr": "serbian", "st": "sesotho", "sv": "swedish", "ta": "tamil", "th": "thai", "tr": "turkish", "yi": "yiddish",
    "zh": "chinese",
}  # fmt: skip
UNSTEMMED = ("chinese", "japanese", "korean", "thai", "none")

# Articles, prepositions, pronouns, auxiliaries, question words; none that negates or has the stem of one that does.
_FUNCTION_WORDS = {
    "dutch": """
        de het een van in op aan met voor bij naar uit over om door tot te en of maar als dan dat die dit deze er ook
        nog wel al zo ik je jij u hij ze zij we wij jullie me mij hem haar hen hun ons mijn jouw uw zijn onze is ben
        bent was waren heeft heb hebt hebben had hadden wordt worden werd kan kun kunnen zal zullen zou moet wie wat
        waar wanneer waarom hoe welke welk hoeveel
    """,
    "french": """
        le la les l un une des du de d à au aux en dans sur sous avec pour par chez entre et ou mais si que qui quoi
        dont où quand comment pourquoi quel quelle quels quelles combien ce cet cette ces c ça je j tu il elle on nous
        vous ils elles me m te t se s lui leur eux y mon ma mes ton ta tes son sa ses notre nos votre vos leurs est es
        suis sont sommes êtes était étais étaient été être ai as a avons avez ont avait avais avaient avoir fait qu
        est-ce
    """,
    "german": """
        der die das den dem des ein eine einen einem einer eines und oder aber auch in im an am auf aus bei beim mit
        nach von vom vor zu zum zur für über um durch bis seit als wie so da dann ob dass weil wenn ich du er sie es
        wir ihr mich mir dich dir ihn ihm uns euch ihnen sich mein meine meinen meinem meiner dein deine deinen deinem
        deiner sein seine seinen seinem seiner unser unsere unseren ihre ihren ihrem ihrer man ist bin bist sind war
        waren warst wurde wurden wird werden hat habe hast haben hatte hatten kann können will soll muss was wer wen
        wem wessen wo wohin woher wann warum wieso welche welcher welches welchen welchem viel viele dies diese dieser
        dieses diesem diesen
    """,
    "italian": """
        il lo la i gli le l un uno una di d del dello della dei degli delle dell a al allo alla ai agli alle all da
        dal dalla dai dalle in nel nella nei nelle con su sul sulla sui sulle per tra fra e ed o ma se che chi cui
        come dove quando perché quale quali quanto quanta quanti quante cosa io tu lui lei noi voi loro mi ti si ci vi
        mio mia miei mie tuo tua tuoi tue suo sua suoi sue nostro nostra vostro vostra questo questa quello quella è
        sono sei siamo siete era ero erano stato stata ho hai ha abbiamo avete hanno aveva avevo c cos
    """,
    "portuguese": """
        o a os as um uma uns umas de do da dos das em no nos nas num numa por pelo pela com para ao à aos às entre
        até e ou mas se que quem qual quais quando onde como porque quanto quanta quantos quantas eu tu você ele ela
        vós vocês eles elas me te lhe lhes meu minha meus minhas teu tua teus tuas seu sua seus suas nosso nossa isto
        isso este esta esse essa aquele aquela é são sou somos era eram foi foram ser está estão estou estava tem têm
        tenho tinha ter há
    """,
    "russian": """
        в во на с со к ко у о об от до из за по под над при для через между и или а но что чтобы как если то же ли бы
        вот я ты он она оно мы вы они меня мне мной тебя тебе тобой его ему им ей её ее нас нам нами вас
        вам вами их ними себя себе мой моя моё мое мои моего моей моих моём моем моему моим моими твой твоя твоё твои
        твоего твоей твоих твоём свой своя своё свои своего своей своих наш наша наши ваш ваша ваши этот эта это эти
        этого этой тот та те был была было были есть быть будет кто кого кому кем чего чему чем где куда откуда когда
        почему зачем какой какая какое какие какого какую каком сколько который которая
    """,
    "spanish": """
        el la los las un una unos unas lo de del a al en con por para sobre entre hasta desde y e o u pero si que qué
        quien quién quiénes cual cuál cuáles cuando cuándo donde dónde adónde como cómo cuanto cuánto cuánta cuántos
        cuántas porque yo tú usted él ella nosotros vosotros ustedes ellos ellas me te se le les nos os mi mis tu tus
        su sus nuestro nuestra este esta estos estas ese esa eso esto es soy eres son somos era eran fue fueron ser
        está están estoy estaba ha he has han hemos había haber hay tiene tengo tienes
    """,
    "swedish": """
        en ett den det de i på av till från med för om vid under över mellan hos och eller men som att så då när var
        vart varför hur vem vems vad vilken vilket vilka jag du han hon vi ni dom mig dig honom henne oss er dem sig
        min mitt mina din ditt dina sin sitt sina hans hennes vår vårt våra deras är var vara varit blir blev har hade
        ha kan ska skulle här där detta denna dessa
    """,
    "chinese": "的 了 是 在 有 和 跟 与 把 被 给 我 你 您 他 她 它 们 这 那 哪 谁 吗 呢 吧 啊 什么 怎么 为什么 几 多少",
    "japanese": """
        は が を に で と も の へ や か ね よ な です でし した ます まし して しま てい いま いる いた ある あり
        から まで より って った だっ には では とは ので のに けど だけ この その あの どの これ それ あれ どれ ここ
        そこ どこ いつ だれ なに どう なぜ なん んで こと もの さん くん ちゃん すか ました でした ですか ますか
        ましたか でしたか ています ていますか 何 誰 私 僕
    """,
}  # fmt: skip
_MONTHS = {
    **{name: tuple(months.split()) for name, months in english.MONTHS_IN.items()},
    **dict.fromkeys(("chinese", "japanese"), tuple(f"{month}月" for month in range(1, 13))),
    "korean": tuple(f"{month}월" for month in range(1, 13)),
}


@dataclass(frozen=True, slots=True)
class Language:
    """How text is read. Two languages of one name are the same."""

    name: str
    words: Callable[[str], list[str]] = field(compare=False, repr=False)  # text -> its words, in order
    stem_words: Callable[[list[str]], list[str]] = field(compare=False, repr=False)  # words -> index terms
    common: frozenset[str] = field(compare=False, repr=False)  # terms of function words
    months: tuple[str, ...] = field(compare=False, repr=False)

    @property
    def is_english(self) -> bool:
        """Whether what was learned on English text holds: everyday words, kinds of questions."""
        return self.name == "english"

    def stems(self, text: str) -> list[str]:
        """Index terms of the text, in order."""
        return self.stem_words(self.words(text))

    def query_terms(self, query: str) -> list[str]:
        """Distinct terms of a query in order, function words left out unless nothing else remains."""
        distinct = list(dict.fromkeys(self.stems(query)))
        return [term for term in distinct if term not in self.common] or distinct

    def spoken_date(self, timestamp: str | None) -> str:
        """The date of an ISO timestamp in words that people ask with; empty where there is none."""
        day, _, rest = english.spoken_date(timestamp).partition(" ")
        return f"{day} {self.months[int((timestamp or '')[5:7]) - 1]} {rest.partition(' ')[2]}" if day else ""


def language(name: str) -> Language:
    """The language of that name ("german") or ISO 639-1 code ("de", "de-AT")."""
    known = find_name(name)
    if known is None:
        codes = {full: code for code, full in reversed(CODES.items())}
        listed = ", ".join(f"{each} ({codes[each]})" if each in codes else each for each in names())
        raise InputError(f"unknown language {quote(name)}: choose one of {listed}")
    return _language(known)


def find_name(given: object) -> str | None:
    """The name by which a language is kept; None where there is no such language."""
    said = given.strip().lower() if isinstance(given, str) else ""
    said = CODES.get(said.partition("-")[0], said)
    return said if said in names() else None


@lru_cache(maxsize=1)
def names() -> tuple[str, ...]:
    """Every language there is: PyStemmer's, and those without a stemmer."""
    return (*sorted(Stemmer.algorithms()), *UNSTEMMED)


@lru_cache
def _language(name: str) -> Language:
    if name == "english":
        return ENGLISH
    stem = _strip_all if name in UNSTEMMED else partial(_stem_by, name)
    read = _turkish_words if name == "turkish" else words
    common = frozenset(stem(read(_FUNCTION_WORDS.get(name, ""))))
    return Language(name, read, stem, common, _MONTHS.get(name, english.MONTH_NAMES))


ENGLISH = Language("english", english.words, english.stem_words, english.COMMON_STEMS, english.MONTH_NAMES)

# -- words -----------------------------------------------------------------------------------------------------------

_HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_HIRAGANA, _KATAKANA, _HANGUL = "\u3040-\u309f", "\u30a0-\u30ff", "\uac00-\ud7af"
_OTHERS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
_MARKS = "".join(chr(code) for code in range(0x300, 0xE00) if unicodedata.category(chr(code)) in ("Mn", "Mc"))
_PARTED = f"{_HAN}{_HIRAGANA}{_KATAKANA}{_HANGUL}{_OTHERS}"
# Of a word, and of what is normalised at once: marks that pile up are sorted, in time of their square.
_LONGEST = 512  # characters
_ASCII_RUN = re.compile(f"[a-z0-9]{{1,{_LONGEST}}}")
_RUN = re.compile(
    rf"([{_HAN}]+)|([{_HIRAGANA}]+|[{_KATAKANA}]+|[{_HANGUL}]+|[{_OTHERS}]+)"
    rf"|[^\W_{_PARTED}](?:[^\W_{_PARTED}]|[{_MARKS}]){{0,{_LONGEST - 1}}}+"
)
_STRETCH = re.compile(rf"(?s).{{0,{_LONGEST - 1}}}\s|.{{1,{_LONGEST}}}")  # ends with a blank where there is one
_TURKISH = str.maketrans("Iİ", "ıi")
_ACCENTS = dict.fromkeys(  # of Latin, Greek and Cyrillic letters; points of Hebrew and vowel signs of Arabic
    [*range(0x300, 0x370), *range(0x591, 0x5C8), *range(0x64B, 0x660), 0x670]
)
_BARE = {**_ACCENTS, ord("ı"): "i"}
_thread = threading.local()


def words(text: str) -> list[str]:
    """Words of the text in order, in one case; Han characters alone and in pairs, other unspaced scripts in pairs."""
    if text.isascii():
        return english.ascii_words(text) if len(text) <= _LONGEST else _ASCII_RUN.findall(text.lower())
    out: list[str] = []
    for found in _RUN.finditer("".join(map(_fold, _STRETCH.findall(text)))):
        run = found.group()
        if found.lastindex is None or len(run) == 1:
            out.append(run)
            continue
        if found.lastindex == 1:
            out.extend(run)
        out.extend(run[at : at + 2] for at in range(len(run) - 1))
    return out


def _fold(stretch: str) -> str:
    """The text in one case, without variants of width and form; accents stay."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFKC", stretch).casefold())


def _turkish_words(text: str) -> list[str]:
    return words(text.translate(_TURKISH))


def _stem_by(algorithm: str, found: list[str]) -> list[str]:
    """The words without their endings, then without accents."""
    stemmers: dict[str, Any] = _thread.__dict__.setdefault("stemmers", {})
    if algorithm not in stemmers:  # a Snowball stemmer must not be shared between threads
        stemmers[algorithm] = Stemmer.Stemmer(algorithm)
    return _strip_all(stemmers[algorithm].stemWords(found))


def _strip_all(found: list[str]) -> list[str]:
    return [word if word.isascii() else _strip(word) for word in found]


def _strip(word: str) -> str:
    """The word without accents; the marks of other scripts stay, and tell か from が."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", word).translate(_BARE)) or word
