//! Collectives: a closed set, each with a pure specification over all ranks. Knows no transport.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{DType, OpError, Tensor, Type};

/// How elements of different ranks are combined, in rank order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reduction {
    /// The sum; for truth values the logical or.
    Sum,
    /// The largest; for truth values the logical or.
    Max,
    /// The smallest; for truth values the logical and.
    Min,
}

/// An exchange among all ranks of the data-parallel group. A transport must implement every one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Collective {
    /// Every rank gets the reduction over ranks.
    AllReduce {
        /// How elements combine.
        reduction: Reduction,
    },
    /// Rank r gets the r-th of `ranks` equal parts of the reduction along axis 0.
    ReduceScatter {
        /// How elements combine.
        reduction: Reduction,
        /// Number of ranks.
        ranks: usize,
    },
    /// Every rank gets the concatenation along axis 0 in rank order.
    AllGather {
        /// Number of ranks.
        ranks: usize,
    },
    /// Every rank gets the input of rank `root`.
    Broadcast {
        /// The rank whose input counts.
        root: usize,
    },
    /// Part s of rank r's input along axis 0 becomes part r of rank s's output.
    AllToAll {
        /// Number of ranks.
        ranks: usize,
    },
    /// Rank `to` gets the input of rank `from`; every other rank keeps its own input.
    SendReceive {
        /// The rank whose input travels.
        from: usize,
        /// The rank that gets it.
        to: usize,
    },
}

impl Collective {
    /// Sum over ranks.
    pub const ALL_REDUCE_SUM: Collective = Collective::AllReduce { reduction: Reduction::Sum };

    /// One of each kind, for loops over the whole set.
    pub fn samples(ranks: usize) -> Vec<Collective> {
        vec![
            Collective::AllReduce { reduction: Reduction::Sum },
            Collective::AllReduce { reduction: Reduction::Max },
            Collective::AllReduce { reduction: Reduction::Min },
            Collective::ReduceScatter { reduction: Reduction::Sum, ranks },
            Collective::AllGather { ranks },
            Collective::Broadcast { root: ranks - 1 },
            Collective::AllToAll { ranks },
            Collective::SendReceive { from: 0, to: ranks - 1 },
        ]
    }

    /// Name as in plans and traces.
    pub fn name(self) -> &'static str {
        match self {
            Collective::AllReduce { .. } => "all_reduce",
            Collective::ReduceScatter { .. } => "reduce_scatter",
            Collective::AllGather { .. } => "all_gather",
            Collective::Broadcast { .. } => "broadcast",
            Collective::AllToAll { .. } => "all_to_all",
            Collective::SendReceive { .. } => "send_receive",
        }
    }

    /// The output's type.
    ///
    /// # Errors
    /// Where the input cannot be divided among the ranks.
    pub fn infer(self, input: &Type) -> Result<Type, OpError> {
        let first = input.shape.0.first().copied();
        let divisible = |ranks: usize| match first {
            Some(extent) if ranks > 0 && extent % ranks == 0 => Ok(extent / ranks),
            _ => Err(OpError::new(format!("{input} cannot be divided among {ranks} ranks"))),
        };
        let mut output = input.clone();
        match self {
            Collective::ReduceScatter { ranks, .. } => output.shape.0[0] = divisible(ranks)?,
            Collective::AllGather { ranks } => match first {
                Some(extent) => output.shape.0[0] = extent * ranks,
                None => return Err(OpError::new("a scalar has no axis to gather along")),
            },
            Collective::AllToAll { ranks } => {
                divisible(ranks)?;
            }
            _ => {}
        }
        Ok(output)
    }

    /// Bytes on the wire per rank for an algorithm that moves as little as possible, as nccl-tests counts bus
    /// bandwidth: all-reduce 2 (n-1)/n, reduce-scatter, all-gather and all-to-all (n-1)/n of the whole, others 1.
    pub fn wire_bytes(self, input: &Type, ranks: usize) -> u64 {
        let (bytes, ranks) = (input.bytes() as u64, ranks.max(1) as u64);
        match self {
            Collective::AllReduce { .. } => 2 * bytes * (ranks - 1) / ranks,
            Collective::ReduceScatter { .. } | Collective::AllToAll { .. } => {
                bytes * (ranks - 1) / ranks
            }
            Collective::AllGather { .. } => bytes * (ranks - 1),
            Collective::Broadcast { .. } | Collective::SendReceive { .. } => bytes,
        }
    }

    /// The executable specification: all ranks' inputs to all ranks' outputs, reducing in rank order and rounding to
    /// the dtype after every addition.
    ///
    /// # Errors
    /// Where inputs differ in type or cannot be divided among the ranks.
    pub fn specification(self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let Some(first) = inputs.first() else { return Ok(vec![]) };
        if let Some(other) = inputs.iter().find(|tensor| tensor.ty() != first.ty()) {
            return Err(OpError::new(format!("ranks disagree: {} and {}", first.ty(), other.ty())));
        }
        let ranks = inputs.len();
        let output = self.infer(first.ty())?;
        Ok(match self {
            Collective::AllReduce { reduction } => vec![reduce(inputs, reduction); ranks],
            Collective::ReduceScatter { reduction, .. } => {
                let (whole, part) = (reduce(inputs, reduction), output.shape.elements());
                (0..ranks).map(|rank| whole.select(output.clone(), |i| rank * part + i)).collect()
            }
            Collective::AllGather { .. } => {
                let values = inputs.iter().flat_map(Tensor::to_f64);
                let gathered = if output.dtype.is_float() {
                    Tensor::floats(output, values)
                } else {
                    Tensor::ints(output, inputs.iter().flat_map(Tensor::to_i64))
                };
                vec![gathered; ranks]
            }
            Collective::Broadcast { root } => match inputs.get(root) {
                Some(tensor) => vec![tensor.clone(); ranks],
                None => return Err(OpError::new(format!("there is no rank {root}"))),
            },
            Collective::AllToAll { .. } => {
                let part = output.shape.elements() / ranks;
                let row = |rank: usize| -> Vec<Tensor> {
                    let ty = output.with_shape([part]);
                    inputs.iter().map(|t| t.select(ty.clone(), |i| rank * part + i)).collect()
                };
                let join = |parts: Vec<Tensor>| {
                    if output.dtype.is_float() {
                        Tensor::floats(output.clone(), parts.iter().flat_map(Tensor::to_f64))
                    } else {
                        Tensor::ints(output.clone(), parts.iter().flat_map(Tensor::to_i64))
                    }
                };
                (0..ranks).map(|rank| join(row(rank))).collect()
            }
            Collective::SendReceive { from, to } => {
                let Some(sent) = inputs.get(from).filter(|_| to < ranks) else {
                    return Err(OpError::new(format!("there are no ranks {from} and {to}")));
                };
                let kept = |rank: usize| if rank == to { sent } else { &inputs[rank] };
                (0..ranks).map(|rank| kept(rank).clone()).collect()
            }
        })
    }
}

