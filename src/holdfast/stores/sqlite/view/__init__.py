"""The machine's view of the file, inside one transaction.

- `view`: the rows that the machine asks for. It implements `holdfast.machine.view.View`.
- `machine_rows`: rows as the machine changes them, and the statements that write the changed columns.
- `saving`: writes all changed rows at the end.
- `chains`: the part of the view that is about chains.
"""
