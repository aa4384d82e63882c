//! Ranks and inputs that are not in the answer, or not whole, by reason: ten thousand of them are one line.
//!
//! Knows names and reasons; not what they mean.

use diagnose::job::Job;

use super::classes::rank_list;

/// Inputs with one reason.
pub struct Group<'a> {
    /// The reason of the first.
    pub reason: &'a str,
    /// Their names, in order.
    pub names: Vec<&'a str>,
}

impl Group<'_> {
    /// `first and 3 more`, with the first name as `show` has it.
    pub fn who(&self, show: impl Fn(&str) -> String) -> String {
        let first = self.names.first().map_or(String::new(), |name| show(name));
        match self.names.len() {
            0 | 1 => first,
            count => format!("{first} and {} more", count - 1),
        }
    }
}

/// Groups inputs; reasons that differ in a number alone are one.
pub fn grouped<'a>(left_out: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<Group<'a>> {
    let mut groups: Vec<(String, Group)> = vec![];
    for (name, reason) in left_out {
        let kind: String = reason.chars().filter(|letter| !letter.is_numeric()).collect();
        match groups.iter_mut().find(|(own, _)| *own == kind) {
            Some((_, group)) => group.names.push(name),
            None => groups.push((kind, Group { reason, names: vec![name] })),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// The ranks of the job of which nothing can be told.
pub fn missing(job: &Job) -> Option<String> {
    let missing = job.missing_ranks();
    let told = !missing.is_empty() && !job.participants.is_empty();
    told.then(|| format!("{} of {}", rank_list(&missing), job.world_size()))
}

/// Inputs that were used up to where they are cut off.
pub fn in_part(job: &Job) -> Vec<Group<'_>> {
    let set_aside = |index: usize| job.set_aside.iter().any(|(other, _)| *other == index);
    let used = job.inputs.iter().enumerate().filter(|(index, _)| !set_aside(*index));
    grouped(used.filter_map(|(_, input)| Some((input.name.as_str(), input.cut_off()?))))
}

/// What a job could not read and what it set aside.
pub fn left_out(job: &Job) -> Vec<Group<'_>> {
    let unusable = job.unusable.iter().map(|own| (own.name.as_str(), own.reason.as_str()));
    let set_aside = job.set_aside.iter();
    let set_aside = set_aside.map(|(input, why)| (job.inputs[*input].name.as_str(), why.as_str()));
    grouped(unusable.chain(set_aside))
}
