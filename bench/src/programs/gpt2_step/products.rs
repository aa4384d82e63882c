//! Describes the step's matrix products and chooses fusions from their measured times.
//! Knows the model's shapes; the timing itself is `matmuls`.

use anyhow::{Context as _, Result};
use bench::harness::say;
use native::{
    DataType,
    cublaslt::{Epilogue, MatmulBuffers, MatmulDescription},
};

use super::{
    matmuls::{Choice, Matmuls, weight_gradient},
    memory::{Formats, Memory},
    schedule::{Choices, InnerGradient},
    size::{Layout, Size},
};

/// Layers on whose buffers products are timed in turn, so that operands come from memory.
pub const SAMPLES: usize = 3;

/// Adds every product, fused and plain, with the addresses of `layer`. A fused form that the library refuses is left out with a line that
/// says so.
pub fn describe(
    matmuls: &Matmuls,
    size: &Size,
    layout: &Layout,
    memory: &Memory,
    formats: Formats,
    layer: usize,
) -> Result<()> {
    let (rows, d, columns) = (size.rows(), size.width, size.columns);
    let bf16 = DataType::Bf16;
    let m = &memory.layers[layer];
    let h = |name: &str| format!("h.{layer}.{name}");
    let weight = |name: &str| -> Result<_> { Ok(memory.working_at(layout.first(name)?)) };
    let slot = |name: &str| -> Result<_> { Ok(memory.gradient_at(layout.first(name)?)) };
    let none = MatmulBuffers::default();
    let linear = |input, output| MatmulDescription::linear(bf16, rows, input, output);
    let back = |input, output| MatmulDescription::linear_data_gradient(bf16, rows, input, output);

    // Forward.
    let forward = |x, name: &str, y| -> Result<MatmulBuffers> {
        let (right, bias) = (weight(&format!("{name}.weight"))?, weight(&format!("{name}.bias"))?);
        Ok(MatmulBuffers { left: x, right, bias, output: y, ..none })
    };
    let qkv = forward(m.normal_1, &h("attn.c_attn"), m.qkv)?;
    matmuls.add("qkv forward", linear(d, 3 * d).epilogue(Epilogue::Bias), 0.0, qkv)?;
    let up = forward(m.normal_2, &h("mlp.c_fc"), m.after_gelu)?;
    let up = MatmulBuffers { auxiliary: m.before_gelu, ..up };
    let with_gelu = linear(d, 4 * d).epilogue(Epilogue::GeluAuxiliaryBias);
    matmuls.add("up forward + GELU", with_gelu, 0.0, up)?;
    let ends = [
        ("projection forward", &h("attn.c_proj"), d, m.attention, m.input, m.middle),
        ("down forward", &h("mlp.c_proj"), 4 * d, m.after_gelu, m.middle, memory.last),
    ];
    for (product, name, input, x, before, after) in ends {
        let description = linear(input, d).epilogue(Epilogue::Bias);
        let plain = forward(x, name, memory.narrow_gradient)?;
        matmuls.add(product, description, 0.0, plain)?;
        let fused = MatmulBuffers { addend: before, output: after, ..plain };
        let description = description.output(formats.residual);
        optional(matmuls, layer, &format!("{product} + residual"), description, 1.0, fused);
    }
    let table = weight("wte.weight")?;
    let head =
        MatmulBuffers { left: memory.normal_last, right: table, output: memory.logits, ..none };
    matmuls.add("head forward", linear(d, columns), 0.0, head)?;

    // Gradients with respect to activations.
    let (dx, narrow, wide) =
        (memory.residual_gradient[0], memory.narrow_gradient, memory.wide_gradient);
    let dqkv = memory.qkv_gradient;
    let through = |dy, name: &str, dx| -> Result<MatmulBuffers> {
        Ok(MatmulBuffers { left: dy, right: weight(name)?, output: dx, ..none })
    };
    matmuls.add(
        "head data gradient",
        back(d, columns),
        0.0,
        through(memory.logits, "wte.weight", narrow)?,
    )?;
    let down = through(dx, &h("mlp.c_proj.weight"), wide)?;
    matmuls.add("down data gradient", back(4 * d, d), 0.0, down)?;
    let gelu = MatmulBuffers { auxiliary: m.before_gelu, ..down };
    let description = back(4 * d, d).epilogue(Epilogue::GeluGradient);
    optional(matmuls, layer, "down data gradient + GELU", description, 0.0, gelu);
    let both = MatmulBuffers { bias: slot(&h("mlp.c_fc.bias"))?, ..gelu };
    let description = back(4 * d, d).epilogue(Epilogue::GeluGradientBiasGradient);
    let description = MatmulDescription { bias: formats.gradient, ..description };
    optional(matmuls, layer, "down data gradient + GELU + bias", description, 0.0, both);
    let up = through(wide, &h("mlp.c_fc.weight"), narrow)?;
    matmuls.add("up data gradient", back(d, 4 * d), 0.0, up)?;
    let projection = through(dx, &h("attn.c_proj.weight"), narrow)?;
    matmuls.add("projection data gradient", back(d, d), 0.0, projection)?;
    let qkv = through(dqkv, &h("attn.c_attn.weight"), narrow)?;
    matmuls.add("qkv data gradient", back(d, 3 * d), 0.0, qkv)?;

    let head = MatmulBuffers {
        left: memory.logits,
        right: memory.normal_last,
        output: slot("wte.weight")?,
        ..none
    };
    let description = weight_gradient(rows, d, columns, formats.gradient, false, None);
    matmuls.add("head weight gradient", description, 0.0, head)
}

