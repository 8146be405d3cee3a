-- :place    What this connection has open: number, name, file.
pragma database_list

-- :savepoint
savepoint holdfast_guest

-- :lock    Writes nothing, but as a first statement it waits for the right to: after a read that may be too late.
update workflow_meta set value = value where key = ''

-- :meta
select key, value from workflow_meta where key in ('major', 'minor')

-- :undo
rollback to holdfast_guest

-- :release
release holdfast_guest
