"""Small conversations in four languages, and questions whose words are inflected otherwise than in the notes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Question(NamedTuple):
    """A question, the number of the note that answers it, and a word of the answer as it stands there."""

    text: str
    note: int
    answer: str
    inflected: bool = False  # beyond what English endings explain: read as English, another note comes first, or none


@dataclass(frozen=True)
class Talk:
    """What two people say, a note a line, and what is asked about it."""

    language: str
    speakers: tuple[str, str]
    lines: tuple[str, ...]
    questions: tuple[Question, ...]

    def notes(self) -> list[dict[str, str]]:
        """The lines as notes n0, n1, ..., a day each."""
        return [
            {"id": f"n{i}", "text": text, "speaker": self.speakers[i % 2], "timestamp": f"2026-03-{i + 1:02}"}
            for i, text in enumerate(self.lines)
        ]


GERMAN = Talk(
    "german",
    ("Jana", "Uwe"),
    (
        "Gestern habe ich im Tierheim zwei Katzen ausgesucht. Sie heißen Mia und Flocke.",
        "Schön! Wir fahren im Sommer wieder an die Ostsee. Das Ferienhaus ist schon bezahlt.",
        "Meine Schwester wohnt jetzt in Leipzig. Ihre Wohnung hat drei Zimmer und einen Balkon.",
        "Ich spiele seit einem Jahr Gitarre. Der Unterricht ist immer am Donnerstag.",
        "Der Zahnarzt hat mir einen Weisheitszahn gezogen. Das hat 180 Euro gekostet.",
        "Unser Nachbar hat einen großen Hund, der die ganze Nacht bellt.",
        "Für das Büro habe ich neue Stühle bestellt. Sie kommen erst in sechs Wochen.",
        "Mein Vater hat im Garten Apfelbäume gepflanzt, vier Stück.",
        "Ich lerne gerade Portugiesisch, weil meine Firma ein Büro in Lissabon hat.",
        "Die Kinder haben heute Zeugnisse bekommen. Lena hat eine Eins in Mathematik.",
        "Am Wochenende war ich auf der Hochzeit von Clara. Das Kleid war grün!",
        "Mein Fahrrad wurde gestohlen, direkt vor dem Bahnhof.",
        "Oma bekommt einen neuen Herzschrittmacher. Die Operation ist im April.",
        "Ich habe das rote Auto verkauft und nehme jetzt immer den Zug.",
        "In der Küche tropft der Wasserhahn. Der Klempner kommt morgen um acht.",
    ),
    (
        Question("Wie heißt die Katze, die Jana ausgesucht hat?", 0, "Flocke"),
        Question("Wer hat ein Zeugnis bekommen?", 9, "Lena"),
        Question("Wann kommt der neue Stuhl?", 6, "sechs"),
        Question("Wie viele Apfelbäume hat der Vater gepflanzt?", 7, "vier"),
        Question("Welche Ferienhäuser sind das?", 1, "Ostsee"),
        Question("Was ist an den Bahnhöfen passiert?", 11, "gestohlen", inflected=True),
        Question("Gibt es Ärger mit den Wasserhähnen?", 14, "Klempner", inflected=True),
        Question("Was wissen wir von Herzschrittmachern?", 12, "April", inflected=True),
        Question("Welche Nachbarn haben Hunde?", 5, "bellt"),
        Question("Was war mit den Kleidern?", 10, "grün"),
        Question("Was kosten Weisheitszähne?", 4, "180"),
        Question("Wo haben die Schwestern Wohnungen?", 2, "Leipzig", inflected=True),
        Question("Welche roten Autos wurden verkauft?", 13, "Zug"),
    ),
)

SPANISH = Talk(
    "spanish",
    ("Lucía", "Mateo"),
    (
        "Ayer adopté dos gatitas en la protectora. Se llaman Nube y Canela.",
        "Qué bien. Nosotros alquilamos una casa en Asturias para agosto.",
        "Mi hermana trabaja ahora en un hospital de Valencia como enfermera.",
        "Llevo un año tocando la guitarra. La clase es los jueves por la tarde.",
        "El dentista me sacó una muela. Pagué ciento ochenta euros.",
        "El perro del vecino ladra toda la noche y no podemos dormir.",
        "Encargué sillas nuevas para la oficina. Llegarán dentro de seis semanas.",
        "Mi padre plantó cuatro manzanos en el jardín.",
        "Estoy aprendiendo alemán porque la empresa abrirá una sucursal en Berlín.",
        "Los niños recibieron las notas. Elena sacó un diez en matemáticas.",
        "El sábado fui a la boda de Clara. Llevaba un vestido verde precioso.",
        "Me robaron la bicicleta delante de la estación.",
        "A la abuela la operan del corazón en abril.",
        "Vendí el coche rojo y ahora siempre viajo en tren.",
        "Se rompió la lavadora. El técnico viene mañana a las ocho.",
    ),
    (
        Question("¿Qué gatita adoptó Lucía?", 0, "Canela"),
        Question("¿Dónde alquiló casas Mateo?", 1, "Asturias"),
        Question("¿En qué hospitales trabajaban las hermanas enfermeras?", 2, "Valencia"),
        Question("¿Cuánto pagaron por las muelas?", 4, "ochenta"),
        Question("¿Qué perros ladraban?", 5, "vecino", inflected=True),
        Question("¿Cuándo llegará la silla?", 6, "seis"),
        Question("¿Quién plantaba un manzano?", 7, "padre"),
        Question("¿Por qué aprendió alemán?", 8, "Berlín"),
        Question("¿De quién eran los vestidos verdes?", 10, "Clara"),
        Question("¿Qué coches rojos vendieron?", 13, "tren"),
    ),
)

RUSSIAN = Talk(
    "russian",
    ("Анна", "Борис"),
    (
        "Вчера мы взяли из приюта кошку. Её зовут Снежинка.",
        "Здорово! А мы летом едем на Байкал. Билеты уже купили.",
        "Моя сестра переехала в Казань и работает в большой больнице.",
        "Я уже год учусь играть на гитаре. Занятия по четвергам.",
        "Стоматолог удалил мне зуб. Я заплатил пять тысяч рублей.",
        "У соседа большая собака, она лает всю ночь.",
        "Для офиса заказали новые стулья. Привезут через шесть недель.",
        "Отец посадил в саду четыре яблони.",
        "Учу немецкий язык, потому что фирма открывает филиал в Берлине.",
        "Дети получили оценки. У Лены пятёрка по математике.",
        "В субботу была на свадьбе Клары. Невеста была в зелёном платье.",
        "У меня украли велосипед прямо возле вокзала.",
        "Бабушке в апреле сделают операцию на сердце.",
        "Я продал красную машину и теперь езжу на поезде.",
        "Сломался холодильник, мастер придёт завтра в восемь.",
    ),
    (
        Question("Как зовут кошек из приютов?", 0, "Снежинка"),
        Question("Куда куплен билет на лето?", 1, "Байкал", inflected=True),
        Question("В какой больнице работали сёстры?", 2, "Казань"),
        Question("Сколько стоят зубы у стоматологов?", 4, "тысяч", inflected=True),
        Question("Чьи собаки лаяли ночью?", 5, "соседа", inflected=True),
        Question("Когда привезли новый стул в офис?", 6, "шесть", inflected=True),
        Question("Кто сажал яблоню?", 7, "Отец", inflected=True),
        Question("Зачем Анне немецкие языки?", 8, "Берлине", inflected=True),
        Question("У кого были зелёные платья на свадьбах?", 10, "Клары", inflected=True),
        Question("Где кража велосипедов у вокзалов?", 11, "возле", inflected=True),
        Question("Какие красные машины проданы?", 13, "поезде", inflected=True),
    ),
)

JAPANESE = Talk(
    "japanese",
    ("由美", "健太"),
    (
        "昨日、保護施設から猫を引き取りました。名前はミケです。",
        "いいですね。うちは夏に北海道へ旅行します。宿はもう予約しました。",
        "妹は今、大阪の病院で働いています。看護師です。",
        "ギターを習い始めて一年になります。レッスンは木曜日です。",
        "歯医者で親知らずを抜かれました。一万八千円かかりました。",
        "隣の家の犬が夜中ずっと吠えていて眠れません。",
        "会社用に新しい椅子を注文しました。届くのは六週間後です。",
        "父が庭にりんごの木を四本植えました。",
        "支社がベルリンにできるので、ドイツ語を勉強しています。",
        "子どもたちが通知表をもらいました。美咲は算数が満点でした。",
        "土曜日に友だちの結婚式に行きました。緑のドレスが素敵でした。",
        "駅前でiPhone15を買いました。色は青です。",
        "祖母は四月に心臓の手術を受けます。",
        "赤い車を売って、今は電車で通っています。",
        "洗濯機が壊れました。修理の人が明日八時に来ます。",
    ),
    (
        Question("飼い始めた猫は何という名前？", 0, "ミケ", inflected=True),
        Question("北海道旅行の宿は予約した？", 1, "予約"),
        Question("看護師の妹が働くのはどこ？", 2, "大阪"),
        Question("親知らずを抜くのにいくらかかる？", 4, "一万八千円"),
        Question("夜に吠える犬はどこの？", 5, "隣", inflected=True),
        Question("注文した椅子が届いたら教えて", 6, "六週間後"),
        Question("木を植えた人は誰？", 7, "父"),
        Question("なぜドイツ語の勉強を？", 8, "ベルリン"),
        Question("買ったiphone15の色は？", 11, "青"),
        Question("車は売れた？", 13, "電車", inflected=True),
        Question("壊れた洗濯機はいつ直る？", 14, "八時"),
    ),
)

TALKS = (GERMAN, SPANISH, RUSSIAN, JAPANESE)
