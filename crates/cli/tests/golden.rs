//! GPT-2 against PyTorch: loss, logits, every gradient, and the losses of some steps of training, from one golden file
//! (`golden/make.py` made it). `COUNTERPOINT_GOLDEN` names another file, for example of GPT-2 124M.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use graph::optim::AdamW;
use models::{SettingValue, Settings, Shapes, zoo};
use plan::{Options, options::ParameterGroup};
use runtime::{Device, Executable, HostTensor, Inputs, host::HostDevice, in_process};
use train::{
    run::states,
    weights::{self, StoredTensors},
};

struct Golden {
    tensors: StoredTensors,
    numbers: BTreeMap<String, f64>,
}

impl Golden {
    fn read() -> Golden {
        let own =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/gpt2-small.safetensors");
        let path = std::env::var_os("COUNTERPOINT_GOLDEN").map_or(own, PathBuf::from);
        let bytes = std::fs::read(&path).expect("the golden file");
        let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).expect("a header");
        let numbers = header.metadata().clone().expect("metadata");
        let numbers = numbers
            .into_iter()
            .map(|(name, text)| (name, text.parse().expect("a number")))
            .collect();
        Golden { tensors: weights::read(&path).expect("tensors"), numbers }
    }

    fn size(&self, name: &str) -> usize {
        self.numbers[name] as usize
    }

    fn values(&self, name: &str) -> Vec<f64> {
        let tensor = &self.tensors[name];
        HostTensor { ty: tensor.ty.clone(), bytes: tensor.bytes.clone() }.to_f64()
    }

    fn parameters(&self) -> StoredTensors {
        let strip = |(name, tensor): (&String, &weights::StoredTensor)| {
            name.strip_prefix("parameter.").map(|name| (name.to_owned(), tensor.clone()))
        };
        self.tensors.iter().filter_map(strip).collect()
    }

    /// Tokens and labels of a step's batch.
    fn batch(&self, step: usize) -> (Vec<i32>, Vec<i32>) {
        let (samples, width) = (self.size("batch"), self.size("context") + 1);
        let all = self.values("tokens");
        let rows = all[step * samples * width..(step + 1) * samples * width].chunks(width);
        let part = |row: &[f64]| row.iter().map(|&token| token as i32).collect::<Vec<i32>>();
        (
            rows.clone().flat_map(|row| part(&row[..width - 1])).collect(),
            rows.flat_map(|row| part(&row[1..])).collect(),
        )
    }

    /// GPT-2 with the golden parameters on the host.
    fn load(&self, optimizer: &AdamW, options: &Options) -> (Box<dyn Executable>, Arc<plan::Plan>) {
        let family = zoo::family("gpt2").expect("in the zoo");
        let mut settings = Settings::of(family, None);
        for name in ["layers", "width", "heads", "context", "vocabulary"] {
            settings = settings.with(name, SettingValue::Integer(self.size(name) as i64));
        }
        let model = family.model(&settings).expect("a model");
        let shapes =
            Shapes { batch: self.size("batch"), length: self.size("context"), generate: true };
        let program =
            models::program(&graph::ops::registry(), model.as_ref(), shapes).expect("traces");
        let plan =
            plan::compile(&program, optimizer, &plan::target::host(), options).expect("plans");
        let plan = Arc::new(plan);
        let communicator = in_process::world(1, None).pop().expect("one rank");
        let mut executable =
            HostDevice::for_ranks(1).load(plan.clone(), communicator, 1).expect("loads");
        states::write_parameters(executable.as_mut(), &plan, &self.parameters()).expect("writes");
        (executable, plan)
    }

    fn step(&self, executable: &mut dyn Executable, step: usize, learning_rate: f64) -> f64 {
        let (tokens, labels) = self.batch(step);
        let shape = [self.size("batch"), self.size("context")];
        let inputs: Inputs = vec![
            ("tokens".to_owned(), HostTensor::from_i32(shape, &tokens)),
            ("labels".to_owned(), HostTensor::from_i32(shape, &labels)),
            ("learning_rate".to_owned(), HostTensor::scalar_f32(learning_rate as f32)),
            ("local_count".to_owned(), HostTensor::scalar_f32(labels.len() as f32)),
        ];
        let outputs = executable.submit("step", inputs).expect("runs").wait().expect("ends");
        outputs["loss_sum"].first() / outputs["count"].first()
    }
}

