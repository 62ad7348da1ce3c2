//! An etcd of our own, for as long as a turn lasts: started on ports of the kernel's choice, with its data in a
//! temporary directory, and killed whatever happens.
//!
//! What is said to it stands in `proto/etcd.proto`, a subset of its API, and is sent with tonic. The crate `etcd-client`
//! is the same tonic underneath, with features on top that nothing here would use; but its build needs `protoc`. So
//! this has no dependency that would have to stay outside the default build, and costs etcd's clients nothing.

pub(crate) mod play;
mod program;

pub(crate) use program::{Etcd, Program};

/// The generated code.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::pedantic, clippy::all)]
pub(crate) mod wire {
    tonic::include_proto!("etcdserverpb");
}
