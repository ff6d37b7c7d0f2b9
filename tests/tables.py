"""Table models and brute force over small row sets: judges that share no code with the product.

A table gives the next-token probabilities after every path below the last prompt token, so that all that a
catalog can be is enumerated in a few lines.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache

import numpy as np
from pcdc_runtime.artifact import EndSets
from pcdc_runtime.indexed.rows import Rows
from pcdc_runtime.selecting.beliefs import Read

Path = tuple[int, ...]
Form = tuple[int, Sequence[int], Sequence[int]]
Distribution = Callable[[Path], Sequence[float]]


class TableBeliefs:
    """`distribution(path)` gives `width` probabilities after a path; zeros are allowed.

    Node 0 runs with the first pass, be it of `grow` or of `read`. `calls` keeps how many nodes each ran.
    """

    def __init__(self, width: int, distribution: Distribution, temperature: float = 1.0) -> None:
        self.width = width
        self.distribution = distribution
        self.temperature = temperature
        self.paths: list[Path] = [()]
        self.calls: list[int] = []

    @property
    def nodes(self) -> int:
        return len(self.paths)

    @property
    def passes(self) -> int:
        return len(self.calls)

    def fresh(self) -> "TableBeliefs":
        """The same model with nothing run."""
        return TableBeliefs(self.width, self.distribution, self.temperature)

    def grow(self, parents: Sequence[int], tokens: Sequence[int]) -> list[int]:
        first = len(self.paths)
        for parent, token in zip(parents, tokens, strict=True):
            if not 0 <= parent < len(self.paths):
                raise IndexError(f"node {parent} has not run")
            if not 0 <= token < self.width:
                raise IndexError(f"token {token} is not below {self.width}")
            self.paths.append((*self.paths[parent], int(token)))
        self.calls.append(len(parents) + (not self.calls))
        return list(range(first, len(self.paths)))

    def read(self, nodes: Sequence[int]) -> Read:
        if not self.calls:
            self.calls.append(1)
        with np.errstate(divide="ignore"):
            logit = [np.log(self.distribution(self.paths[node])) / self.temperature for node in nodes]
        rows = np.array(logit, dtype=np.float64).reshape(len(nodes), self.width).astype(np.float32)
        return Read(rows, np.logaddexp.reduce(rows.astype(np.float64), axis=1))

    def after(self, path: Sequence[int]) -> list[float]:
        """The tempered probabilities after a path; nothing counts as run."""
        weights = [p ** (1 / self.temperature) for p in self.distribution(tuple(path))]
        total = math.fsum(weights)
        return [weight / total for weight in weights]


def seeded_table(seed: int, width: int, temperature: float = 1.0, sharpness: float = 2.0) -> TableBeliefs:
    """A random model; the greater `sharpness`, the surer it is."""

    @cache
    def distribution(path: Path) -> list[float]:
        weights = np.exp(np.random.default_rng([seed, *path, len(path)]).normal(0, sharpness, width))
        return [float(weight) for weight in weights / weights.sum()]

    return TableBeliefs(width, distribution, temperature)


def make_rows(forms: Iterable[Form]) -> Rows:
    """Rows of forms `(entry, path, ids of its END set)` in any order."""
    ordered = sorted((tuple(path), tuple(sorted(end)), entry) for entry, path, end in forms)
    sets = sorted({end for _, end, _ in ordered})
    return Rows(
        token=np.array([token for path, _, _ in ordered for token in path], dtype=np.int32),
        offset=np.cumsum([0, *(len(path) for path, _, _ in ordered)], dtype=np.int32),
        end=np.array([sets.index(end) for _, end, _ in ordered], dtype=np.int32),
        entry=np.array([entry for _, _, entry in ordered], dtype=np.int32),
        ends=EndSets(
            np.cumsum([0, *(len(end) for end in sets)], dtype=np.int32),
            np.array([token for end in sets for token in end], dtype=np.int32),
        ),
        entries=len({entry for _, _, entry in ordered}),
    )


def forms_of(rows: Rows) -> list[tuple[int, Path, Path]]:
    """The forms that rows were made of, in the order of the rows."""
    forms = []
    for row in range(len(rows.end)):
        path = rows.token[rows.offset[row] : rows.offset[row + 1]].tolist()
        kind = int(rows.end[row])
        ids = rows.ends.ids[rows.ends.offset[kind] : rows.ends.offset[kind + 1]].tolist()
        forms.append((int(rows.entry[row]), tuple(path), tuple(ids)))
    return forms


def enumerate_entries(table: TableBeliefs, rows: Rows) -> dict[int, float]:
    """P_L of every entry: over its forms, the product of the path's probabilities and the END set's mass."""
    parts: dict[int, list[float]] = {}
    for entry, path, end in forms_of(rows):
        steps = [table.after(path[:depth])[token] for depth, token in enumerate(path)]
        last = table.after(path)
        parts.setdefault(entry, []).append(math.prod(steps) * math.fsum(last[token] for token in end))
    return {entry: math.fsum(values) for entry, values in sorted(parts.items())}


def enumerate_trie(table: TableBeliefs, rows: Rows) -> dict[int, float]:
    """What constrained decoding draws: at every step the valid tokens and closings, renormalized.

    Nothing is drawn below a prefix whose valid continuations all have probability 0.
    """
    drawn: dict[int, float] = dict.fromkeys(range(rows.entries), 0.0)

    def go_down(forms: list[tuple[int, Path, Path]], depth: int, weight: float) -> None:
        after = table.after(forms[0][1][:depth])
        events: list[tuple[float, list[tuple[int, Path, Path]]]] = []
        below: dict[int, list[tuple[int, Path, Path]]] = {}
        for form in forms:
            if len(form[1]) == depth:
                events.append((math.fsum(after[token] for token in form[2]), [form]))
            else:
                below.setdefault(form[1][depth], []).append(form)
        events += [(after[token], members) for token, members in below.items()]
        valid = math.fsum(p for p, _ in events)
        for p, members in events:
            if p > 0 and len(members[0][1]) == depth:
                drawn[members[0][0]] += weight * p / valid
            elif p > 0:
                go_down(members, depth + 1, weight * p / valid)

    go_down(forms_of(rows), 0, 1.0)
    return drawn


def kl(p: Mapping[int, float], q: Mapping[int, float]) -> float:
    """KL(p || q) in nats, of two distributions over the same entries."""
    return math.fsum(value * math.log(value / q[entry]) for entry, value in p.items() if value > 0)
