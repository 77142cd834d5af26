"""What a digest is made from: a graph of everything that was read.

A node has words (numbers, names, bytecode) and, in order, links to other nodes. The digest depends
on what can be seen by following links from the root, and on nothing else: an object that occurs
twice and two equal objects give the same digest, cycles included. So it is the same in another
process, to which objects may have come by pickling.

Two nodes are told apart if their words differ, or if links of theirs that correspond lead to nodes
that are told apart: the classes C of nodes are the coarsest solution of

    C(a) = C(b)   =>   words(a) = words(b),   C(link_i(a)) = C(link_i(b))  for all i             (1)
"""

import hashlib
from collections.abc import Hashable, Iterable
from typing import Any

LINK = b"->"


class Graph:
    """Nodes, of which one at a time is being written."""

    def __init__(self) -> None:
        self.words: list[list[bytes]] = [[]]  # the root
        self.links: list[list[int]] = [[]]
        self.places: dict[Hashable, int] = {}  # of what was read already
        self.here = 0

    def put(self, *words: Any) -> None:
        """Words of the present node."""
        text = "\0".join(map(str, words)).encode("utf-8", "surrogatepass")
        self.words[self.here].append(text)

    def put_bytes(self, content: bytes) -> None:
        self.words[self.here].append(hashlib.sha256(content).digest())

    def link(self, key: Hashable) -> int | None:
        """Link to the node of this key. If it is new, its place, where it is to be written."""
        place = self.places.setdefault(key, len(self.words))
        self.words[self.here].append(LINK)
        self.links[self.here].append(place)
        if place < len(self.words):
            return None
        self.words.append([])
        self.links.append([])
        return place

    def hexdigest(self) -> str:
        """The digest of the classes in the order in which they are met from the root."""
        texts = [b"".join(b"%d:" % len(word) + word for word in words) for words in self.words]
        classes = self._classes(texts)
        found = hashlib.sha256()
        order, queue = {classes[0]: 0}, [0]
        for node in queue:
            found.update(b"%d:" % len(texts[node]) + texts[node])
            for other in self.links[node]:
                if classes[other] not in order:
                    order[classes[other]] = len(order)
                    queue.append(other)
                found.update(b"%d," % order[classes[other]])
        return found.hexdigest()

    def _classes(self, texts: list[bytes]) -> list[int]:
        """(1), by refinement: first by words alone, then by the classes of links, until no more
        nodes are told apart."""
        classes, count = _numbered(texts), 0
        while count < (now := len(set(classes))):
            count = now
            linked = zip(classes, self.links, strict=True)
            classes = _numbered((c, *[classes[k] for k in links]) for c, links in linked)
        return classes


def _numbered(things: Iterable[Hashable]) -> list[int]:
    """Equal things get equal numbers."""
    known: dict[Hashable, int] = {}
    return [known.setdefault(thing, len(known)) for thing in things]