/// Elementwise reduction over ranks in rank order.
fn reduce(inputs: &[Tensor], reduction: Reduction) -> Tensor {
    let ty = inputs[0].ty().clone();
    let elements = ty.shape.elements();
    if ty.dtype.is_float() {
        let combine = |a: f64, b: f64| match reduction {
            Reduction::Sum => ty.dtype.round(a + b),
            Reduction::Max => a.max(b),
            Reduction::Min => a.min(b),
        };
        let value = |i: usize| inputs[1..].iter().fold(inputs[0].at(i), |a, t| combine(a, t.at(i)));
        return Tensor::floats(ty.clone(), (0..elements).map(value));
    }
    let combine = |a: i64, b: i64| match reduction {
        Reduction::Sum if ty.dtype == DType::Bool => a | b,
        Reduction::Sum => a.wrapping_add(b),
        Reduction::Max => a.max(b),
        Reduction::Min => a.min(b),
    };
    let value =
        |i: usize| inputs[1..].iter().fold(inputs[0].int_at(i), |a, t| combine(a, t.int_at(i)));
    Tensor::ints(ty.clone(), (0..elements).map(value))
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Collective::AllReduce { reduction } => write!(f, "{reduction:?}"),
            Collective::ReduceScatter { reduction, ranks } => {
                write!(f, "{reduction:?}, ranks={ranks}")
            }
            Collective::AllGather { ranks } | Collective::AllToAll { ranks } => {
                write!(f, "ranks={ranks}")
            }
            Collective::Broadcast { root } => write!(f, "root={root}"),
            Collective::SendReceive { from, to } => write!(f, "from={from}, to={to}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reduce_scatter_then_all_gather_is_all_reduce() {
        for ranks in 1..5 {
            let ty = Type::new(DType::F32, [ranks * 3]);
            let inputs: Vec<Tensor> = (0..ranks)
                .map(|r| {
                    Tensor::floats(ty.clone(), (0..ranks * 3).map(|i| (r * 7 + i) as f64 / 3.0))
                })
                .collect();
            let reduction = Reduction::Sum;
            let all = Collective::AllReduce { reduction }.specification(&inputs).unwrap();
            let parts =
                Collective::ReduceScatter { reduction, ranks }.specification(&inputs).unwrap();
            assert_eq!(all, Collective::AllGather { ranks }.specification(&parts).unwrap());
        }
    }

    #[test]
    fn all_to_all_twice_changes_nothing() {
        let ranks = 3;
        let ty = Type::new(DType::I32, [6, 2]);
        let inputs: Vec<Tensor> = (0..ranks as i64)
            .map(|r| Tensor::ints(ty.clone(), (0..12).map(|i| 100 * r + i)))
            .collect();
        let once = Collective::AllToAll { ranks }.specification(&inputs).unwrap();
        assert_eq!(once[1].int_at(0), 4);
        assert_eq!(once[1].int_at(4), 104);
        assert_eq!(Collective::AllToAll { ranks }.specification(&once).unwrap(), inputs);
    }
}
