-- Two roles: `holdfast_owner` makes and changes the schema (holdfast migrate), `holdfast_app` does everything else and
-- can neither create, change nor drop anything. Put your own names, database and schema in.

-- Once, by an administrator:
create role holdfast_owner login;
create role holdfast_app login;
grant connect, create on database shop to holdfast_owner;
grant connect on database shop to holdfast_app;

-- Once, by holdfast_owner, after its first `holdfast migrate`. Later migrations need nothing more: what they add is
-- granted by the defaults.
grant usage on schema workflow to holdfast_app;
grant select, insert, update, delete on all tables in schema workflow to holdfast_app;
grant usage, select on all sequences in schema workflow to holdfast_app;
grant execute on all functions in schema workflow to holdfast_app;
revoke insert, update, delete on workflow.workflow_schema from holdfast_app;
alter default privileges in schema workflow grant select, insert, update, delete on tables to holdfast_app;
alter default privileges in schema workflow grant usage, select on sequences to holdfast_app;
alter default privileges in schema workflow grant execute on functions to holdfast_app;
