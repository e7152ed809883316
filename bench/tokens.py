"""How far the default token estimate stands from real tokenizers, on real chat, code and other languages.

    python -m bench.tokens            prints the table of docs/tokens.md
    python -m bench.tokens --json     the same numbers for machines

The prices of the estimate were fitted on LongMemEval and checked on the rest (docs/tokens.md says how). o200k, cl100k
come with the extra [bpe]. More tokenizers are measured where a package that ships their vocabulary is installed:
wordllama (Llama 2), and with tiktoken also llama-models (Llama 3) and dashscope (Qwen).
"""

from __future__ import annotations

import argparse
import base64
import json
import sysconfig
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

from bench import data_file
from retcon.tokens import counter
from retcon.words import sentences

Count = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class TokenRow:
    """The estimate against one tokenizer on one corpus."""

    corpus: str
    tokenizer: str
    texts: int
    undercounted: float  # share of texts that the estimate counts too low
    mean: float  # estimate / true count, mean over texts
    worst: float  # the lowest estimate / true count
    megabytes_per_second: float  # of the estimate, on one core


# ---- corpora


def longmemeval() -> list[str]:
    """The evidence turns and the questions of LongMemEval."""
    items = json.loads(data_file("longmemeval_gold_evidence_500.json").read_text(encoding="utf-8"))
    turns = [turn["content"] for item in items for turn in item["evidence"]]
    return _distinct(turns + [item["question"] for item in items])


def locomo() -> list[str]:
    """Every turn of LoCoMo."""
    samples = json.loads(data_file("locomo10.json").read_text(encoding="utf-8"))
    sessions = [part for sample in samples for part in sample["conversation"].values() if isinstance(part, list)]
    return _distinct([turn["text"] for session in sessions for turn in session])


