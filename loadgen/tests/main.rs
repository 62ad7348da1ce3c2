//! The program, as its users start it.

mod bulk_program;
mod campaign_program;
mod crash_program;
mod dump_program;
#[path = "../../model/tests/json_schema/mod.rs"]
mod json_schema;
mod judge;
mod load_program;
mod mistakes;
mod perturb;
mod program;
mod schemas;
