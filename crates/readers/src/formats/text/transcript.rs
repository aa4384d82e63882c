//! A pasted terminal: prompts with the command typed, and remarks of the person who pasted it.
//!
//! Facts of the run: `transcript.command` (as typed); `launch.processes` (the number a launcher was asked to start);
//! `transcript.stopped` (a remark that nothing more was printed). The command stays known to the other grammars until
//! the next prompt, so that a bare number printed by `grep -c` or `ulimit -l` has a meaning.

use timeline::Line;

use super::{
    Context, Grammar,
    support::{after, integer_after},
};

/// The grammar.
#[derive(Debug)]
pub struct Transcript;

/// Commands after which `# ` is a prompt and not a comment.
const COMMANDS: &[&str] = &[
    "sudo",
    "cat",
    "grep",
    "dmesg",
    "nvidia-smi",
    "lspci",
    "ulimit",
    "df",
    "free",
    "mpirun",
    "mpiexec",
    "srun",
    "torchrun",
    "python",
    "python3",
    "pip",
    "dpkg",
    "systemctl",
    "ibv_devinfo",
    "show_gids",
    "fi_info",
    "echo",
    "env",
    "nsys",
    "ncu",
    "dcgmi",
    "export",
    "ibstat",
    "lscpu",
    "numactl",
    "ls",
    "cd",
    "docker",
    "kubectl",
    "mount",
];

impl Grammar for Transcript {
    fn name(&self) -> &'static str {
        "transcript"
    }

    fn line(&mut self, text: &str, line: &Line, context: &mut Context<'_>) -> bool {
        if let Some(command) = prompt(text) {
            context.set_command(command);
            context.fact(None, "transcript.command", command, line);
            let launcher = ["mpirun", "mpiexec", "srun", "torchrun"];
            if launcher.iter().any(|name| command.contains(name)) {
                let count = [
                    " -np ",
                    " -n ",
                    " --np ",
                    " --ntasks=",
                    "--nproc_per_node=",
                    "--nproc-per-node=",
                ]
                .iter()
                .find_map(|option| integer_after(command, option));
                if let Some(count) = count {
                    context.fact(None, "launch.processes", count, line);
                }
            }
            return true;
        }
        let trimmed = text.trim();
        if trimmed.starts_with('(') && trimmed.len() < 200 {
            let lower = trimmed.to_lowercase();
            let stopped = ["no further output", "no more output", "hangs", "stuck", "nothing more"];
            if stopped.iter().any(|remark| lower.contains(remark)) {
                context.fact(None, "transcript.stopped", trimmed, line);
                return true;
            }
        }
        false
    }
}

/// The command after a prompt: `$ `, `>>> `, `user@host:~$ `, `[user@host dir]$ `, or `# ` before a known command.
fn prompt(text: &str) -> Option<&str> {
    let text = text.trim_start();
    if let Some(command) = text.strip_prefix("$ ").or_else(|| text.strip_prefix(">>> ")) {
        return (!command.trim().is_empty()).then_some(command.trim());
    }
    let first = |command: &str| {
        let word = command.split_whitespace().next().unwrap_or("").to_owned();
        COMMANDS.contains(&word.as_str()) || word.starts_with("./") || word.contains("_perf")
    };
    if let Some(command) = text.strip_prefix("# ") {
        return first(command).then_some(command.trim());
    }
    let (before, command) = text.split_once("$ ").or_else(|| text.split_once("# "))?;
    let names_host = before.len() < 120
        && after(before, "@").is_some_and(|rest| rest.contains([':', ' ', ']']))
        && !before.contains(": ");
    (names_host && first(command)).then_some(command.trim())
}
