"""The outbox by hand: messages, and a relay that takes and answers for them."""

from __future__ import annotations

from holdfast.records import ANY, Outbound, OutboxFilter, RelayAsk, Relayed, Webhook

from .hand import done


def message(id, sink="mail", key=None, **fields):
    return Outbound(**{"id": id, "sink": sink, "key": key, "payload": f'"{id}"', **fields})


def sent_by(hand, *messages, **fields):
    """A run that has sent these in one commit."""
    claim = hand.held(**fields)
    hand.checkpoint(claim, done("post"), outbox=messages, tenant=claim.tenant)
    return claim


def relay(hand, sinks=("mail",), relay="r1", **fields):
    return hand.run(hand.store.relay(RelayAsk(relay=relay, sinks=sinks, **fields)))


def ids(parcels):
    return [parcel.id for parcel in parcels]


def answered(hand, parcel, answer="sent", **fields):
    (counted,) = hand.run(
        hand.store.relayed([Relayed(id=parcel.id, fence=parcel.fence, answer=answer, **fields)])
    )
    return counted


def outbox(hand, limit=100, after=0, **where):
    return list(hand.run(hand.store.outbox(OutboxFilter(**where), limit, after)))


def shown(hand, id):
    (found,) = outbox(hand, id=id, tenant=ANY)
    return found


def relay_at(hand, sinks=("mail",), **fields):
    return hand.run(hand.store.relay_at(sinks, **fields))


def webhook(name="shop", target='{"url":"https://example.com/in","secrets":["whsec_AA=="]}', **fields):
    return Webhook(name=name, target=target, **fields)
