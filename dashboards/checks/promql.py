"""What an expression in PromQL asks for: metrics, labels, groups. Whether it is one at all is promtool's to say.

Not a parser: it reads names, braces and parentheses of expressions that promtool has accepted, and knows one habit of this project,
that a group stands before what it groups: `sum by (tag) (…)`.
"""
import dataclasses
import re

TOKEN = re.compile(r"""
    (?P<space>\s+) | (?P<string>"(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*')
  | (?P<name>[a-zA-Z_:][\w:]*) | (?P<variable>\$\w+|\$\{[^}]*\}) | (?P<number>[\d.]+\w*) | (?P<mark>=~|!~|!=|==|<=|>=|[^\w\s])
""", re.VERBOSE)
GROUPINGS = ("by", "without", "on", "ignoring", "group_left", "group_right")
WORDS = GROUPINGS + ("and", "or", "unless", "bool", "offset", "inf", "nan", "atan2")


@dataclasses.dataclass
class Selector:
    metrics: list  # names; several when __name__ is matched
    matchers: list  # (label, operator, value)
    at: int  # place of its brace, or of its name where it has none
    function: str  # that takes it as its first argument, such as rate; else empty


@dataclasses.dataclass
class Grouping:
    word: str
    labels: list
    selectors: list  # those that are grouped; of on and ignoring all of the expression


@dataclasses.dataclass
class Expression:
    selectors: list
    groupings: list

    @property
    def labels_of_result(self):
        """What a legend may name: labels of the outermost groups, or None when nothing is grouped, and it may be any of a series."""
        groups = [g for g in self.groupings if g.word == "by"]
        return {label for g in groups for label in g.labels} if groups else None


def tokens_of(text):
    return [(match.lastgroup, match.group()) for match in TOKEN.finditer(text) if match.lastgroup != "space"]


def closing(tokens, opened):
    """The place of the token that closes the brace or parenthesis at `opened`."""
    depth = 0
    for place in range(opened, len(tokens)):
        if tokens[place][1] in "({[" and tokens[place][0] == "mark":
            depth += 1
        elif tokens[place][1] in ")}]" and tokens[place][0] == "mark":
            depth -= 1
            if depth == 0:
                return place
    raise ValueError(f"nothing closes {tokens[opened][1]!r}")


def matchers_in(tokens):
    found = []
    for place, (kind, text) in enumerate(tokens):
        if kind == "name" and place + 2 < len(tokens) and tokens[place + 2][0] == "string":
            found.append((text, tokens[place + 1][1], tokens[place + 2][1][1:-1]))
    return found


def function_before(tokens, place):
    is_first = place >= 2 and tokens[place - 1][1] == "(" and tokens[place - 2][0] == "name"
    return tokens[place - 2][1] if is_first and tokens[place - 2][1] not in WORDS else ""


def names_of(matchers):
    return [name for label, operator, value in matchers if label == "__name__" for name in
            (value.split("|") if operator == "=~" else [value])]


def read(text):
    tokens = tokens_of(text)
    selectors, spans = [], []
    place = 0
    while place < len(tokens):
        kind, word = tokens[place]
        following = tokens[place + 1][1] if place + 1 < len(tokens) else ""
        if kind == "name" and word in GROUPINGS and following == "(":
            end = closing(tokens, place + 1)
            spans.append((word, [text for kind, text in tokens[place + 2:end] if kind == "name"], end))
            place = end
        elif kind == "mark" and word == "{":
            end = closing(tokens, place)
            matchers = matchers_in(tokens[place + 1:end])
            has_name = bool(selectors) and selectors[-1].at == place - 1  # it was taken for a selector of its own
            named = selectors.pop().metrics if has_name else names_of(matchers)
            function = function_before(tokens, place - 1 if has_name else place)
            selectors.append(Selector(named, [m for m in matchers if m[0] != "__name__"], place, function))
            place = end
        elif kind == "name" and word not in WORDS and following != "(" and following not in ("by", "without"):
            selectors.append(Selector([word], [], place, function_before(tokens, place)))
        elif kind == "mark" and word == "[":
            place = closing(tokens, place)
        place += 1
    groupings = []
    for word, labels, end in spans:
        within = selectors
        if word in ("by", "without"):
            if end + 1 >= len(tokens) or tokens[end + 1][1] != "(":
                raise ValueError(f"{word} ({', '.join(labels)}) stands behind what it groups, expected before it")
            last = closing(tokens, end + 1)
            within = [selector for selector in selectors if end < selector.at < last]
        groupings.append(Grouping(word, labels, within))
    return Expression(selectors, groupings)
