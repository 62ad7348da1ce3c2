//! The program, as its users start it.

mod bulk_program;
mod campaign_program;
mod crash_program;
mod dump_program;
mod judge;
mod load_program;
mod mistakes;
mod perturb;
mod program;
mod schemas;