/// Adds the layers' weight gradients, planned for some or all multiprocessors; their names end in `suffix`.
pub fn describe_weight_gradients(
    matmuls: &Matmuls,
    size: &Size,
    layout: &Layout,
    memory: &Memory,
    formats: Formats,
    layer: usize,
    (multiprocessors, suffix): (Option<u32>, &str),
) -> Result<()> {
    let d = size.width;
    let m = &memory.layers[layer];
    let h = |name: &str| format!("h.{layer}.{name}");
    let dx = memory.residual_gradient[0];
    let products = [
        ("down", &h("mlp.c_proj"), 4 * d, d, dx, m.after_gelu),
        ("up", &h("mlp.c_fc"), d, 4 * d, memory.wide_gradient, m.normal_2),
        ("projection", &h("attn.c_proj"), d, d, dx, m.attention),
        ("qkv", &h("attn.c_attn"), d, 3 * d, memory.qkv_gradient, m.normal_1),
    ];
    for (short, name, input, output, left, right) in products {
        let buffers = MatmulBuffers {
            left,
            right,
            output: memory.gradient_at(layout.first(&format!("{name}.weight"))?),
            bias: memory.gradient_at(layout.first(&format!("{name}.bias"))?),
            ..MatmulBuffers::default()
        };
        let describe = |with_bias| {
            let slot = formats.gradient;
            weight_gradient(size.rows(), input, output, slot, with_bias, multiprocessors)
        };
        let name = format!("{short} weight gradient");
        matmuls.add(&format!("{name}{suffix}"), describe(false), 0.0, buffers)?;
        if matches!(short, "up" | "qkv") {
            optional(
                matmuls,
                layer,
                &format!("{name} + bias{suffix}"),
                describe(true),
                0.0,
                buffers,
            );
        }
    }
    Ok(())
}

/// As `Matmuls::add`, but what the library refuses is said once and left out.
fn optional(
    matmuls: &Matmuls,
    layer: usize,
    name: &str,
    description: MatmulDescription,
    beta: f32,
    buffers: MatmulBuffers,
) {
    if layer > 0 && !matmuls.has(name) {
        return;
    }
    if let Err(error) = matmuls.add(name, description, beta, buffers) {
        say(&format!("{name}: not available: {error:#}"));
    }
}

/// The fusions that cost least by the measured times of the products and, for our kernels, their bytes at 3.7 TB/s
/// and 3 microseconds a launch.
pub fn choose(found: &[Choice], size: &Size, suffix: &str) -> Result<Choices> {
    let ms = |name: &str| found.iter().find(|c| c.name == name).map(|c| c.best_ms);
    let weight = |name: &str| ms(&format!("{name}{suffix}"));
    let plain = |name: &str| ms(name).with_context(|| format!("no time of {name}"));
    let matrix = (size.rows() * size.width) as f64 * 2.0;
    let kernel = |bytes: f64| bytes / 3.7e9 + 0.003;

    let adds = |product: &str| -> Result<bool> {
        // The layer norm that adds reads the branch and the old sum and writes the new one; the other reads the sum.
        let apart = plain(product)? + kernel(2.0 * matrix) - 0.003;
        Ok(ms(&format!("{product} + residual")).is_some_and(|fused| fused <= apart))
    };
    let sums = |columns: usize| kernel(matrix * columns as f64 / size.width as f64) + 0.003;
    let far = f64::INFINITY;
    let (up, up_bias) = (
        weight("up weight gradient").unwrap_or(far),
        weight("up weight gradient + bias").unwrap_or(far),
    );
    let gelu = ms("down data gradient + GELU").unwrap_or(far);
    let both = ms("down data gradient + GELU + bias").unwrap_or(far);
    let ways = [
        (InnerGradient::EpilogueAndWeightGradient, gelu + up_bias),
        (InnerGradient::BothInEpilogue, both + up),
        (InnerGradient::EpilogueAndKernel, gelu + sums(4 * size.width) + up),
        (InnerGradient::Kernel, plain("down data gradient")? + kernel(12.0 * matrix) + 0.003 + up),
    ];
    let inner =
        ways.iter().min_by(|a, b| a.1.total_cmp(&b.1)).map_or(InnerGradient::Kernel, |w| w.0);
    let qkv = weight("qkv weight gradient").unwrap_or(far) + sums(3 * size.width);
    Ok(Choices {
        projection_adds_residual: adds("projection forward")?,
        down_adds_residual: adds("down forward")?,
        inner,
        qkv_sums_in_weight_gradient: weight("qkv weight gradient + bias").is_some_and(|b| b <= qkv),
    })
}
