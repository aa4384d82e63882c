//! What launchers say to the processes they start, and how they hand the environment on: what must be added for
//! `counterpoint record` to reach the ranks, and what keeps it from them. Knows launchers' variables and options; not what
//! is handed on.

use std::{env, ffi::OsString};

/// Variables of rank, ranks and rank on the host; the innermost launcher comes first. Slurm sets a rank in a batch script
/// too, but the number of tasks of a step only where srun started the process.
const PLACES: &[[&str; 3]] = &[
    ["RANK", "WORLD_SIZE", "LOCAL_RANK"],
    ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"],
    ["PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"],
    ["MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK"],
    ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"],
];

/// Variables that name the job, equal in all its ranks; the innermost launcher comes first.
const JOBS: &[&str] =
    &["TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"];

/// Open MPI's launcher under its names.
const OPEN_MPI: &[&str] = &["mpirun", "mpiexec", "orterun", "prterun"];

/// Programs that start the job in an environment of its own.
const APART: &[&str] = &["docker", "podman", "kubectl", "ssh", "sudo"];

/// What a launcher says about this process.
#[derive(Debug)]
pub struct Place {
    /// Its rank in the job.
    pub rank: u32,
    /// Its rank on its host.
    pub local_rank: Option<u32>,
    /// The job's name, equal in all its ranks.
    pub job: Option<String>,
}

/// Where a launcher put this process; `None` where none made it a rank.
pub fn place() -> Option<Place> {
    let number = |name: &str| env::var(name).ok()?.parse::<u32>().ok();
    let [rank, _, local] =
        PLACES.iter().find(|[rank, ranks, _]| number(rank).and(number(ranks)).is_some())?;
    // torchrun says `none` where it was given no name.
    let name = |name: &&str| env::var(name).ok().filter(|name| name != "none");
    let job = JOBS.iter().find_map(name).map(|name| match env::var("SLURM_STEP_ID") {
        Ok(step) => format!("{name}.{step}"),
        Err(_) => name,
    });
    Some(Place { rank: number(rank)?, local_rank: number(local), job })
}

/// What must be added to a command so that named variables reach its processes.
#[derive(Debug, Default)]
pub struct Addition {
    /// Words behind the program.
    pub words: Vec<OsString>,
    /// A variable and its value.
    pub variable: Option<(&'static str, OsString)>,
}

/// Open MPI hands variables on to other hosts only where told: by `-x` or by a list in a variable, which it refuses
/// together. Other launchers hand everything on, and ignore the list.
pub fn handing_on(command: &[OsString], names: &[&str]) -> Addition {
    const LIST: &str = "OMPI_MCA_mca_base_env_list";
    let words = words(command);
    let mut addition = Addition::default();
    let Some(program) = words.first() else { return addition };
    let has_own_list = env::var_os(LIST).is_some()
        || words.iter().any(|word| word.contains("mca_base_env_list") || word.ends_with("-tune"));
    if !OPEN_MPI.contains(&base(program)) || has_own_list {
        return addition;
    }
    let given: Vec<&str> =
        words.windows(2).filter(|pair| pair[0] == "-x").map(|pair| pair[1].as_str()).collect();
    if given.is_empty() {
        addition.variable = Some((LIST, names.join(";").into()));
        return addition;
    }
    let is_given = |name: &str| given.iter().any(|word| word.split('=').next() == Some(name));
    for name in names.iter().filter(|name| !is_given(name)) {
        addition.words.extend(["-x".into(), (*name).into()]);
    }
    addition
}

/// Why nothing inside the job's Python can be recorded, and what to do; `None` where nothing speaks against it.
pub fn obstacle(command: &[OsString]) -> Option<String> {
    let words = words(command);
    let program = base(words.first()?);
    let behind = |what: &str| {
        format!(
            "{what}, so no step is recorded: put counterpoint record behind {program}, before the job's own command"
        )
    };
    if APART.contains(&program) {
        return Some(behind(&format!("{program} starts the job in an environment of its own")));
    }
    if program == "srun"
        && let Some(export) =
            slurm_export(&words).filter(|list| !list.split(',').any(|name| name == "ALL"))
    {
        return Some(behind(&format!("srun --export={export} does not hand the environment on")));
    }
    if OPEN_MPI.contains(&program)
        && let Some(path) = words.iter().find(|word| word.starts_with("PYTHONPATH="))
    {
        return Some(behind(&format!("-x {path} hides what is imported before the job")));
    }
    let python = words.iter().position(|word| base(word).starts_with("python"))?;
    // What follows these letters in the same word is theirs.
    let letters = |word: &str| word.split(['W', 'X', 'c', 'm']).next().unwrap_or("").to_owned();
    let mut flags = words[python + 1..].iter().take_while(|word| word.starts_with('-'));
    let flag =
        flags.find(|word| !word.starts_with("--") && letters(word).contains(['I', 'E', 'S']))?;
    Some(format!(
        "{} {flag} imports nothing before the job, so no step is recorded: leave {flag} out",
        base(&words[python])
    ))
}

/// What srun hands on, where it is told: by the option, else by the variable that `sbatch --export` leaves.
fn slurm_export(words: &[String]) -> Option<String> {
    let option = words.iter().find_map(|word| word.strip_prefix("--export=").map(str::to_owned));
    option.or_else(|| env::var("SLURM_EXPORT_ENV").ok())
}

fn words(command: &[OsString]) -> Vec<String> {
    command.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

fn base(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}
