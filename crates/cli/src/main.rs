//! The `counterpoint` command: one file per subcommand. Knows no rules, formats or kernels of its own.

fn main() {}
