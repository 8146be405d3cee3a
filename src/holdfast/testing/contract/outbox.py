"""Driver functions for the outbox: messages, and a relay that takes them and answers for them."""

from __future__ import annotations

from holdfast.records import ANY, Outbound, OutboxFilter, RelayAsk, Relayed, Webhook

from .driver import done


def message(id, sink="mail", key=None, **fields):
    return Outbound(**{"id": id, "sink": sink, "key": key, "payload": f'"{id}"', **fields})


def sent_by(driver, *messages, **fields):
    """Make a run that has sent these messages in one commit; return its claim."""
    claim = driver.held(**fields)
    driver.checkpoint(claim, done("post"), outbox=messages, tenant=claim.tenant)
    return claim


def relay(driver, sinks=("mail",), relay="r1", **fields):
    return driver.run(driver.store.relay(RelayAsk(relay=relay, sinks=sinks, **fields)))


def ids(parcels):
    return [parcel.id for parcel in parcels]


def answered(driver, parcel, answer="sent", **fields):
    (counted,) = driver.run(
        driver.store.relayed([Relayed(id=parcel.id, fence=parcel.fence, answer=answer, **fields)])
    )
    return counted


def outbox(driver, limit=100, after=0, **where):
    return list(driver.run(driver.store.outbox(OutboxFilter(**where), limit, after)))


def shown(driver, id):
    (found,) = outbox(driver, id=id, tenant=ANY)
    return found


def relay_at(driver, sinks=("mail",), **fields):
    return driver.run(driver.store.relay_at(sinks, **fields))


def webhook(name="shop", target='{"url":"https://example.com/in","secrets":["whsec_AA=="]}', **fields):
    return Webhook(name=name, target=target, **fields)
