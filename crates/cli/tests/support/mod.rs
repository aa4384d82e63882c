//! Runs of a small recipe inside the test's process. Knows no expectations.

use std::{
    path::Path,
    sync::{Arc, Mutex, atomic::AtomicBool},
};

use train::{
    Error,
    checkpoint::{self, Snapshot},
    data::{Dataset, Part, format},
    recipe::Recipe,
    run::{Job, Observer, Outcome, StepReport, run},
};

/// A GPT-2 of one block on the shipped text.
pub const SMALL: &str = "[model]\nfamily = \"gpt2\"\nlayers = 1\nwidth = 32\nheads = 2\ncontext = 16\n\
    [data]\ntrain = \"../../../../data/shakespeare.txt\"\n\
    [train]\nbatch = 8\nsteps = 20\n\
    [optimizer]\nlearning_rate = 3e-3\ngroups = [{ at_least_axes = 2 }, { weight_decay = 0.0 }]\n\
    [parallel]\nbucket_bytes = 16384\nfirst_bucket_bytes = 4096\nlast_bucket_bytes = 4096\n\
    [validation]\nbatches = 2\n[schedule]\nwarmup = 5\n";

/// What a run did.
pub struct Ran {
    /// Reports of all steps.
    pub steps: Vec<StepReport>,
    /// Its end.
    pub outcome: Outcome,
    /// The last checkpoint.
    pub snapshot: Snapshot,
}

#[derive(Default)]
struct Record(Mutex<Vec<StepReport>>);

impl Observer for Record {
    fn started(&self, _: u64) {}
    fn step(&self, report: &StepReport) {
        self.0.lock().expect("not poisoned").push(report.clone());
    }
    fn validated(&self, _: u64, _: f64) {}
    fn saved(&self, _: u64, _: &Path) {}
    fn not_saved(&self, _: u64, _: &Error) {}
    fn timeline(&self, _: usize, _: timeline::Timeline) {}
}

/// The small recipe with `--set` arguments.
pub fn recipe(sets: &[&str]) -> Recipe {
    let sets: Vec<String> = sets.iter().map(|&set| set.to_owned()).collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/small.toml");
    Recipe::parse(&path, SMALL, &sets, &cli::model::families()).expect("a recipe")
}

/// Runs the small recipe in `folder`.
pub fn train(folder: &Path, sets: &[&str], resume: Option<Snapshot>) -> Ran {
    let recipe = recipe(sets);
    let model = cli::model::model(&recipe).expect("a model");
    let plan = Arc::new(cli::planning::for_host(&recipe, model.as_ref()).expect("plans"));
    let open = |part| {
        let format = format(&recipe.data.format).expect("known");
        Arc::new(Dataset::open(format, &recipe.data.train, part, 16, 256).expect("opens"))
    };
    let communicators = runtime::in_process::world(plan.ranks, cli::planning::link(&recipe));
    let job = Job {
        recipe: &recipe,
        model: cli::model::description(&recipe),
        plan,
        device: &runtime::host::HostDevice::new(1),
        train: open(Part::Without(0.1)),
        validation: open(Part::Last(0.1)),
        resume,
        initial: None,
        folder,
        record: false,
        stop: Arc::new(AtomicBool::new(false)),
    };
    let record = Record::default();
    let outcome = run(&job, communicators, None, &record).expect("runs");
    let snapshot = checkpoint::load(folder).expect("a checkpoint");
    Ran { steps: record.0.into_inner().expect("not poisoned"), outcome, snapshot }
}
