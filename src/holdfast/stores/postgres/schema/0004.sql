-- JSON Schemas of a workflow's params and result, as its last publisher gave them.
alter table workflow_definition add column params_schema text, add column result_schema text;
