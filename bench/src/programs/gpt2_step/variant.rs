//! Ways to run the same step that are compared with each other: which kernels run beside which, and how wide.
//! Knows their names on the command line; not the schedule.

use std::str::FromStr;

use anyhow::{Result, bail};
use clap::ValueEnum;

use super::{schedule::InnerGradient, sums::Grids};

/// One way. On the command line a comma separated list, for example `two-lanes,beside=44,side=116,inner=kernel`; empty for the default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Variant {
    /// As given.
    pub label: String,
    /// Weight gradients run beside the kernels that wait for memory.
    pub two_lanes: bool,
    /// Products' algorithms are those of the interleaved timing, not of the sustained one.
    pub quick: bool,
    /// Multiprocessors that weight gradients are planned for; all if not given.
    pub side: Option<u32>,
    /// Blocks of the kernels beside weight gradients; as many as fill the device if not given.
    pub beside: Option<u32>,
    /// How the feed-forward's inner gradient is formed; by measured times if not given.
    pub inner: Option<InnerGradient>,
    /// Whether both linear layers that end in the residual stream add it; by measured times if not given.
    pub adds_residual: Option<bool>,
}

impl Variant {
    /// The grids, given those that fill the device.
    pub fn grids(&self, filling: Grids) -> Grids {
        match self.beside {
            None => filling,
            Some(blocks) => {
                Grids { norm: blocks.min(filling.norm), sums: blocks.min(filling.sums), ..filling }
            }
        }
    }

    /// What the names of its weight gradients end in.
    pub fn suffix(&self) -> String {
        self.side.map_or(String::new(), |count| format!(" on {count}"))
    }
}

impl FromStr for Variant {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Variant> {
        let mut variant = Variant { label: text.to_owned(), ..Variant::default() };
        for part in text.split(',').filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                None if part == "two-lanes" => variant.two_lanes = true,
                None if part == "quick" => variant.quick = true,
                Some(("side", count)) => variant.side = Some(number(part, count)?),
                Some(("beside", count)) => variant.beside = Some(number(part, count)?),
                Some(("residual", "matmul")) => variant.adds_residual = Some(true),
                Some(("residual", "norm")) => variant.adds_residual = Some(false),
                Some(("inner", how)) => {
                    variant.inner =
                        Some(InnerGradient::from_str(how, true).map_err(anyhow::Error::msg)?);
                }
                _ => bail!(
                    "unknown part {part:?} of a variant: expected two-lanes, quick, side=N, beside=N, inner=HOW or \
                     residual=matmul|norm"
                ),
            }
        }
        Ok(variant)
    }
}

fn number(part: &str, count: &str) -> Result<u32> {
    match count.parse() {
        Ok(count) if count > 0 => Ok(count),
        _ => bail!("{part:?} of a variant: expected a number of at least 1"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_are_read() {
        let cases = [
            ("", Variant::default()),
            (
                "two-lanes,beside=44",
                Variant { two_lanes: true, beside: Some(44), ..Variant::default() },
            ),
            (
                "inner=kernel,side=116",
                Variant {
                    inner: Some(InnerGradient::Kernel),
                    side: Some(116),
                    ..Variant::default()
                },
            ),
        ];
        for (text, expected) in cases {
            let expected = Variant { label: text.into(), ..expected };
            assert_eq!(text.parse::<Variant>().unwrap(), expected, "{text}");
        }
        for (text, part) in [
            ("three-lanes", "unknown part \"three-lanes\""),
            ("residual=both", "unknown part \"residual=both\""),
            ("beside=0", "\"beside=0\" of a variant: expected a number of at least 1"),
        ] {
            let error = text.parse::<Variant>().unwrap_err().to_string();
            assert!(error.starts_with(part), "{error}");
        }
    }
}
