//! `counterpoint-bench`: one file per measurement. Knows no graph and no plan.

fn main() {}
