//! The engine's own CUDA kernels: their texts, what they compile to, and loading them on a device.
//!
//! Each kernel is a file under `kernels/` that says in its opening comment what it computes and how many bytes it
//! moves. Nothing here knows when a kernel runs or on what.

use std::collections::BTreeMap;

use crate::{
    DataType, Error, Result,
    driver::Context,
    module::{Function, Module},
    nvrtc::{self, Compiled},
};

/// A file of kernels that belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernel {
    /// The file's name without its ending.
    pub name: &'static str,
    /// Its text, without the shared beginning.
    pub text: &'static str,
    /// Names of its `extern "C"` kernels.
    pub entry_points: &'static [&'static str],
}

macro_rules! kernel {
    ($name:literal, [$($entry:literal),+ $(,)?]) => {
        Kernel {
            name: $name,
            text: include_str!(concat!("../kernels/", $name, ".cu")),
            entry_points: &[$($entry),+],
        }
    };
}

/// Every kernel. A file under `kernels/` that is not here does not exist for the engine.
pub const KERNELS: &[Kernel] = &[
    kernel!("adamw", ["next_step", "adamw", "write_working_copy"]),
    kernel!("column_sum", ["column_sum", "gelu_gradient", "finish_sums"]),
    kernel!("cross_entropy", ["cross_entropy", "mean_loss"]),
    kernel!(
        "embedding",
        ["select_batch", "embedding_forward", "position_gradient", "token_gradient"]
    ),
    kernel!("layer_norm", ["layer_norm_forward", "residual_layer_norm_forward"]),
    kernel!("layer_norm_gradient", ["layer_norm_gradient"]),
];

const PRELUDE: &str = include_str!("../kernels/prelude.cuh");

/// What is fixed when a kernel is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Settings {
    /// Values of a row of the residual stream; a multiple of 256.
    pub columns: usize,
    /// Elements of the residual stream: fp32 or bf16.
    pub residual: DataType,
    /// Elements of the gradient slots: fp32 or bf16.
    pub gradient: DataType,
}

impl Settings {
    fn options(&self) -> Result<Vec<String>> {
        if self.columns == 0 || !self.columns.is_multiple_of(256) {
            return Err(Error::Argument(format!(
                "kernels need rows of a multiple of 256 values, got {}",
                self.columns
            )));
        }
        let name = |data_type: DataType| match data_type {
            DataType::F32 => Ok("float"),
            DataType::Bf16 => Ok("bf16"),
            other => Err(Error::Argument(format!(
                "kernels hold the residual stream and gradients in fp32 or bf16, not in {}",
                other.name()
            ))),
        };
        Ok(vec![
            format!("-DCOLUMNS={}", self.columns),
            format!("-DRESIDUAL={}", name(self.residual)?),
            format!("-DGRADIENT={}", name(self.gradient)?),
        ])
    }
}

impl Kernel {
    /// The whole text for NVRTC: the shared beginning and the file, with the file's own line numbers.
    pub fn source(&self) -> String {
        format!("{PRELUDE}\n#line 1 \"{}.cu\"\n{}", self.name, self.text)
    }

    /// Compiles for an architecture such as `sm_90`; needs no device.
    pub fn compile(&self, architecture: &str, settings: &Settings) -> Result<Compiled> {
        let options = settings.options()?;
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        nvrtc::compile(&format!("{}.cu", self.name), &self.source(), architecture, &options)
    }
}

/// All kernels, loaded on one device with one choice of settings.
pub struct Kernels(BTreeMap<&'static str, Function>);

impl Kernels {
    /// Compiles and loads every kernel of [`KERNELS`].
    pub fn load(context: &Context, settings: &Settings) -> Result<Kernels> {
        let architecture = context.device().architecture();
        let mut functions = BTreeMap::new();
        for kernel in KERNELS {
            let module = Module::load(context, &kernel.compile(&architecture, settings)?.cubin)?;
            for entry in kernel.entry_points {
                functions.insert(*entry, module.function(entry)?);
            }
        }
        Ok(Kernels(functions))
    }

    /// A kernel by its name.
    pub fn get(&self, entry_point: &str) -> Result<&Function> {
        self.0
            .get(entry_point)
            .ok_or_else(|| Error::Argument(format!("there is no kernel {entry_point}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strict() -> bool {
        std::env::var_os("COUNTERPOINT_STRICT").is_some_and(|value| value != "0")
    }

    #[test]
    fn every_kernel_compiles_for_hopper() {
        if let Err(missing) = nvrtc::version() {
            assert!(!strict() && missing.is_missing_library(), "{missing}");
            eprintln!("kernels are not compiled: {missing}");
            return;
        }
        let choices = [
            (768, DataType::Bf16, DataType::F32),
            (768, DataType::F32, DataType::Bf16),
            (256, DataType::Bf16, DataType::Bf16),
            (1024, DataType::Bf16, DataType::F32),
        ];
        for kernel in KERNELS {
            for (columns, residual, gradient) in choices {
                let settings = Settings { columns, residual, gradient };
                let compiled = kernel.compile("sm_90", &settings).unwrap();
                for entry in kernel.entry_points {
                    let found = compiled.cubin.windows(entry.len()).any(|w| w == entry.as_bytes());
                    assert!(found, "{}.cu has no kernel {entry}", kernel.name);
                }
            }
        }
    }

    #[test]
    fn every_file_is_listed() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/kernels");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with(".cu"))
            .collect();
        files.sort();
        let listed: Vec<String> = KERNELS.iter().map(|k| format!("{}.cu", k.name)).collect();
        assert_eq!(files, listed);
    }

    #[test]
    fn unfit_settings_are_refused() {
        let cases = [
            (100, DataType::Bf16, "kernels need rows of a multiple of 256 values, got 100"),
            (
                768,
                DataType::F16,
                "kernels hold the residual stream and gradients in fp32 or bf16, not in fp16",
            ),
        ];
        for (columns, residual, message) in cases {
            let settings = Settings { columns, residual, gradient: DataType::F32 };
            let error = KERNELS[0].compile("sm_90", &settings).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
    }
}
