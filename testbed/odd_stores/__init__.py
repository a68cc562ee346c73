"""A small S3, GCS and Azure server that misbehaves on request.

It keeps objects in memory, implements the parts of the dialects that Tradewind uses, checks no signature, and listens
on a loopback port in a thread of the test's own process. A test controls it in two ways, at any time:

*Habits* are permanent faults, one field each (``habits.py`` lists them all)::

    with OddStore("s3", Habits(page_keys=3, ignores_prefix=True)) as store:
        place = OddPlace(store, command)            # a bucket, with the interface of testbed.places
        place.put("a/1", b"one")                    # put, get and sizes bypass HTTP
        command.run("rm", "-r", f"{place.url}/a", *place.flags()).expect(1)
        store.habits.ignores_prefix = False

*Rules* act on single requests. They are those of ``testbed.faults`` (``skip``, ``count``, ``share`` …). Their condition
may select operation and key with :func:`during`; ``exchange.Asking.operation`` lists the operations::

    store.add(Rule(Delay(35), when=during("complete upload")))               # slow work, then the answer
    store.add(Rule(Call(lambda: place.put("k", b"new")), when=during("get"), skip=1, count=1))
                                                                             # another writer, between two reads
    store.add(Rule(Answer(200, "InternalError"), when=during("copy")))       # an error with status 200
    store.add(Rule(Later(gate.wait, landed.set), when=during("put", "k"), count=1))
                                          # no answer; the write lands when the test sets `gate`, and then sets `landed`
    store.add(Rule(Wait(gate.wait, keep_alive=True), when=during("copy")))   # done; spaces until the late answer
    store.add(Rule(Edit(lambda reply: reply.headers.update(etag='"x"')), when=during("head")))   # a lie

Actions: ``Answer`` (refuse), ``Call``, ``Cut`` (reset), ``Delay``, ``Drip``, ``Edit``, ``Endless``, ``FlipRequest``,
``FlipResponse``, ``Hang``, ``Instead`` (the page of a proxy), ``Later``, ``Truncate``, ``Wait``. ``store.exchanges`` is
the record of all requests, ``store.requests(during("copy"))`` selects some, and ``store.wait_for`` waits for them.
``store.objects`` has the store's real content (``find``, ``newest``, ``uploads``, ``change``).
"""

from testbed.faults.rules import (
    Answer,
    Call,
    Cut,
    Delay,
    Exchange,
    FlipRequest,
    FlipResponse,
    Hang,
    Request,
    Rule,
    Truncate,
)
from testbed.odd_stores.exchange import Asking, Drip, Edit, Endless, Instead, Later, Reply, Wait, during
from testbed.odd_stores.habits import Habits
from testbed.odd_stores.objects import Object, Objects, Upload
from testbed.odd_stores.place import OddPlace
from testbed.odd_stores.server import KINDS, Kind, OddStore

__all__ = [
    "KINDS",
    "Answer",
    "Asking",
    "Call",
    "Cut",
    "Delay",
    "Drip",
    "Edit",
    "Endless",
    "Exchange",
    "FlipRequest",
    "FlipResponse",
    "Habits",
    "Hang",
    "Instead",
    "Kind",
    "Later",
    "Object",
    "Objects",
    "OddPlace",
    "OddStore",
    "Reply",
    "Request",
    "Rule",
    "Truncate",
    "Upload",
    "Wait",
    "during",
]
