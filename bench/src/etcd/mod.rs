//! An etcd for each turn: started on ports of the kernel's choice, with its data in a temporary directory, and killed
//! in any case.
//!
//! Its client is generated from `proto/etcd.proto`, a subset of the API of etcd, and uses tonic. So does the crate
//! `etcd-client`, with further features that are not needed here; but its build needs `protoc`.

mod program;
pub(crate) mod workload;

pub(crate) use program::{Etcd, Program};

/// The generated code.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::pedantic, clippy::all)]
pub(crate) mod wire {
    tonic::include_proto!("etcdserverpb");
}
