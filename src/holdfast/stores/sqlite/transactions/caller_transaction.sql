-- :place    The files that the connection has open: number, name, file.
pragma database_list

-- :savepoint
savepoint holdfast_guest

-- :lock    Changes no row. As the first statement it waits for the write lock; after a read that could fail.
update workflow_meta set value = value where key = ''

-- :meta
select key, value from workflow_meta where key in ('major', 'minor')

-- :undo
rollback to holdfast_guest

-- :release
release holdfast_guest
