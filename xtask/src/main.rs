//! `cargo xtask test`: every check in one command, as people and continuous integration run it.
//!
//! Knows which tools check what; the tidy rules themselves are `tidy.rs`.

mod tidy;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, bail};

const USAGE: &str = "usage: cargo xtask <command>

  test   format, lints, tests, doc tests, examples, documentation, tidy rules, dependency rules
  tidy   the tidy rules alone: arrows, lists, file headers and sizes, paths named in documents

COUNTERPOINT_STRICT=1 makes a missing optional tool (nextest, deny) a failure.";

fn main() -> ExitCode {
    let command = std::env::args().nth(1).unwrap_or_default();
    let result = match command.as_str() {
        "test" => test(),
        "tidy" => run_tidy(),
        _ => {
            say(USAGE);
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("xtask {command}: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stderr, reason = "the tool talks to the person who ran it")]
fn say(text: &str) {
    eprintln!("{text}");
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lives in the workspace").to_owned()
}

fn run_tidy() -> Result<()> {
    let problems = tidy::check(&root())?;
    if problems.is_empty() {
        return Ok(());
    }
    bail!("{} tidy problems\n  {}", problems.len(), problems.join("\n  "))
}

fn test() -> Result<()> {
    let strict = std::env::var_os("COUNTERPOINT_STRICT").is_some_and(|v| v != "0");
    cargo(&["fmt", "--all", "--check"])?;
    say("tidy");
    run_tidy()?;
    cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"])?;
    if has("nextest", strict)? {
        cargo(&["nextest", "run", "--workspace", "--no-fail-fast"])?;
    } else {
        cargo(&["test", "--workspace", "--lib", "--bins", "--tests", "--examples"])?;
    }
    cargo(&["test", "--workspace", "--doc", "--quiet"])?;
    examples()?;
    documentation()?;
    if has("deny", strict)? {
        cargo(&["deny", "--log-level", "error", "check", "bans", "licenses", "sources"])?;
    }
    say("all checks passed");
    Ok(())
}

/// Tests and runs the crates outside the workspace, as their authors would.
fn examples() -> Result<()> {
    for entry in fs::read_dir(root().join("examples"))? {
        let folder = entry?.path();
        for arguments in [["test", "--quiet"], ["run", "--quiet"]] {
            let mut command = Command::new("cargo");
            let manifest = folder.join("Cargo.toml");
            command.args(arguments).arg("--manifest-path").arg(manifest);
            // One folder of its own for all examples: the workspace's lock file has other versions.
            run(command.env("CARGO_TARGET_DIR", root().join("target/examples")))?;
        }
    }
    Ok(())
}

fn documentation() -> Result<()> {
    let mut command = Command::new("cargo");
    command.args(["doc", "--workspace", "--no-deps", "--quiet"]).env("RUSTDOCFLAGS", "-D warnings");
    run(&mut command)
}

fn cargo(arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("cargo");
    command.args(arguments);
    run(&mut command)
}

fn run(command: &mut Command) -> Result<()> {
    command.current_dir(root());
    let line = format!("{command:?}").replace('"', "");
    say(&format!("> {line}"));
    let status = command.status().with_context(|| format!("cannot start {line}"))?;
    if status.success() { Ok(()) } else { bail!("failed: {line}") }
}

/// Whether `cargo <tool>` exists; with `strict` its absence is an error.
fn has(tool: &str, strict: bool) -> Result<bool> {
    let found = Command::new("cargo").args([tool, "--version"]).output()?.status.success();
    match (found, strict) {
        (false, true) => {
            bail!("cargo-{tool} is not installed (cargo install --locked cargo-{tool})")
        }
        (false, false) => {
            say(&format!("cargo-{tool} is not installed: its checks are left out"));
            Ok(false)
        }
        (true, _) => Ok(true),
    }
}
