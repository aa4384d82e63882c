//! `systemctl status`. Facts of the run: `service.NAME.state` ("inactive (dead)", "active (running)"); where the fabric
//! manager's own log refuses the driver, `fabric_manager.version` and `driver.version`.

use timeline::Line;

use super::{Context, Grammar, support::between};

/// The grammar.
#[derive(Debug, Default)]
pub struct Services {
    name: Option<String>,
}

impl Grammar for Services {
    fn name(&self) -> &'static str {
        "services"
    }

    fn line(&mut self, text: &str, line: &Line, context: &mut Context<'_>) -> bool {
        let trimmed = text.trim().trim_start_matches(['●', '○', '×', '*']).trim_start();
        if let Some((name, _)) = trimmed.split_once(".service - ") {
            if name.contains(' ') || name.len() > 128 {
                return false;
            }
            self.name = Some(name.to_owned());
            return true;
        }
        if trimmed.starts_with("Unit ") && trimmed.contains("could not be found") {
            let name = trimmed.split_whitespace().nth(1).unwrap_or("").trim_end_matches(".service");
            context.fact(None, &format!("service.{name}.state"), "not found", line);
            return true;
        }
        // `fabric manager NVIDIA GPU driver interface version A don't match with driver version B. Please update`
        if let Some((own, driver)) = between(trimmed, "driver interface version ", ". ")
            .and_then(|rest| rest.split_once(" don't match with driver version "))
        {
            context.fact(None, "fabric_manager.version", own, line);
            context.fact(None, "driver.version", driver, line);
            return true;
        }
        let Some(name) = &self.name else { return false };
        if let Some(state) = trimmed.strip_prefix("Active: ") {
            let state = state.split(" since ").next().unwrap_or(state).trim();
            context.fact(None, &format!("service.{name}.state"), state, line);
            self.name = None;
            return true;
        }
        trimmed.starts_with("Loaded: ")
    }
}
