"""Plans as people write them, and what people do to them in an editor."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

VERBS = {
    "en": ["Add", "Write", "Fix", "Remove", "Document", "Extract", "Validate", "Deploy", "Measure", "Rename"],
    "de": ["Prüfe", "Schreibe", "Entferne", "Ergänze", "Übersetze"],
    "ru": ["Добавить", "Проверить", "Удалить", "Описать"],
    "hi": ["लिखें", "जाँचें", "हटाएँ"],
    "th": ["เขียน", "ตรวจ", "ลบ"],
    "zh": ["添加", "检查", "删除", "编写"],
}
THINGS = {
    "en": ["the invoice model", "rate limits for clients", "a login page", "the retry queue", "C++ bindings"],
    "de": ["die Rechnungen", "das Größenfeld der Maske", "den Ablauf beim Anmelden"],
    "ru": ["модель счёта", "страницу входа", "очередь повторов"],
    "hi": ["चालान का मॉडल", "लॉगिन पृष्ठ", "परीक्षण"],
    "th": ["แบบจำลองใบแจ้งหนี้", "หน้าเข้าสู่ระบบ", "การทดสอบ"],
    "zh": ["发票模型", "登录页面", "重试队列"],
}
GENERIC = ["Write tests", "Update the docs", "Code review", "🚀"]
HEADINGS = ["API", "Database", "Web pages", "Release", "Setup", "Später", "Клиент", "परीक्षण", "文档", "🎉"]


@dataclass
class Box:
    """One task, as its writer thinks of it: `work` stays whatever it is called."""

    work: int
    title: str
    body: str = ""
    id: str = ""
    done: bool = False
    inner: list[Box] = field(default_factory=list)

    def all(self) -> Iterator[Box]:
        yield self
        for box in self.inner:
            yield from box.all()


@dataclass
class Section:
    title: str
    boxes: list[Box] = field(default_factory=list)


class Editor:
    """A plan and its writer."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.titles = ["Plan"]
        self.cut: list[Box] = []
        self._works = 0
        self.languages = ["en", self.random.choice(sorted(VERBS))]
        names = self.random.sample(HEADINGS, self.random.randint(1, 4))
        self.sections = [Section(name) for name in names]
        for section in self.sections:
            for _ in range(self.random.randint(1, 6)):
                section.boxes.append(self.new_box())
                while self.random.random() < 0.3:
                    section.boxes[-1].inner.append(self.new_box())

    def new_box(self) -> Box:
        pick = self.random
        language = pick.choice(self.languages)
        title = f"{pick.choice(VERBS[language])} {pick.choice(THINGS[language])}"
        if pick.random() < 0.2:
            title = pick.choice(GENERIC)
        elif any(title.lower() in box.title.lower() for box in [*self.boxes(), *self._all_cut()]):
            title += f" of part {self._works}"
        self._works += 1
        body = f"See note {self._works}, and keep it small." if pick.random() < 0.4 else ""
        return Box(self._works, title, body, f"t-{self._works}" if pick.random() < 0.15 else "")

    def _all_cut(self) -> Iterator[Box]:
        for box in self.cut:
            yield from box.all()

    def boxes(self) -> Iterator[Box]:
        for section in getattr(self, "sections", ()):
            for box in section.boxes:
                yield from box.all()

    @property
    def text(self) -> str:
        lines = [f"# {title}" for title in self.titles]
        for section in self.sections:
            lines += ["", f"## {section.title}", ""]
            for box in section.boxes:
                lines += _lines(box, "")
        return "\n".join(lines) + "\n"

    # -- what people do

    def edit(self) -> str:
        """One edit; its name."""
        edits: list[Callable[[], None]] = [
            self.rename_heading,
            self.correct_title,
            self.correct_title,
            self.reword_title,
            self.move,
            self.move,
            self.duplicate,
            self.delete,
            self.put_back,
            self.second_h1,
            self.reorder,
            self.insert,
            self.add_id,
            self.edit_body,
            self.replace,
        ]
        chosen = self.random.choice(edits)
        chosen()
        return chosen.__name__

    def _places(self) -> list[list[Box]]:
        return [section.boxes for section in self.sections] + [box.inner for box in self.boxes()]

    def _some(self) -> Box | None:
        return self.random.choice(found) if (found := list(self.boxes())) else None

    def _take(self) -> Box | None:
        places = [place for place in self._places() if place]
        if not places:
            return None
        place = self.random.choice(places)
        return place.pop(self.random.randrange(len(place)))

    def _put(self, box: Box) -> None:
        place = self.random.choice(self._places())
        place.insert(self.random.randint(0, len(place)), box)

    def rename_heading(self) -> None:
        section = self.random.choice(self.sections)
        section.title = self.random.choice(
            [f"{section.title} 2", f"The {section.title}", section.title.upper()]
        )

    def correct_title(self) -> None:
        box = self._some()
        words = box.title.split() if box else []
        long = [at for at, word in enumerate(words) if len(word) > 5 and word.isalpha()]
        if box and long:
            at = self.random.choice(long)
            word = words[at]
            cut = self.random.randrange(2, len(word) - 1)
            words[at] = self.random.choice(
                [word[:cut] + word[cut + 1 :], word[:cut] + word[cut] + word[cut:], word.upper()]
            )
            box.title = " ".join(words)

    def reword_title(self) -> None:
        if (box := self._some()) and box.title not in GENERIC:
            box.title = f"{self.random.choice(['Properly', 'Now', 'Finally'])} {box.title.lower()}"

    def move(self) -> None:
        if box := self._take():
            self._put(box)

    def duplicate(self) -> None:
        """And that is new work."""
        if box := self._some():
            self._works += 1
            self._put(replace(box, work=self._works, inner=[], id="", done=False))

    def delete(self) -> None:
        if box := self._take():
            if any(self.boxes()):
                self.cut.append(box)
            else:
                self._put(box)  # a plan has tasks

    def put_back(self) -> None:
        if self.cut:
            self._put(self.cut.pop(self.random.randrange(len(self.cut))))

    def second_h1(self) -> None:
        self.titles = ["Plan"] if len(self.titles) > 1 else ["Plan", "Notes"]

    def reorder(self) -> None:
        self.random.shuffle(self.sections)

    def insert(self) -> None:
        self._put(self.new_box())

    def replace(self) -> None:
        """By other work that is called nearly so."""
        places = [place for place in self._places() if place and len(place[0].title.split()) > 2]
        if places:
            old = (place := self.random.choice(places))[0]
            self.cut.append(old)
            *words, last = old.title.split()
            self._works += 1
            last = self.random.choice(
                [f"again{self._works}", f"of v{self._works}", f"{last[::-1]}{self._works}"]
            )
            place[0] = Box(self._works, " ".join([*words, last]))

    def add_id(self) -> None:
        if box := self._some():
            box.id = box.id or f"id-{box.work}"

    def edit_body(self) -> None:
        if box := self._some():
            box.body = f"{box.body}\nOne more word.".strip()

    # -- what Muster does

    def tick(self, text: str) -> None:
        """Takes the ticks of this version over."""
        marks = re.findall(r"- \[(.)\]", text)
        for box, mark in zip(self.boxes(), marks, strict=True):
            box.done = mark == "x"


def _lines(box: Box, indent: str) -> list[str]:
    name = f" {{#{box.id}}}" if box.id else ""
    lines = [f"{indent}- [{'x' if box.done else ' '}] {box.title}{name}"]
    lines += [f"{indent}  {line}" for line in box.body.splitlines()]
    for inner in box.inner:
        lines += _lines(inner, f"{indent}  ")
    return lines
