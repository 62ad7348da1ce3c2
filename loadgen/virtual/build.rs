//! Lets the program's own `getrandom` be found by name: the crate of that name looks it up when the program
//! runs.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol=getrandom");
}
