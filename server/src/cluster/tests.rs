//! Several servers of one cluster in one process: what they share, what passes from one to another, and what
//! an owner can still do that is none any more.

mod calls;
mod hand_over;
mod over_grpc;
mod refusals;
mod sharing;
mod sizes;
mod space;
mod stale_owner;
mod take_over;
mod without_etcd;
mod world;
