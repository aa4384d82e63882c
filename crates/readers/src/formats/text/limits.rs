//! Limits of a shell and sizes of what it sees: `ulimit -a`, `ulimit -l`, `df`, `free`.
//!
//! Facts of the run: `limits.memlock_kb` (a number, or "unlimited"); `limits.open_files`; `limits.stack_kb`;
//! `mount.PATH.bytes`, `mount.PATH.used_bytes`; `host.memory_bytes`, `host.memory_available_bytes`.

use timeline::Line;

use super::{
    Context, Grammar,
    support::{after, bytes},
};

/// The grammar.
#[derive(Debug, Default)]
pub struct Limits {
    /// Bytes of a unit of `df` or `free`, by their header or option.
    unit: i64,
    mounts: bool,
}

impl Grammar for Limits {
    fn name(&self) -> &'static str {
        "limits"
    }

    fn line(&mut self, text: &str, line: &Line, context: &mut Context<'_>) -> bool {
        let trimmed = text.trim();
        for (name, key) in [
            ("max locked memory", "limits.memlock_kb"),
            ("open files", "limits.open_files"),
            ("stack size", "limits.stack_kb"),
            ("Max locked memory", "limits.memlock_bytes"),
        ] {
            if let Some(rest) = trimmed.strip_prefix(name) {
                let value = rest.rsplit(')').next().unwrap_or("").split_whitespace().next();
                let Some(value) = value else { return false };
                if key == "limits.memlock_bytes" {
                    // /proc/PID/limits counts bytes.
                    let kilobytes = value.parse::<i64>().map(|bytes| (bytes / 1024).to_string());
                    limit(
                        "limits.memlock_kb",
                        &kilobytes.unwrap_or(value.to_owned()),
                        line,
                        context,
                    );
                } else {
                    limit(key, value, line, context);
                }
                return true;
            }
        }
        let plain = trimmed == "unlimited" || trimmed.parse::<i64>().is_ok();
        if plain && context.command().contains("ulimit -l") {
            limit("limits.memlock_kb", trimmed, line, context);
            return true;
        }
        if trimmed.starts_with("Filesystem") && trimmed.contains("Mounted on") {
            self.mounts = true;
            self.unit = if trimmed.contains("1K-blocks") { 1024 } else { 1 };
            return true;
        }
        if self.mounts && self.mount(trimmed, line, context).is_some() {
            return true;
        }
        if trimmed.starts_with("total ") && trimmed.contains("used") && trimmed.contains("free") {
            let command = context.command();
            let options = after(command, "free").unwrap_or("");
            self.unit = match () {
                () if options.contains('g') => 1 << 30,
                () if options.contains('m') => 1 << 20,
                () if options.contains('b') => 1,
                () => 1024,
            };
            return true;
        }
        if let Some(rest) = trimmed.strip_prefix("Mem:") {
            let unit = self.unit.max(1);
            let mut values = rest.split_whitespace();
            let size = |word: &str| {
                word.parse::<i64>().ok().and_then(|n| n.checked_mul(unit)).or_else(|| bytes(word))
            };
            let total = values.next().and_then(size);
            let Some(total) = total else { return false };
            context.fact(None, "host.memory_bytes", total, line);
            if let Some(available) = values.nth(4).and_then(size) {
                context.fact(None, "host.memory_available_bytes", available, line);
            }
            return true;
        }
        false
    }
}

impl Limits {
    /// `shm 64M 58M 6.0M 91% /dev/shm`.
    fn mount(&self, text: &str, line: &Line, context: &mut Context<'_>) -> Option<()> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let path = *words.last().filter(|path| path.starts_with('/'))?;
        let share = words.iter().position(|word| word.ends_with('%'))?;
        let size = |word: &str| match word.parse::<i64>() {
            Ok(count) => count.checked_mul(self.unit.max(1)),
            Err(_) => bytes(word),
        };
        let total = size(words.get(share.checked_sub(3)?)?)?;
        context.fact(None, &format!("mount.{path}.bytes"), total, line);
        if let Some(used) = size(words[share - 2]) {
            context.fact(None, &format!("mount.{path}.used_bytes"), used, line);
        }
        Some(())
    }
}

fn limit(key: &str, value: &str, line: &Line, context: &mut Context<'_>) {
    match value.parse::<i64>() {
        Ok(number) => context.fact(None, key, number, line),
        Err(_) => context.fact(None, key, value, line),
    }
}
