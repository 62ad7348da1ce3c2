//! Starts etcd, and compares stores: for tests and benchmarks.
