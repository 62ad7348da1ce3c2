//! An etcd for each turn: started on ports of the kernel's choice, with its data in a temporary directory, and killed
//! in any case. The program and the messages are those of `stickycas-cluster`.

pub(crate) mod workload;

pub(crate) use stickycas_cluster::etcd::wire;
pub(crate) use stickycas_cluster::testing::etcd::{Etcd, Options, Program};