def code() -> list[str]:
    """Eight lines out of every forty of Python's standard library."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    lines = [file.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True) for file in files]
    return _distinct(["".join(part[at : at + 8]) for part in lines for at in range(0, len(part), 40)])


def _distinct(texts: list[str]) -> list[str]:
    return [text for text in dict.fromkeys(texts) if text.strip()]


def _sentences(texts: list[str]) -> list[str]:
    return _distinct([sentence for text in texts for sentence in sentences(text)])


LATIN = """
Ayer adopté un gato y lo llamé Píxel; duerme todo el día encima de mi ordenador.
¿Puedes recordarme que el martes tengo cita con el dentista a las cuatro y media?
Hier, j'ai adopté un chat et je l'ai appelé Pixel ; il dort toute la journée sur mon ordinateur.
Tu peux me rappeler que j'ai rendez-vous chez le dentiste mardi à seize heures trente ?
Gestern habe ich eine Katze adoptiert und sie Pixel genannt; sie schläft den ganzen Tag auf meinem Laptop.
Kannst du mich daran erinnern, dass ich am Dienstag um halb fünf einen Zahnarzttermin habe?
Ieri ho adottato un gatto e l'ho chiamato Pixel; dorme tutto il giorno sopra il mio computer.
Puoi ricordarmi che martedì alle quattro e mezza ho appuntamento dal dentista?
Ontem adotei um gato e dei-lhe o nome de Pixel; ele dorme o dia inteiro em cima do meu computador.
Você pode me lembrar que na terça-feira tenho dentista às quatro e meia?
Gisteren heb ik een kat geadopteerd en haar Pixel genoemd; ze slaapt de hele dag op mijn laptop.
Wczoraj adoptowałem kota i nazwałem go Pixel; śpi całymi dniami na moim komputerze.
Včera jsem si adoptoval kočku a pojmenoval ji Pixel; celý den spí na mém počítači.
Igår adopterade jag en katt och döpte den till Pixel; den sover hela dagen på min dator.
Eilen adoptoin kissan ja annoin sille nimeksi Pixel; se nukkuu koko päivän tietokoneeni päällä.
Tegnap örökbe fogadtam egy macskát, és Pixelnek neveztem el; egész nap a számítógépemen alszik.
Ieri am adoptat o pisică și i-am pus numele Pixel; doarme toată ziua pe calculatorul meu.
Dün bir kedi sahiplendim ve adını Pixel koydum; bütün gün bilgisayarımın üstünde uyuyor.
Kemarin saya mengadopsi seekor kucing dan menamainya Pixel; ia tidur sepanjang hari di atas laptop saya.
Hôm qua tôi nhận nuôi một con mèo và đặt tên là Pixel; nó ngủ cả ngày trên máy tính của tôi.
Jana nilimchukua paka na kumpa jina la Pixel; analala siku nzima juu ya kompyuta yangu.
""".strip().splitlines()
OTHER = """
Вчера я взял котёнка и назвал его Пиксель; он целый день спит на моём ноутбуке.
Напомни мне, пожалуйста, что во вторник в половине пятого у меня приём у зубного врача.
Вчора я взяв кошеня і назвав його Піксель; воно цілий день спить на моєму ноутбуці.
Χθες υιοθέτησα μια γάτα και την ονόμασα Πίξελ· κοιμάται όλη μέρα πάνω στον υπολογιστή μου.
אתמול אימצתי חתול וקראתי לו פיקסל; הוא ישן כל היום על המחשב שלי.
أمس تبنيت قطة وسميتها بيكسل، وهي تنام طوال اليوم فوق حاسوبي.
دیروز یک گربه گرفتم و اسمش را پیکسل گذاشتم؛ تمام روز روی لپ‌تاپم می‌خوابد.
کل میں نے ایک بلی گود لی اور اس کا نام پکسل رکھا؛ وہ سارا دن میرے کمپیوٹر پر سوتی ہے۔
कल मैंने एक बिल्ली गोद ली और उसका नाम पिक्सल रखा; वह सारा दिन मेरे लैपटॉप पर सोती है।
গতকাল আমি একটি বিড়াল এনেছি আর তার নাম রেখেছি পিক্সেল; সে সারাদিন আমার ল্যাপটপের উপর ঘুমায়।
நேற்று நான் ஒரு பூனையைத் தத்தெடுத்து அதற்கு பிக்சல் என்று பெயரிட்டேன்.
เมื่อวานฉันรับแมวมาเลี้ยงและตั้งชื่อมันว่าพิกเซล มันนอนทั้งวันบนคอมพิวเตอร์ของฉัน
გუშინ კატა ავიყვანე და პიქსელი დავარქვი; მთელი დღე ჩემს კომპიუტერზე სძინავს.
Երեկ ես կատու վերցրի և անվանեցի Պիքսել. նա ամբողջ օրը քնում է իմ համակարգչի վրա։
昨天我领养了一只猫，给它取名叫像素；它整天睡在我的电脑上。
请提醒我星期二下午四点半要去看牙医，别忘了带上医保卡。
昨天我領養了一隻貓，替牠取名叫像素；牠整天睡在我的電腦上。
昨日、猫を引き取ってピクセルと名付けました。一日中パソコンの上で寝ています。
火曜日の四時半に歯医者の予約があることを思い出させてくれますか？
어제 고양이를 입양해서 픽셀이라고 이름을 지었어요. 하루 종일 제 노트북 위에서 자요.
화요일 네 시 반에 치과 예약이 있다고 알려 줄래요?
🎉🎂 party!! 🥳🥳 ❤️ 👨‍👩‍👧‍👦 👍🏽 🇩🇪🇫🇷 7️⃣ 😂😂😂
""".strip().splitlines()

CORPORA: dict[str, Callable[[], list[str]]] = {
    "LongMemEval turns": longmemeval,
    "LongMemEval sentences": lambda: _sentences(longmemeval()),
    "LoCoMo turns": locomo,
    "LoCoMo sentences": lambda: _sentences(locomo()),
    "Python code": code,
    "Latin-script languages": lambda: LATIN,
    "other scripts and emoji": lambda: OTHER,
}

# ---- reference tokenizers

_BEFORE = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_AFTER = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def references() -> Iterator[tuple[str, Count]]:
    """The tokenizers that are installed here, by name."""
    yield "o200k", counter("bpe:o200k")
    yield "cl100k", counter("bpe:cl100k")
    if llama3 := _package_file("llama_models", "llama3/tokenizer.model"):
        yield "Llama 3", _from_ranks(llama3, rf"{_BEFORE}\p{{N}}{{1,3}}{_AFTER}")
    if qwen := _package_file("dashscope", "resources/qwen.tiktoken"):
        yield "Qwen", _from_ranks(qwen, rf"{_BEFORE}\p{{N}}{_AFTER}")
    if llama2 := _package_file("wordllama", "tokenizers/l2_supercat_tokenizer_config.json"):
        yield "Llama 2", _from_json(llama2)


def _package_file(package: str, name: str) -> Path | None:
    """A file inside an installed package, which is not imported."""
    spec = find_spec(package)
    found = [
        path
        for folder in (spec.submodule_search_locations if spec else None) or ()
        if (path := Path(folder, name)).is_file()
    ]
    return found[0] if found else None


def _from_ranks(path: Path, pattern: str) -> Count:
    import tiktoken  # type: ignore[import-not-found,unused-ignore]

    lines = (line.split() for line in path.read_bytes().splitlines() if line.strip())
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    encoding = tiktoken.Encoding(path.name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    return lambda text: len(encoding.encode_ordinary(text))


def _from_json(path: Path) -> Count:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


# ---- measuring


def measure() -> Iterator[TokenRow]:
    """A row for each corpus and tokenizer."""
    tokenizers = dict(references())
    for corpus, load in CORPORA.items():
        texts = load()
        estimates, speed = _time_counts(counter("estimate"), texts)
        for name, count in tokenizers.items():
            ratios = [estimate / count(text) for estimate, text in zip(estimates, texts, strict=True)]
            short = sum(ratio < 1 for ratio in ratios)
            yield TokenRow(corpus, name, len(texts), short / len(texts), sum(ratios) / len(ratios), min(ratios), speed)


def _time_counts(count: Count, texts: list[str]) -> tuple[list[int], float]:
    """The counts, and megabytes per second of processor time in the best of three rounds."""
    seconds = []
    for _ in range(3):
        start = time.process_time()
        found = list(map(count, texts))
        seconds.append(max(time.process_time() - start, 1e-6))
    return found, sum(len(text.encode()) for text in texts) / 1e6 / min(seconds)


def table(rows: list[TokenRow]) -> str:
    """The rows in Markdown."""
    head = "| corpus | texts | tokenizer | undercounted | mean estimate / true | worst | estimate MB/s |"
    lines = [head, "|---|---:|---|---:|---:|---:|---:|"]
    lines += [
        f"| {row.corpus} | {row.texts:,} | {row.tokenizer} | {row.undercounted:.2%} | {row.mean:.2f} | {row.worst:.2f} "
        f"| {row.megabytes_per_second:.0f} |"
        for row in rows
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON list in place of the table")
    options = parser.parse_args()
    rows = list(measure())
    print(json.dumps([asdict(row) for row in rows], indent=1) if options.json else table(rows))


if __name__ == "__main__":
    main()
