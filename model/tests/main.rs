//! The rules of one instance, from outside: its machine, its processes, its simulator and its judge, in one
//! program that is linked once. What the model checker loom replaces is checked by programs of its own,
//! `loom_*.rs`.
#![cfg(not(loom))]

mod json_schema;
mod story;

mod blocks;
mod bounds;
mod invariants_of_machine;
mod judge_algorithm;
mod judge_explains;
mod judge_rejects;
mod judge_simulated;
mod judge_termination;
mod judge_unnamed;
mod judge_verdicts;
mod player;
mod properties;
mod recovery;
mod resilience;
mod schedule;
mod simulation;
mod sticky_cas;
mod strategies;
mod transcripts;
mod verdict_schema;