fn adamw(beta1: f64, beta2: f64, epsilon: f64) -> AdamW {
    AdamW { beta1, beta2, epsilon }
}

/// Largest difference relative to the largest element.
fn difference(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
    let apart = found.iter().zip(expected).fold(0.0_f64, |apart, (a, b)| apart.max((a - b).abs()));
    apart / largest.max(f64::MIN_POSITIVE)
}

#[test]
fn loss_logits_and_every_gradient_are_pytorchs() {
    let golden = Golden::read();
    // With beta1 = 0 the first moment after one step is the gradient itself.
    let (mut executable, _) = golden.load(&adamw(0.0, 0.95, 1e-8), &Options::default());

    let (tokens, _) = golden.batch(0);
    let (context, vocabulary) = (golden.size("context"), golden.size("vocabulary"));
    let logits = golden.values("logits");
    for sample in 0..golden.size("batch") {
        for position in (0..context).step_by(context.div_ceil(16)) {
            let row: Vec<f32> =
                (0..context).map(|at| if at == position { 1.0 } else { 0.0 }).collect();
            let inputs: Inputs = vec![
                (
                    "tokens".to_owned(),
                    HostTensor::from_i32([1, context], &tokens[sample * context..][..context]),
                ),
                ("chosen".to_owned(), HostTensor::from_f32([1, context, 1], &row)),
            ];
            let outputs =
                executable.submit("generate", inputs).expect("runs").wait().expect("ends");
            let expected = &logits[(sample * context + position) * vocabulary..][..vocabulary];
            let apart = difference(&outputs["logits"].to_f64(), expected);
            assert!(
                apart < 1e-4,
                "logits of sample {sample}, position {position}: {apart:e} apart"
            );
        }
    }

    let loss = golden.step(executable.as_mut(), 0, 0.0);
    let expected = golden.values("losses")[0];
    assert!((loss - expected).abs() / expected < 1e-4, "loss {loss}, PyTorch's {expected}");
    let mut worst = (0.0, String::new());
    for name in golden.parameters().keys() {
        let mut found =
            executable.read_state(&format!("{name}#exp_avg")).expect("a moment").to_f64();
        if name.ends_with("attn.c_attn.bias") {
            // The bias of keys has no influence: both gradients are rounding.
            let width = golden.size("width");
            assert!(found[width..2 * width].iter().all(|value| value.abs() < 1e-6));
            found[width..2 * width].fill(0.0);
        }
        let apart = difference(&found, &golden.values(&format!("gradient.{name}")));
        assert!(apart < 1e-4, "gradient of {name}: {apart:e} apart");
        if apart > worst.0 {
            worst = (apart, name.clone());
        }
    }
    println!("largest relative difference of a gradient: {:e} ({})", worst.0, worst.1);
}

#[test]
fn losses_of_training_are_pytorchs() {
    let golden = Golden::read();
    let number = |name: &str| golden.numbers[name];
    let decayed = ParameterGroup {
        at_least_axes: 2,
        weight_decay: number("weight_decay"),
        ..ParameterGroup::default()
    };
    let options = Options {
        clip_norm: Some(number("clip_norm")),
        groups: vec![decayed, ParameterGroup::default()],
        ..Options::default()
    };
    let optimizer = adamw(number("beta1"), number("beta2"), number("epsilon"));
    let (mut executable, _) = golden.load(&optimizer, &options);
    let mut worst = 0.0_f64;
    for (step, expected) in golden.values("losses").into_iter().enumerate() {
        let loss = golden.step(executable.as_mut(), step, number("learning_rate"));
        worst = worst.max((loss - expected).abs());
        assert!((loss - expected).abs() < 1e-3, "step {step}: loss {loss}, PyTorch's {expected}");
    }
    println!("largest difference of a loss: {worst:e}");
}
