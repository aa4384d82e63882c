//! What a product computes and how its matrices lie in memory. Knows no library handle.

use crate::{DataType, Error, Result, memory::DevicePointer};

/// What is done to the product before it is written. `bias` and `auxiliary` are those of [`MatmulBuffers`].
///
/// GELU is the one with tanh. Bias gradients are sums over rows of the stated matrix, written to `bias`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Epilogue {
    /// Nothing.
    None,
    /// Adds `bias` (one value a column).
    Bias,
    /// max(0, x + bias).
    ReluBias,
    /// GELU of the product.
    Gelu,
    /// GELU(x + bias).
    GeluBias,
    /// As `GeluBias`, and writes x + bias to `auxiliary`.
    GeluAuxiliaryBias,
    /// Multiplies by GELU'(auxiliary).
    GeluGradient,
    /// As `GeluGradient`, and writes the result's column sums to `bias`.
    GeluGradientBiasGradient,
    /// Writes the sums over the inner dimension of the left operand (one value a row of the output) to `bias`.
    LeftBiasGradient,
    /// Writes the sums over the inner dimension of the right operand (one value a column) to `bias`.
    RightBiasGradient,
}

impl Epilogue {
    pub(super) fn number(self) -> u32 {
        match self {
            Epilogue::None => 1,
            Epilogue::Bias => 4,
            Epilogue::ReluBias => 6,
            Epilogue::Gelu => 32,
            Epilogue::GeluBias => 36,
            Epilogue::GeluAuxiliaryBias => 164,
            Epilogue::GeluGradient => 192,
            Epilogue::GeluGradientBiasGradient => 208,
            // The library's first operand is our right one.
            Epilogue::RightBiasGradient => 256,
            Epilogue::LeftBiasGradient => 512,
        }
    }

    /// Whether [`MatmulBuffers::bias`] is read or written.
    pub fn uses_bias(self) -> bool {
        !matches!(self, Epilogue::None | Epilogue::Gelu | Epilogue::GeluGradient)
    }

    /// Whether [`MatmulBuffers::auxiliary`] is read or written.
    pub fn uses_auxiliary(self) -> bool {
        matches!(
            self,
            Epilogue::GeluAuxiliaryBias
                | Epilogue::GeluGradient
                | Epilogue::GeluGradientBiasGradient
        )
    }
}

/// How an operand lies in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Operand {
    /// Its elements.
    pub data_type: DataType,
    /// Whether the stored matrix is the transpose of the operand.
    pub transposed: bool,
    /// Elements from one stored row to the next.
    pub stride: usize,
}

/// `output[rows, columns] = epilogue(alpha * left[rows, inner] * right[inner, columns] + beta * addend)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MatmulDescription {
    /// Rows of the output.
    pub rows: usize,
    /// Columns of the output.
    pub columns: usize,
    /// The dimension summed over.
    pub inner: usize,
    /// The left operand.
    pub left: Operand,
    /// The right operand.
    pub right: Operand,
    /// Elements of the output and of the addend.
    pub output: DataType,
    /// Elements from one row of the output to the next.
    pub output_stride: usize,
    /// Elements from one row of the addend to the next.
    pub addend_stride: usize,
    /// What is done before writing.
    pub epilogue: Epilogue,
    /// Elements of the bias or of the bias gradient.
    pub bias: DataType,
    /// Elements from one row of the auxiliary matrix (of the output's type) to the next.
    pub auxiliary_stride: usize,
    /// Multiprocessors to plan for; `None` for all.
    pub multiprocessors: Option<u32>,
    /// Most bytes of workspace that an algorithm may need.
    pub workspace: usize,
}

impl MatmulDescription {
    /// Densely stored operands of one type; the output has the same type, no epilogue, 32 MiB of workspace.
    pub fn dense(
        data_type: DataType,
        [rows, columns, inner]: [usize; 3],
        left_transposed: bool,
        right_transposed: bool,
    ) -> MatmulDescription {
        let operand = |transposed: bool, rows: usize, columns: usize| Operand {
            data_type,
            transposed,
            stride: if transposed { rows } else { columns },
        };
        MatmulDescription {
            rows,
            columns,
            inner,
            left: operand(left_transposed, rows, inner),
            right: operand(right_transposed, inner, columns),
            output: data_type,
            output_stride: columns,
            addend_stride: columns,
            epilogue: Epilogue::None,
            bias: data_type,
            auxiliary_stride: columns,
            multiprocessors: None,
            workspace: 32 << 20,
        }
    }

    /// The linear layer `y[tokens, out] = x[tokens, in] w[out, in]^T`.
    pub fn linear(data_type: DataType, tokens: usize, input: usize, output: usize) -> Self {
        Self::dense(data_type, [tokens, output, input], false, true)
    }

    /// Its data gradient `dx[tokens, in] = dy[tokens, out] w[out, in]`.
    pub fn linear_data_gradient(
        data_type: DataType,
        tokens: usize,
        input: usize,
        output: usize,
    ) -> Self {
        Self::dense(data_type, [tokens, input, output], false, false)
    }

    /// Its weight gradient `dw[out, in] = dy[tokens, out]^T x[tokens, in]`.
    pub fn linear_weight_gradient(
        data_type: DataType,
        tokens: usize,
        input: usize,
        output: usize,
    ) -> Self {
        Self::dense(data_type, [output, input, tokens], true, false)
    }

    /// With another epilogue.
    #[must_use]
    pub fn epilogue(self, epilogue: Epilogue) -> Self {
        MatmulDescription { epilogue, ..self }
    }

    /// With another output (and addend) type.
    #[must_use]
    pub fn output(self, output: DataType) -> Self {
        MatmulDescription { output, ..self }
    }

    /// Multiplications and additions.
    pub fn operations(&self) -> f64 {
        2.0 * self.rows as f64 * self.columns as f64 * self.inner as f64
    }
}

/// Addresses of one run. Unused ones are [`DevicePointer::NULL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MatmulBuffers {
    /// The left operand.
    pub left: DevicePointer,
    /// The right operand.
    pub right: DevicePointer,
    /// The matrix added with `beta`; null means the output.
    pub addend: DevicePointer,
    /// The output.
    pub output: DevicePointer,
    /// Bias read, or bias gradient written.
    pub bias: DevicePointer,
    /// Pre-activation written or read.
    pub auxiliary: DevicePointer,
    /// Scratch memory; shared by no other lane while it runs.
    pub workspace: DevicePointer,
    /// Bytes of scratch memory.
    pub workspace_bytes: usize,
}

/// Refuses strides and sizes that cannot be.
pub(super) fn check(d: &MatmulDescription) -> Result<()> {
    let width = |operand: &Operand, rows, columns| if operand.transposed { rows } else { columns };
    let problems = [
        (d.rows == 0 || d.columns == 0 || d.inner == 0, "an empty dimension"),
        (d.left.stride < width(&d.left, d.rows, d.inner), "the left stride is too small"),
        (d.right.stride < width(&d.right, d.inner, d.columns), "the right stride is too small"),
        (d.output_stride < d.columns, "the output stride is too small"),
        (d.addend_stride < d.columns, "the addend stride is too small"),
        (
            d.epilogue.uses_auxiliary() && d.auxiliary_stride < d.columns,
            "the auxiliary stride is too small",
        ),
    ];
    match problems.iter().find(|(is_wrong, _)| *is_wrong) {
        None => Ok(()),
        Some((_, what)) => {
            let [m, n, k] = [d.rows, d.columns, d.inner];
            Err(Error::Argument(format!("product [{m}, {k}] x [{k}, {n}]: {what}")))
        }
    }
}
