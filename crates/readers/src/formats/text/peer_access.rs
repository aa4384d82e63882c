//! p2pBandwidthLatencyTest of the CUDA samples.
//!
//! Facts of the run: `peer.access` ("0 1") and `peer.no_access`; `peer.test` (the heading of a matrix);
//! `peer.test.rows` (rows printed of all matrices, at the end: 0 means that the test hung in the first).

use timeline::Line;

use super::{
    Context, Grammar,
    support::{after, integer_after},
};

/// The grammar.
#[derive(Debug, Default)]
pub struct PeerAccess {
    heading: Option<Line>,
    rows: i64,
}

impl Grammar for PeerAccess {
    fn name(&self) -> &'static str {
        "p2p-test"
    }

    fn line(&mut self, text: &str, line: &Line, context: &mut Context<'_>) -> bool {
        let trimmed = text.trim();
        if trimmed.starts_with("[P2P (Peer-to-Peer)") || trimmed.starts_with("Device: ") {
            return true;
        }
        if trimmed.starts_with("Device=") && trimmed.contains("Access Peer Device=") {
            let pair = integer_after(trimmed, "Device=")
                .zip(after(trimmed, "Peer ").and_then(|rest| integer_after(rest, "Device=")));
            let Some((one, other)) = pair else { return false };
            let key = if trimmed.contains("CANNOT") { "peer.no_access" } else { "peer.access" };
            context.fact(None, key, format!("{one} {other}"), line);
            return true;
        }
        if trimmed.contains("Matrix (") && trimmed.contains("P2P=") {
            context.fact(None, "peer.test", trimmed, line);
            self.heading = Some(line.clone());
            return true;
        }
        if self.heading.is_some() {
            let mut words = trimmed.split_whitespace();
            let index = words.next().is_some_and(|word| word.parse::<u32>().is_ok());
            if index && words.next().is_some_and(|word| word.parse::<f64>().is_ok()) {
                self.rows += 1;
                return true;
            }
            return trimmed.starts_with("D\\D");
        }
        false
    }

    fn end(&mut self, context: &mut Context<'_>) {
        if let Some(heading) = self.heading.take() {
            context.fact(None, "peer.test.rows", self.rows, &heading);
        }
    }
}
