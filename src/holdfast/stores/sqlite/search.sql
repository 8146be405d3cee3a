-- :look    The size of these runs' values, and whether they hold the text; in the order of the ids, one after the other.
-- Without `order by`: SQLite would look at all of them before it gives the first.
select id,
    octet_length(payload) + coalesce(octet_length(result), 0) + coalesce(octet_length(labels), 0)
        + coalesce(octet_length(error), 0),
    instr(payload, :form) > 0
    or coalesce(instr(result, :form) > 0, false)
    or coalesce(instr(labels, :form) > 0, false)
    or not :same and (
        instr(payload, :ascii) > 0
        or coalesce(instr(result, :ascii) > 0, false)
        or coalesce(instr(labels, :ascii) > 0, false)
    )
    or coalesce(instr(substr(idempotency_key, iif(tenant = 'default', 1, length(tenant) + 2)), :text) > 0, false)
    or coalesce(instr(last_error, :text) > 0, false)
    or coalesce(instr($message, :text) > 0, false)
from (select value as wanted from json_each(:ids)) cross join workflow_run on id = wanted

-- :message    Only a text.
iif(json_valid(error), iif(json_type(error, '$.message') = 'text', error ->> '$.message', null), null)
