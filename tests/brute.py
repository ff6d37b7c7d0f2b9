"""Brute force over an artifact and a table model in plain Python floats: the judge of plan and score.

Imports nothing from the product. Every event is looked up by its whole token path, one at a time.
"""

import math


class Brute:
    def __init__(self, artifact, rule, prompt):
        self.a = artifact
        self.rule = rule
        self.prompt = tuple(int(i) for i in prompt)

    def row(self, node):
        path = []
        while node > 0:
            path.insert(0, int(self.a.nodes.token[node]))
            node = int(self.a.nodes.parent[node])
        return [float(x) for x in self.rule(self.prompt + tuple(path))]

    def chances(self, node):
        row = self.row(node)
        top = max(row)
        weights = [math.exp(x - top) for x in row]
        whole = math.fsum(weights)
        return [w / whole for w in weights]

    def end_ids(self, form):
        end = int(self.a.forms.end[form])
        return self.a.ends.ids[int(self.a.ends.offset[end]) : int(self.a.ends.offset[end + 1])].tolist()

    def children(self, node):
        return [n for n in range(len(self.a.nodes.parent)) if int(self.a.nodes.parent[n]) == node]

    def leads(self, node, forms):
        return [f for f in forms if self.below(node, int(self.a.forms.node[f]))]

    def below(self, node, under):
        return under == node or (under > 0 and self.below(node, int(self.a.nodes.parent[under])))

    def field_forms(self, field, bit):
        first, last = field.candidates[0].forms[0], field.candidates[-1].forms[1]
        return [f for f in range(first, last) if int(self.a.forms.reads[f]) & bit]

    def joint(self, field, cut=False):
        """P(form) of every form, walked down from the anchor."""
        found = {}

        def descend(node, chance, taken, forms):
            chances = self.chances(node)
            for form in forms:
                if int(self.a.forms.node[form]) == node and form not in found:
                    found[form] = chance * math.fsum(chances[i] for i in self.end_ids(form))
            for child in self.children(node):
                inside = [f for f in self.leads(child, forms) if f not in found]
                onward = chance * chances[int(self.a.nodes.token[child])]
                for form in inside:
                    if cut and int(self.a.forms.cut[form]) == taken + 1:
                        found[form] = onward
                inside = [f for f in inside if f not in found]
                if inside:
                    descend(child, onward, taken + 1, inside)

        descend(field.anchor, 1.0, 0, self.field_forms(field, 2 if cut else 1))
        return found

    def trie(self, field):
        """Product over nodes of softmax over the node's own options."""
        found = {}

        def descend(node, chance, forms):
            row = self.row(node)
            options = {}
            for form in forms:
                if int(self.a.forms.node[form]) == node:
                    ids = tuple(self.end_ids(form))
                    options.setdefault(("end", ids), (math.fsum(math.exp(row[i]) for i in ids), [], None))[
                        1
                    ].append(form)
            for child in self.children(node):
                inside = self.leads(child, forms)
                if inside:
                    token = int(self.a.nodes.token[child])
                    options["child", child] = (math.exp(row[token]), inside, child)
            whole = math.fsum(weight for weight, _, _ in options.values())
            for weight, inside, child in options.values():
                onward = chance * (weight / whole if len(options) > 1 else 1.0)
                if child is None:
                    for form in inside:
                        found[form] = onward
                else:
                    descend(child, onward, inside)

        descend(field.anchor, 1.0, self.field_forms(field, 4))
        return found

    def probabilities(self, name, rule, temperature=1.0):
        """Per choice in declaration order, and the legal mass."""
        field = next(f for f in self.a.fields if f.name == name)
        found = self.trie(field) if rule == "trie" else self.joint(field, cut=rule == "identify")
        raw = [math.fsum(found.get(f, 0.0) for f in range(*c.forms)) for c in field.candidates]
        heated = [p ** (1 / temperature) for p in raw]
        mass = math.fsum((found if rule == "identify" else self.joint(field)).values())
        return [p / math.fsum(heated) for p in heated], mass
